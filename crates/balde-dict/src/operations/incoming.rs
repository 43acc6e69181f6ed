//! What is known of a request when its buckets are looked for.

use balde_policy::Headers;

/// Who is asking.
pub const PARTICIPANT_HEADER: &str = "PI-RequestingParticipant";
/// For whom.
pub const PAYER_HEADER: &str = "PI-PayerId";
/// For which payment.
pub const END_TO_END_ID_HEADER: &str = "PI-EndToEndId";

/// The longest query that is read.
pub const QUERY_BYTES_MAX: usize = 8_192;

/// What is known of a request besides its route.
#[derive(Clone, Copy)]
pub struct Incoming<'r> {
    pub(super) query: &'r str,
    pub(super) headers: &'r dyn Headers,
    pub(super) body_participant: Option<&'r str>,
    pub(super) certificate: Option<&'r str>,
}

impl<'r> Incoming<'r> {
    /// The raw query, without its question mark, and the headers.
    pub fn new(query: &'r str, headers: &'r dyn Headers) -> Self {
        Self {
            query,
            headers,
            body_participant: None,
            certificate: None,
        }
    }

    /// The participant that a write's body names.
    pub fn with_body_participant(self, participant: Option<&'r str>) -> Self {
        Self {
            body_participant: participant,
            ..self
        }
    }

    /// The participant that the caller's certificate names.
    pub fn with_certificate(self, participant: Option<&'r str>) -> Self {
        Self {
            certificate: participant,
            ..self
        }
    }
}

/// The headers of an HTTP request.
#[derive(Clone, Copy, Debug)]
pub struct HttpHeaders<'h>(pub &'h http::HeaderMap);

impl Headers for HttpHeaders<'_> {
    fn value_of(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.to_str().ok()
    }

    fn values_differ(&self, name: &str) -> bool {
        let mut values = self.0.get_all(name).iter();
        let first = values.next();
        values.any(|value| Some(value) != first)
    }
}
