//! The participant and the payer of a request, and what is wrong with it.

use std::borrow::Cow;

use balde_policy::{percent_decoded, query_pairs};

use super::call::{Call, CallHeaders};
use super::route::Route;
use super::table::Table;
use super::{
    END_TO_END_ID_HEADER, Incoming, KeyType, Operation, PARTICIPANT_HEADER, PAYER_HEADER,
    ParticipantFrom, PayerKind, QUERY_BYTES_MAX, RequestError,
};
use crate::settings::FundsRecoveryPolicy;
use crate::wire::formats::canonical_ispb;

impl Table {
    /// Finds the participant and the payer of a request, and what is wrong with it.
    pub fn resolve<'r>(&self, route: &Route<'r>, incoming: &Incoming<'r>) -> Call<'r> {
        let operation = route.operation();
        let mut call = Call {
            operation,
            path: route.canonical_path(),
            counted_as: self.counted_as(operation),
            query: incoming.query,
            headers: CallHeaders {
                all: incoming.headers,
                payer: None,
            },
            participant: None,
            payer: None,
            end_to_end_id: None,
            key: None,
            error: None,
        };
        if incoming.query.len() > QUERY_BYTES_MAX {
            call.error = Some(RequestError::QueryTooLong);
            return call;
        }
        let mut errors = First(None);
        call.participant = errors.or(self.participant(operation, incoming));
        if operation == Operation::GetEntry {
            call.payer = errors.or(self.payer(incoming));
            call.headers.payer = call.payer.map(|(payer, _)| payer);
            call.end_to_end_id = errors.or(self.end_to_end_id(incoming));
        }
        if operation == Operation::GetEntryInitiator {
            call.payer = errors.or(self.payer(incoming));
            call.headers.payer = call.payer.map(|(payer, _)| payer);
        }
        if operation.has_key() {
            call.key = errors.or(self.key(route));
        }
        errors.or(Self::other_needs(route, incoming));
        call.error = errors.0;
        call
    }

    /// The operation that counts a funds-recovery operation, if the settings name one.
    fn counted_as(&self, operation: Operation) -> Option<(&'static str, &'static str)> {
        if !operation.is_funds_recovery() {
            return None;
        }
        let is_read = operation.method() == "GET";
        match (self.settings().funds_recovery_policy, is_read) {
            (FundsRecoveryPolicy::Uncounted, _) => None,
            (FundsRecoveryPolicy::InfractionReports, true) => {
                Some(("GET", "/infraction-reports/-"))
            }
            (FundsRecoveryPolicy::InfractionReports, false) => {
                Some(("POST", "/infraction-reports/"))
            }
            (FundsRecoveryPolicy::Refunds, true) => Some(("GET", "/refunds/-")),
            (FundsRecoveryPolicy::Refunds, false) => Some(("POST", "/refunds/")),
        }
    }

    fn participant<'r>(
        &self,
        operation: Operation,
        incoming: &Incoming<'r>,
    ) -> Result<Cow<'r, str>, RequestError> {
        let header = || self.ispb_header(incoming).map(canonical_ispb);
        let query = || {
            let name = "Participant";
            let value = query_value(incoming, name)?.ok_or(RequestError::MissingParameter(name))?;
            let has_letters = value.bytes().any(|byte| !byte.is_ascii_digit());
            if self.is_ispb(&value) && !(has_letters && operation.has_numeric_participant()) {
                Ok(canonical(value))
            } else {
                Err(RequestError::InvalidParameter(name))
            }
        };
        let named = |participant: Option<&'r str>| {
            let participant = participant.ok_or(RequestError::MissingParticipant)?;
            if self.is_ispb(participant) {
                Ok(canonical_ispb(participant))
            } else {
                Err(RequestError::InvalidParticipant)
            }
        };
        match operation.participant() {
            ParticipantFrom::Header => header(),
            ParticipantFrom::Query => query(),
            ParticipantFrom::HeaderOrQuery => match (query(), header()) {
                (Err(RequestError::MissingParameter(_)), Err(missing)) => {
                    let is_missing = matches!(missing, RequestError::MissingHeader(_));
                    let caller = incoming.certificate.filter(|_| is_missing);
                    caller.map(canonical_ispb).ok_or(missing)
                }
                (Err(RequestError::MissingParameter(_)), found) => found,
                (named, _) => named,
            },
            ParticipantFrom::Body => named(incoming.body_participant),
            ParticipantFrom::Certificate => {
                named(incoming.certificate.or(incoming.body_participant))
            }
        }
    }

    fn ispb_header<'r>(&self, incoming: &Incoming<'r>) -> Result<&'r str, RequestError> {
        let value = header(incoming, PARTICIPANT_HEADER)?;
        if self.is_ispb(value) {
            Ok(value)
        } else {
            Err(RequestError::InvalidHeader(PARTICIPANT_HEADER))
        }
    }

    fn payer<'r>(&self, incoming: &Incoming<'r>) -> Result<(&'r str, PayerKind), RequestError> {
        let payer = header(incoming, PAYER_HEADER)?;
        let kind = self.payer_kind(payer);
        let kind = kind.ok_or(RequestError::InvalidHeader(PAYER_HEADER))?;
        Ok((payer, kind))
    }

    fn end_to_end_id<'r>(&self, incoming: &Incoming<'r>) -> Result<&'r str, RequestError> {
        let id = header(incoming, END_TO_END_ID_HEADER)?;
        if self.is_end_to_end_id(id) {
            Ok(id)
        } else {
            Err(RequestError::InvalidHeader(END_TO_END_ID_HEADER))
        }
    }

    fn key<'r>(&self, route: &Route<'r>) -> Result<(Cow<'r, str>, KeyType), RequestError> {
        let key = percent_decoded(route.raw_segment()).ok_or(RequestError::InvalidKey)?;
        let key_type = self.key_type(&key).ok_or(RequestError::InvalidKey)?;
        Ok((key, key_type))
    }

    /// Checks what only single operations need.
    fn other_needs(route: &Route<'_>, incoming: &Incoming<'_>) -> Result<(), RequestError> {
        match route.operation() {
            Operation::GetPersonStatistics | Operation::GetOwnerStatistics => {
                let id = percent_decoded(route.raw_segment()).ok_or(RequestError::InvalidTaxId)?;
                if !is_tax_id_parameter(&id) {
                    return Err(RequestError::InvalidTaxId);
                }
            }
            Operation::ListFraudMarkers => {
                let name = "TaxIdNumber";
                let id =
                    query_value(incoming, name)?.ok_or(RequestError::MissingParameter(name))?;
                if !is_tax_id_parameter(&id) {
                    return Err(RequestError::InvalidParameter(name));
                }
            }
            Operation::ListCidSetEvents => {
                let name = "KeyType";
                let text =
                    query_value(incoming, name)?.ok_or(RequestError::MissingParameter(name))?;
                KeyType::parse(&text).ok_or(RequestError::InvalidParameter(name))?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// A tax number in a path or query: the published pattern has 11 to 14 digits.
fn is_tax_id_parameter(text: &str) -> bool {
    (11..=14).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A participant in its canonical spelling, by which it is counted.
fn canonical(participant: Cow<'_, str>) -> Cow<'_, str> {
    match participant {
        Cow::Borrowed(text) => canonical_ispb(text),
        Cow::Owned(text) => Cow::Owned(canonical_ispb(&text).into_owned()),
    }
}

/// The first error of several.
struct First(Option<RequestError>);

impl First {
    fn or<T>(&mut self, result: Result<T, RequestError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.0.get_or_insert(error);
                None
            }
        }
    }
}

fn header<'r>(incoming: &Incoming<'r>, name: &'static str) -> Result<&'r str, RequestError> {
    let value = incoming.headers.value_of(name);
    let value = value.filter(|value| !value.is_empty());
    let value = value.ok_or(RequestError::MissingHeader(name))?;
    if incoming.headers.values_differ(name) {
        return Err(RequestError::AmbiguousHeader(name));
    }
    Ok(value)
}

/// The value of a query parameter that has to be unambiguous.
fn query_value<'r>(
    incoming: &Incoming<'r>,
    name: &'static str,
) -> Result<Option<Cow<'r, str>>, RequestError> {
    let mut found: Option<Cow<'r, str>> = None;
    for (other, value) in query_pairs(incoming.query) {
        if other != name {
            continue;
        }
        if found.as_ref().is_some_and(|found| *found != value) {
            return Err(RequestError::AmbiguousParameter(name));
        }
        found = Some(value);
    }
    Ok(found.filter(|value| !value.is_empty()))
}
