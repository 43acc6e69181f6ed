//! Versions of the API whose messages differ.

/// A version of the API whose messages differ from the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiVersion {
    /// Version 1, as of 1.8.0.
    V1,
    /// Version 2, as of 2.12.1.
    V2,
}

impl ApiVersion {
    /// What the type URIs of errors begin with.
    pub(crate) fn error_base(self) -> &'static str {
        match self {
            Self::V1 => balde_dict::wire::ERROR_BASE_V1,
            Self::V2 => balde_dict::wire::ERROR_BASE,
        }
    }
}
