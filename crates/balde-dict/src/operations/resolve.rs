//! Who is asking, for whom, what is wrong, and which buckets a request draws on.

use std::borrow::Cow;

use balde_policy::{KeyPart, Request, percent_decoded, query_pairs};

use super::call::{BucketKey, Call, Draw, Draws};
use super::route::Route;
use super::table::{Details, Table};
use super::{
    END_TO_END_ID_HEADER, Fault, Incoming, KeyType, Operation, PARTICIPANT_HEADER, PAYER_HEADER,
    ParticipantFrom, PayerKind, QUERY_BYTES_MAX,
};

impl Table {
    /// Who is asking, for whom, what is wrong, and which buckets the request draws on.
    pub fn resolve<'r>(&self, route: &Route<'r>, incoming: &Incoming<'r>) -> Call<'r> {
        let operation = route.operation();
        let mut call = Call {
            operation,
            participant: None,
            payer: None,
            end_to_end_id: None,
            key: None,
            fault: None,
            draws: Draws::new(),
        };
        if incoming.query.len() > QUERY_BYTES_MAX {
            call.fault = Some(Fault::QueryTooLong);
            return call;
        }
        let mut faults = First(None);
        call.participant = faults.or(self.participant(operation.participant(), incoming));
        if operation == Operation::GetEntry {
            call.payer = faults.or(self.payer(incoming));
            call.end_to_end_id = faults.or(self.end_to_end_id(incoming));
        }
        if operation.has_key() {
            call.key = faults.or(self.key(route));
        }
        faults.or(self.other_needs(route, incoming));
        call.fault = faults.0;
        call.draws = self.draws(route, incoming, &call);
        call
    }

    fn participant<'r>(
        &self,
        from: ParticipantFrom,
        incoming: &Incoming<'r>,
    ) -> Result<Cow<'r, str>, Fault> {
        let header = || self.ispb_header(incoming).map(Cow::Borrowed);
        let query = || {
            let name = "Participant";
            let value = query_value(incoming, name)?.ok_or(Fault::MissingParameter(name))?;
            if self.is_ispb(&value) {
                Ok(value)
            } else {
                Err(Fault::InvalidParameter(name))
            }
        };
        let named = |participant: Option<&'r str>| {
            let participant = participant.ok_or(Fault::MissingParticipant)?;
            if self.is_ispb(participant) {
                Ok(Cow::Borrowed(participant))
            } else {
                Err(Fault::InvalidParticipant)
            }
        };
        match from {
            ParticipantFrom::Header => header(),
            ParticipantFrom::Query => query(),
            ParticipantFrom::HeaderOrQuery => match header() {
                Err(missing @ Fault::MissingHeader(_)) => match query() {
                    Err(Fault::MissingParameter(_)) => Err(missing),
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

    fn ispb_header<'r>(&self, incoming: &Incoming<'r>) -> Result<&'r str, Fault> {
        let value = header(incoming, PARTICIPANT_HEADER)?;
        if self.is_ispb(value) {
            Ok(value)
        } else {
            Err(Fault::InvalidHeader(PARTICIPANT_HEADER))
        }
    }

    fn payer<'r>(&self, incoming: &Incoming<'r>) -> Result<(&'r str, PayerKind), Fault> {
        let payer = header(incoming, PAYER_HEADER)?;
        let kind = self.payer_kind(payer);
        let kind = kind.ok_or(Fault::InvalidHeader(PAYER_HEADER))?;
        Ok((payer, kind))
    }

    fn end_to_end_id<'r>(&self, incoming: &Incoming<'r>) -> Result<&'r str, Fault> {
        let id = header(incoming, END_TO_END_ID_HEADER)?;
        if self.is_end_to_end_id(id) {
            Ok(id)
        } else {
            Err(Fault::InvalidHeader(END_TO_END_ID_HEADER))
        }
    }

    fn key<'r>(&self, route: &Route<'r>) -> Result<(Cow<'r, str>, KeyType), Fault> {
        let key = percent_decoded(route.raw_segment()).ok_or(Fault::InvalidKey)?;
        let key_type = self.key_type(&key).ok_or(Fault::InvalidKey)?;
        Ok((key, key_type))
    }

    /// What single operations need besides.
    fn other_needs(&self, route: &Route<'_>, incoming: &Incoming<'_>) -> Result<(), Fault> {
        match route.operation() {
            Operation::GetPersonStatistics => {
                let id = percent_decoded(route.raw_segment()).ok_or(Fault::InvalidTaxId)?;
                self.payer_kind(&id).ok_or(Fault::InvalidTaxId)?;
            }
            Operation::ListFraudMarkers => {
                let name = "TaxIdNumber";
                let id = query_value(incoming, name)?.ok_or(Fault::MissingParameter(name))?;
                self.payer_kind(&id).ok_or(Fault::InvalidParameter(name))?;
            }
            Operation::ListCidSetEvents => {
                let name = "KeyType";
                let text = query_value(incoming, name)?.ok_or(Fault::MissingParameter(name))?;
                KeyType::parse(&text).ok_or(Fault::InvalidParameter(name))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn draws(&self, route: &Route<'_>, incoming: &Incoming<'_>, call: &Call<'_>) -> Draws {
        let mut draws = Draws::new();
        let mut last = None;
        let key_bit = call.key_type().map_or(0, KeyType::bit);
        for candidate in &self.candidates[route.operation() as usize] {
            // A policy counts a request once, whichever of its rules match.
            if last == Some(candidate.policy) {
                continue;
            }
            let is_counted = match &candidate.details {
                Details::Nothing => true,
                Details::KeyTypes(types) => types & key_bit != 0,
                Details::MatchRule(rule) => {
                    let mut request =
                        Request::new(route.operation().method(), route.path(), incoming.query);
                    request.headers = incoming.headers;
                    request.participant = call.participant();
                    request.user = call.payer();
                    rule.matches_details(&request)
                }
            };
            if is_counted && let Some(draw) = self.draw(candidate.policy, call) {
                draws.push(draw);
                last = Some(candidate.policy);
            }
        }
        draws
    }

    /// The bucket of a policy, if the request says enough to tell it.
    fn draw(&self, policy: usize, call: &Call<'_>) -> Option<Draw> {
        let mut key = BucketKey::EMPTY;
        let mut kind = None;
        for part in self.policy(policy).scope().parts() {
            key = match part {
                KeyPart::Participant => key.with(call.participant()?)?,
                KeyPart::Constant(text) => key.with(text)?,
                _ => {
                    kind = call.payer_kind();
                    key.with(call.payer()?)?
                }
            };
        }
        if self.policy(policy).limits().variant() == Some("payer") {
            kind = Some(call.payer_kind()?);
        }
        Some(Draw::new(policy, kind, key))
    }
}

/// The first fault of several.
struct First(Option<Fault>);

impl First {
    fn or<T>(&mut self, result: Result<T, Fault>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(fault) => {
                self.0.get_or_insert(fault);
                None
            }
        }
    }
}

fn header<'r>(incoming: &Incoming<'r>, name: &'static str) -> Result<&'r str, Fault> {
    let value = incoming.headers.value_of(name);
    let value = value.filter(|value| !value.is_empty());
    let value = value.ok_or(Fault::MissingHeader(name))?;
    if incoming.headers.values_differ(name) {
        return Err(Fault::AmbiguousHeader(name));
    }
    Ok(value)
}

/// The value of a query parameter that has to be unambiguous.
fn query_value<'r>(
    incoming: &Incoming<'r>,
    name: &'static str,
) -> Result<Option<Cow<'r, str>>, Fault> {
    let mut found: Option<Cow<'r, str>> = None;
    for (other, value) in query_pairs(incoming.query) {
        if other != name {
            continue;
        }
        if found.as_ref().is_some_and(|found| *found != value) {
            return Err(Fault::AmbiguousParameter(name));
        }
        found = Some(value);
    }
    Ok(found.filter(|value| !value.is_empty()))
}
