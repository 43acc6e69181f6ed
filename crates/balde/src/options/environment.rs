//! What the environment says. It goes before the file.

use std::ffi::OsString;

use super::fault::Faults;

/// The longest value of a variable.
const VALUE_BYTES_MAX: usize = 4_096;

pub(super) struct Environment<'e> {
    lookup: &'e dyn Fn(&str) -> Option<OsString>,
    /// Whether all buckets are in Redis, or none, whatever the file says.
    pub(super) is_redis: Option<bool>,
    pub(super) redis_addr: Option<String>,
    pub(super) redis_password: Option<String>,
    pub(super) log_salt: Option<String>,
}

impl<'e> Environment<'e> {
    pub(super) fn new(
        lookup: &'e dyn Fn(&str) -> Option<OsString>,
        faults: &mut Faults<'_>,
    ) -> Self {
        let mut environment = Self {
            lookup,
            is_redis: None,
            redis_addr: None,
            redis_password: None,
            log_salt: None,
        };
        environment.is_redis = environment.mode(faults);
        environment.redis_addr = environment.get("REDIS_ADDR", faults);
        environment.redis_password = environment.get("REDIS_PASSWORD", faults);
        environment.log_salt = environment.get("RL_LOG_SALT", faults);
        environment
    }

    /// A variable; one that is empty is not set.
    pub(super) fn get(&self, variable: &'static str, faults: &mut Faults<'_>) -> Option<String> {
        match self.look(variable) {
            Ok(value) => value,
            Err(why) => {
                faults.in_environment(variable, why);
                None
            }
        }
    }

    /// A variable that the file names.
    pub(super) fn look(&self, variable: &str) -> Result<Option<String>, &'static str> {
        let Some(value) = (self.lookup)(variable) else {
            return Ok(None);
        };
        let value = value.into_string().map_err(|_| "this is not Unicode")?;
        if value.len() > VALUE_BYTES_MAX {
            return Err("this has more than 4096 bytes");
        }
        Ok(Some(value).filter(|value| !value.trim().is_empty()))
    }

    fn mode(&self, faults: &mut Faults<'_>) -> Option<bool> {
        const VARIABLE: &str = "RL_STORAGE_MODE";
        let mode = self.get(VARIABLE, faults)?;
        match mode.trim() {
            "memory" => Some(false),
            "redis" if cfg!(feature = "redis") => Some(true),
            "redis" => {
                let message = "redis needs the feature \"redis\" of the crate balde";
                faults.in_environment(VARIABLE, message);
                None
            }
            _ => {
                faults.in_environment(VARIABLE, "this is no storage; set it to redis or memory");
                None
            }
        }
    }
}
