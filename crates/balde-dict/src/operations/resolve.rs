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

impl Table {
    /// Finds the participant and the payer of a request, and what is wrong with it.
    pub fn resolve<'r>(&self, route: &Route<'r>, incoming: &Incoming<'r>) -> Call<'r> {
        let operation = route.operation();
        let mut call = Call {
            operation,
            path: route.canonical_path(),
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
        call.participant = errors.or(self.participant(operation.participant(), incoming));
        if operation == Operation::GetEntry {
            call.payer = errors.or(self.payer(incoming));
            call.headers.payer = call.payer.map(|(payer, _)| payer);
            call.end_to_end_id = errors.or(self.end_to_end_id(incoming));
        }
        if operation.has_key() {
            call.key = errors.or(self.key(route));
        }
        errors.or(self.other_needs(route, incoming));
        call.error = errors.0;
        call
    }

    fn participant<'r>(
        &self,
        from: ParticipantFrom,
        incoming: &Incoming<'r>,
    ) -> Result<Cow<'r, str>, RequestError> {
        let header = || self.ispb_header(incoming).map(Cow::Borrowed);
        let query = || {
            let name = "Participant";
            let value = query_value(incoming, name)?.ok_or(RequestError::MissingParameter(name))?;
            if self.is_ispb(&value) {
                Ok(value)
            } else {
                Err(RequestError::InvalidParameter(name))
            }
        };
        let named = |participant: Option<&'r str>| {
            let participant = participant.ok_or(RequestError::MissingParticipant)?;
            if self.is_ispb(participant) {
                Ok(Cow::Borrowed(participant))
            } else {
                Err(RequestError::InvalidParticipant)
            }
        };
        match from {
            ParticipantFrom::Header => header(),
            ParticipantFrom::Query => query(),
            ParticipantFrom::HeaderOrQuery => match header() {
                Err(missing @ RequestError::MissingHeader(_)) => match query() {
                    Err(RequestError::MissingParameter(_)) => Err(missing),
                    other => other,
                },
                other => other,
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
    fn other_needs(&self, route: &Route<'_>, incoming: &Incoming<'_>) -> Result<(), RequestError> {
        match route.operation() {
            Operation::GetPersonStatistics => {
                let id = percent_decoded(route.raw_segment()).ok_or(RequestError::InvalidTaxId)?;
                self.payer_kind(&id).ok_or(RequestError::InvalidTaxId)?;
            }
            Operation::ListFraudMarkers => {
                let name = "TaxIdNumber";
                let id =
                    query_value(incoming, name)?.ok_or(RequestError::MissingParameter(name))?;
                self.payer_kind(&id)
                    .ok_or(RequestError::InvalidParameter(name))?;
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
