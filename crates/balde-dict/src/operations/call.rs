//! A resolved request: its operation, its participant and its payer.

use std::borrow::Cow;
use std::fmt;

use balde_policy::{Headers, Request};

use super::{KeyType, Operation, PAYER_HEADER, PayerKind, RequestError};

/// A request of a known operation, with everything that could be read from it.
///
/// If something is wrong with the request, there is an [`error`](Call::error), and
/// [`request`](Call::request) has the parts that are valid: a list request that lacks a parameter
/// still counts for its participant.
pub struct Call<'r> {
    pub(super) operation: Operation,
    pub(super) path: Cow<'r, str>,
    /// The method and path by which policies count it, if not its own.
    pub(super) counted_as: Option<(&'static str, &'static str)>,
    pub(super) query: &'r str,
    pub(super) headers: CallHeaders<'r>,
    pub(super) participant: Option<Cow<'r, str>>,
    pub(super) payer: Option<(&'r str, PayerKind)>,
    pub(super) end_to_end_id: Option<&'r str>,
    pub(super) key: Option<(Cow<'r, str>, KeyType)>,
    pub(super) error: Option<RequestError>,
}

impl Call<'_> {
    /// The operation.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The participant that sent the request.
    pub fn participant(&self) -> Option<&str> {
        self.participant.as_deref()
    }

    /// The payer of a getEntry.
    pub fn payer(&self) -> Option<&str> {
        self.payer.map(|(payer, _)| payer)
    }

    /// Whether the payer is a person or a company.
    pub fn payer_kind(&self) -> Option<PayerKind> {
        self.payer.map(|(_, kind)| kind)
    }

    /// The payment that a getEntry belongs to.
    pub fn end_to_end_id(&self) -> Option<&str> {
        self.end_to_end_id
    }

    /// The Pix key in the path, decoded once.
    pub fn key(&self) -> Option<&str> {
        self.key.as_ref().map(|(key, _)| &**key)
    }

    /// The type of the [`key`](Call::key).
    pub fn key_type(&self) -> Option<KeyType> {
        self.key.as_ref().map(|(_, key_type)| *key_type)
    }

    /// The first error that DICT would find in the request, if there is one.
    pub fn error(&self) -> Option<RequestError> {
        self.error
    }

    /// The parts of the request that the policy engine needs. An invalid payer is left out.
    pub fn request(&self) -> Request<'_> {
        // A funds-recovery operation may be counted as another one is.
        let own = (self.operation.method(), &*self.path);
        let counted_as: Option<(&str, &str)> = self.counted_as;
        let (method, path) = counted_as.unwrap_or(own);
        let mut request = Request::new(method, path, self.query);
        request.headers = &self.headers;
        request.participant = self.participant();
        request.user = self.payer();
        request
    }
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Payer and key are personal data, which does not belong in logs.
        f.debug_struct("Call")
            .field("operation", &self.operation.as_str())
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

/// The headers of a request, without an invalid payer.
pub(super) struct CallHeaders<'r> {
    pub(super) all: &'r dyn Headers,
    pub(super) payer: Option<&'r str>,
}

impl Headers for CallHeaders<'_> {
    fn value_of(&self, name: &str) -> Option<&str> {
        if name.eq_ignore_ascii_case(PAYER_HEADER) {
            return self.payer;
        }
        self.all.value_of(name)
    }

    fn values_differ(&self, name: &str) -> bool {
        self.all.values_differ(name)
    }
}
