//! What can be changed while the simulator runs: categories, limits and faults. Over Redis all
//! simulators of one world follow the same.

use std::collections::BTreeMap;

use balde::Limit;
use serde::{Deserialize, Serialize};

/// The most participants whose category differs from the default.
pub const CATEGORIES_MAX: usize = 10_000;

/// The longest that a fault keeps a request waiting.
pub const FAULT_LATENCY_MAX_MS: u64 = 60_000;

/// What can be changed while the simulator runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RuntimeSettings {
    /// Categories of participants that do not have the default one.
    pub(crate) categories: BTreeMap<String, String>,
    /// Limits that are not the profile's.
    pub(crate) limits: Vec<LimitChange>,
    /// What goes wrong, by operation; `*` is for all.
    pub(crate) faults: BTreeMap<String, Fault>,
}

/// Another limit for a policy, or for one value of its variant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitChange {
    pub(crate) policy: String,
    pub(crate) value: Option<String>,
    pub(crate) limit: String,
}

/// Something that goes wrong on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    /// The status to answer with, instead of doing what was asked.
    pub(crate) status: Option<u16>,
    /// How long to wait before.
    #[serde(default)]
    pub(crate) latency_ms: u64,
    /// Of so many requests in a hundred; all, unless told otherwise.
    #[serde(default = "always")]
    pub(crate) percent: u8,
}

fn always() -> u8 {
    100
}

impl RuntimeSettings {
    /// The fault of an operation, if it strikes this time.
    pub(crate) fn fault(&self, operation: &str) -> Option<Fault> {
        if self.faults.is_empty() {
            return None;
        }
        let fault = self
            .faults
            .get(operation)
            .or_else(|| self.faults.get("*"))?;
        (fault.percent >= 100 || fastrand::u8(0..100) < fault.percent).then_some(*fault)
    }

    /// Another limit in the place of an earlier one.
    pub(crate) fn set_limit(&mut self, policy: &str, value: Option<&str>, limit: &Limit) {
        self.limits
            .retain(|change| change.policy != policy || change.value.as_deref() != value);
        self.limits.push(LimitChange {
            policy: policy.to_owned(),
            value: value.map(str::to_owned),
            limit: limit.to_string(),
        });
    }
}
