//! Who may speak for which participant, and who pays for a request that names none.

use balde_dict::wire::formats::canonical_ispb;
use balde_dict::{END_TO_END_ID_HEADER, PARTICIPANT_HEADER, PAYER_HEADER, RequestError};
use balde_policy::query_pairs;
use http::request::Parts;

use super::DictRefusal;
use crate::config::DictConfig;
use crate::limits::Caller;

/// The participants that a caller may speak for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Callers<'c> {
    config: &'c DictConfig,
    caller: &'c Caller,
}

impl<'c> Callers<'c> {
    pub(super) fn new(config: &'c DictConfig, caller: &'c Caller) -> Self {
        Self { config, caller }
    }

    /// Whether the caller may speak for a participant of this gateway: one that the file binds its
    /// certificate to, or that the certificate names. Without either, and if the file binds no
    /// certificate at all, every caller may speak for every participant.
    pub(super) fn may_speak_for(&self, participant: &str) -> bool {
        if !self
            .config
            .participants
            .iter()
            .any(|own| own == participant)
        {
            return false;
        }
        let certificate = self.caller.certificate.as_ref();
        let is_bound = certificate.is_some_and(|certificate| {
            let mut bound = self.config.certificates.iter();
            bound.any(|(own, fingerprints)| {
                own == participant && fingerprints.contains(&certificate.fingerprint)
            })
        });
        match certificate.and_then(|certificate| certificate.ispb.as_deref()) {
            Some(ispb) => is_bound || canonical_ispb(ispb) == participant,
            None => is_bound || self.config.certificates.is_empty(),
        }
    }

    /// Refuses a request that names a participant that the caller may not speak for, in the header, in
    /// the query or in the body, whichever DICT reads.
    pub(super) fn check(&self, parts: &Parts, in_body: Option<&str>) -> Result<(), DictRefusal> {
        let in_header = parts.headers.get_all(PARTICIPANT_HEADER).iter();
        let in_header = in_header.filter_map(|value| value.to_str().ok());
        let query = parts.uri.query().unwrap_or_default();
        for named in in_header.chain(in_body) {
            self.check_one(named)?;
        }
        for (name, value) in query_pairs(query) {
            if name == "Participant" {
                self.check_one(&value)?;
            }
        }
        Ok(())
    }

    fn check_one(&self, named: &str) -> Result<(), DictRefusal> {
        if named.is_empty() || self.may_speak_for(&canonical_ispb(named)) {
            return Ok(());
        }
        Err(forbidden())
    }
}

/// The refusal of a caller that speaks for somebody else.
pub(super) fn forbidden() -> DictRefusal {
    DictRefusal::Invalid {
        status: 403,
        detail: "the caller may not speak for this participant here".to_owned(),
    }
}

/// Refuses a request with two values of a header by which DICT counts it.
pub(super) fn check_single(parts: &Parts) -> Result<(), DictRefusal> {
    for name in [PARTICIPANT_HEADER, PAYER_HEADER, END_TO_END_ID_HEADER] {
        if parts.headers.get_all(name).iter().nth(1).is_some() {
            return Err(invalid(RequestError::AmbiguousHeader(name)));
        }
    }
    Ok(())
}

pub(super) fn invalid(error: RequestError) -> DictRefusal {
    DictRefusal::Invalid {
        status: error.status(),
        detail: error.detail(),
    }
}

/// Refuses a request whose payer cannot be counted, though DICT might accept it.
pub(super) fn check_payer(error: Option<RequestError>) -> Result<(), DictRefusal> {
    match error {
        Some(
            error @ (RequestError::InvalidHeader(PAYER_HEADER) | RequestError::AmbiguousHeader(_)),
        ) => Err(invalid(error)),
        _ => Ok(()),
    }
}
