//! The parts of a DICT request that are read besides its route.

use balde_policy::Headers;

/// The header that names the participant that sent the request.
pub const PARTICIPANT_HEADER: &str = "PI-RequestingParticipant";
/// The header that names the payer of a lookup.
pub const PAYER_HEADER: &str = "PI-PayerId";
/// The header that names the payment that a lookup belongs to.
pub const END_TO_END_ID_HEADER: &str = "PI-EndToEndId";

/// The longest query that is read, in bytes.
pub const QUERY_BYTES_MAX: usize = 8_192;

/// The parts of a request that are read besides its route.
#[derive(Clone, Copy)]
pub struct Incoming<'r> {
    pub(super) query: &'r str,
    pub(super) headers: &'r dyn Headers,
    pub(super) body_participant: Option<&'r str>,
    pub(super) certificate: Option<&'r str>,
}

impl<'r> Incoming<'r> {
    /// Creates it from the raw query, without its question mark, and the headers.
    pub fn new(query: &'r str, headers: &'r dyn Headers) -> Self {
        Self {
            query,
            headers,
            body_participant: None,
            certificate: None,
        }
    }

    /// Sets the participant that the request body names. Only write operations have a body.
    pub fn with_body_participant(self, participant: Option<&'r str>) -> Self {
        Self {
            body_participant: participant,
            ..self
        }
    }

    /// Sets the participant that the client's certificate names.
    pub fn with_certificate(self, participant: Option<&'r str>) -> Self {
        Self {
            certificate: participant,
            ..self
        }
    }
}
