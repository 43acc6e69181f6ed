//! Environment variables: of limited length, Unicode, and unset when empty.

use std::ffi::OsString;
use std::fmt;

use crate::diagnostic::Diagnostics;
use crate::document::Located;

/// The longest value of an environment variable, in bytes.
pub const VARIABLE_BYTES_MAX: usize = 4_096;

/// Why the value of an environment variable cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VariableError {
    /// The value is not Unicode.
    #[error("the value is not Unicode")]
    NotUnicode,
    /// The value has more than [`VARIABLE_BYTES_MAX`] bytes.
    #[error("the value has more than {VARIABLE_BYTES_MAX} bytes")]
    TooLong,
}

/// Reads environment variables through a function, so that tests need not change the process's.
#[derive(Clone, Copy)]
pub struct Environment<'e> {
    lookup: &'e dyn Fn(&str) -> Option<OsString>,
    is_assumed: bool,
}

/// Stands for secrets that are not there. It is long enough for every check of a secret's length.
const PLACEHOLDER: &str = "0123456789abcdef0123456789abcdef";

impl<'e> Environment<'e> {
    /// The environment that a function describes.
    pub fn new(lookup: &'e dyn Fn(&str) -> Option<OsString>) -> Self {
        Self {
            lookup,
            is_assumed: false,
        }
    }

    /// The environment of this process.
    pub fn of_process() -> Environment<'static> {
        Environment {
            lookup: &|name| std::env::var_os(name),
            is_assumed: false,
        }
    }

    /// The environment of a machine that is not this one, to validate a file without its secrets: no
    /// variable is read, those that the file names have placeholders, and files that hold keys and
    /// certificates may be missing. What was read with it cannot be run.
    pub fn assumed() -> Environment<'static> {
        Environment {
            lookup: &|_| None,
            is_assumed: true,
        }
    }

    /// Returns true for [`Environment::assumed`].
    pub const fn is_assumed(&self) -> bool {
        self.is_assumed
    }

    /// Returns the value of a variable; one that is empty or blank counts as unset.
    pub fn get(&self, variable: &str) -> Result<Option<String>, VariableError> {
        let Some(value) = (self.lookup)(variable) else {
            return Ok(None);
        };
        let value = value.into_string().map_err(|_| VariableError::NotUnicode)?;
        if value.len() > VARIABLE_BYTES_MAX {
            return Err(VariableError::TooLong);
        }
        Ok(Some(value).filter(|value| !value.trim().is_empty()))
    }

    /// Returns the value of a variable that the program knows by name. Problems are reported at the
    /// variable.
    pub fn read(&self, variable: &str, diagnostics: &mut Diagnostics) -> Option<String> {
        match self.get(variable) {
            Ok(value) => value,
            Err(error) => {
                diagnostics.in_variable(variable, error.to_string());
                None
            }
        }
    }

    /// Returns the value of a variable that a file names. Problems, and a variable that is unset,
    /// are reported at its name in the file. The message does not repeat the name: people write the
    /// secret itself there by mistake.
    pub fn read_named(
        &self,
        variable: &Located<&str>,
        diagnostics: &mut Diagnostics,
    ) -> Option<String> {
        if self.is_assumed {
            return Some(PLACEHOLDER.to_owned());
        }
        let problem = match self.get(variable.value) {
            Ok(Some(value)) => return Some(value),
            Ok(None) => {
                "the environment variable that is named here is not set, or empty; write the \
                         name of a variable, not its value, and set the variable"
                    .to_owned()
            }
            Err(error) => format!("the environment variable that is named here: {error}"),
        };
        diagnostics.at(variable.span, problem);
        None
    }
}

impl fmt::Debug for Environment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").finish_non_exhaustive()
    }
}
