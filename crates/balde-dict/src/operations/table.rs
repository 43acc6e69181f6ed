//! Operations and policies together.

use std::borrow::Cow;

use balde_core::Limit;
use balde_core::policy::{
    ByVariant, Part, Policy, Request, Rule, Shape, percent_decoded, query_pairs,
};
use balde_core::profile::{Problem, Profile, ProfileError};

use super::call::{BucketKey, Call, DRAWS_MAX, Draw, Draws};
use super::route::{self, PATH_BYTES_MAX, Route};
use super::{
    Category, END_TO_END_ID_HEADER, Fault, Incoming, KeyType, Operation, PARTICIPANT_HEADER,
    PAYER_HEADER, ParticipantFrom, PayerKind, QUERY_BYTES_MAX, RouteError,
};
use crate::settings::Settings;

/// The event that gives tokens back.
const PAYMENT_ORDER: &str = "payment-order";

/// DICT's operations with the policies of a profile.
#[derive(Clone, Debug)]
pub struct Table {
    profile: Profile,
    settings: Settings,
    shapes: Shapes,
    /// By operation: the rules that its method and path fit.
    candidates: Vec<Vec<Candidate>>,
}

/// A rule of a policy, for requests of one operation.
#[derive(Clone, Debug)]
struct Candidate {
    policy: usize,
    details: Details,
}

/// What has to hold besides method and path.
#[derive(Clone, Debug)]
enum Details {
    Nothing,
    /// The key has one of these types.
    KeyTypes(u8),
    Rule(Box<Rule>),
}

#[derive(Clone, Debug)]
struct Shapes {
    keys: [Shape; 5],
    ispb: Shape,
    end_to_end_id: Shape,
}

impl Table {
    /// Puts a DICT profile together with the operations, or tells what does not fit.
    pub fn new(profile: Profile) -> Result<Self, ProfileError> {
        let mut problems = Vec::new();
        let settings = match Settings::of(&profile) {
            Ok(settings) => Some(settings),
            Err(error) => {
                problems.extend_from_slice(error.problems());
                None
            }
        };
        let shapes = Shapes::of(&profile, &mut problems);
        let candidates = candidates(&profile, &mut problems);
        if profile.api() != Some("dict") {
            problems.push(Problem::new(
                None,
                "not a DICT profile: it needs `api = \"dict\"`",
            ));
        }
        match (ProfileError::of(problems), settings, shapes) {
            (None, Some(settings), Some(shapes)) => Ok(Self {
                profile,
                settings,
                shapes,
                candidates,
            }),
            (Some(error), ..) => Err(error),
            (None, ..) => unreachable!("what is missing is told as a problem"),
        }
    }

    /// The profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The profile's answers to open questions.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A policy by its index in the profile.
    pub fn policy(&self, index: usize) -> &Policy {
        &self.profile.policies()[index]
    }

    /// The index of a policy by its name.
    pub fn policy_index(&self, name: &str) -> Option<usize> {
        let policies = self.profile.policies();
        policies.iter().position(|policy| policy.name() == name)
    }

    /// The limit of a bucket, for a participant of this category. Nothing when the profile does not
    /// have the category.
    pub fn limit(&self, draw: &Draw, category: Category) -> Option<&Limit> {
        self.limit_of(draw.policy(), category, draw.payer_kind())
    }

    /// The limit of a policy for a participant of this category and, where it counts payers, one of
    /// this kind.
    pub fn limit_of(
        &self,
        policy: usize,
        category: Category,
        payer: Option<PayerKind>,
    ) -> Option<&Limit> {
        let limits = self.policy(policy).limits();
        limits.get(value_of(limits, &category, payer))
    }

    /// The tokens that a payment order gives back to a bucket.
    pub fn credit(&self, draw: &Draw, category: Category) -> u64 {
        self.credit_of(draw.policy(), category, draw.payer_kind())
    }

    /// The tokens that a payment order gives back under a policy.
    pub fn credit_of(&self, policy: usize, category: Category, payer: Option<PayerKind>) -> u64 {
        let mut credits = self.policy(policy).credits().iter();
        let credit = credits.find(|credit| credit.event() == PAYMENT_ORDER);
        let tokens = credit.and_then(|credit| {
            let tokens = credit.tokens();
            tokens.get(value_of(tokens, &category, payer))
        });
        tokens.copied().unwrap_or(0)
    }

    /// The type of a decoded key, by its shape.
    pub fn key_type(&self, key: &str) -> Option<KeyType> {
        let shapes = KeyType::ALL.into_iter().zip(&self.shapes.keys);
        let mut fitting = shapes.filter(|(_, shape)| shape.matches(key));
        fitting.next().map(|(key_type, _)| key_type)
    }

    /// Whether a payer is a person or a company, by its form.
    pub fn payer_kind(&self, payer: &str) -> Option<PayerKind> {
        let [cpf, cnpj, ..] = &self.shapes.keys;
        if cpf.matches(payer) {
            return Some(PayerKind::Pf);
        }
        cnpj.matches(payer).then_some(PayerKind::Pj)
    }

    /// Whether a text has the form of a participant's number.
    pub fn is_ispb(&self, text: &str) -> bool {
        self.shapes.ispb.matches(text)
    }

    /// Whether a text has the form of an `EndToEndId`.
    pub fn is_end_to_end_id(&self, text: &str) -> bool {
        self.shapes.end_to_end_id.matches(text)
    }

    /// The operation of a method and a raw path, base path included.
    pub fn route<'r>(&self, method: &str, path: &'r str) -> Result<Route<'r>, RouteError> {
        if path.len() > PATH_BYTES_MAX {
            return Err(RouteError::PathTooLong);
        }
        let below = self.profile.without_base(path);
        let below = below.ok_or(RouteError::OutsideBase)?;
        route::route(method, below, self.settings.trailing_slash_optional)
    }

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
                Details::Rule(rule) => {
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
                Part::Participant => key.with(call.participant()?)?,
                Part::Constant(text) => key.with(text)?,
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

fn value_of<'c, T>(
    amounts: &ByVariant<T>,
    category: &'c Category,
    payer: Option<PayerKind>,
) -> Option<&'c str> {
    match amounts.variant()? {
        "category" => Some(category.as_str()),
        _ => payer.map(PayerKind::as_str),
    }
}

impl Shapes {
    fn of(profile: &Profile, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut named = |name: &str| {
            let shape = profile.shape(name).cloned();
            if shape.is_none() {
                let reason = format!("[shapes] of a DICT profile needs `{name}`");
                problems.push(Problem::new(None, reason));
            }
            shape
        };
        let keys = KeyType::ALL.map(|key_type| named(key_type.as_str()));
        let (ispb, end_to_end_id) = (named("ISPB"), named("END-TO-END-ID"));
        let [Some(cpf), Some(cnpj), Some(phone), Some(email), Some(evp)] = keys else {
            return None;
        };
        Some(Self {
            keys: [cpf, cnpj, phone, email, evp],
            ispb: ispb?,
            end_to_end_id: end_to_end_id?,
        })
    }
}

/// For each operation the rules that its method and path fit.
fn candidates(profile: &Profile, problems: &mut Vec<Problem>) -> Vec<Vec<Candidate>> {
    let mut candidates = vec![Vec::new(); Operation::ALL.len()];
    for (index, policy) in profile.policies().iter().enumerate() {
        let mut refuse = |reason: &str| {
            let reason = format!("policy {}: {reason}", policy.name());
            problems.push(Problem::new(None, reason));
        };
        let is_known = |part: &Part| match part {
            Part::Participant | Part::User => true,
            Part::Constant(text) => text.len() <= 16,
            Part::Header(name) => name.eq_ignore_ascii_case(PAYER_HEADER),
            Part::Query(_) | Part::Path(_) => false,
        };
        if !policy.scope().parts().iter().all(is_known) || policy.scope().parts().len() > 3 {
            refuse("DICT's buckets belong to `participant` and `header:PI-PayerId`");
        }
        let variant = policy.limits().variant();
        if !matches!(variant, None | Some("category" | "payer")) {
            refuse("DICT's limits vary by `category` or `payer`");
        }
        if policy.rules().is_empty() {
            refuse("it matches everything; DICT's policies name their operations");
        }
        for rule in policy.rules() {
            let mut is_used = false;
            for operation in Operation::ALL {
                // A segment that fits every hole, so that only the form of the path matters.
                let sample = sample_path(*operation);
                if rule.matches_route(operation.method(), &sample) {
                    is_used = true;
                    let details = details(rule);
                    candidates[*operation as usize].push(Candidate {
                        policy: index,
                        details,
                    });
                }
            }
            if !is_used {
                let path = rule.path().map_or("", |path| path.as_str());
                refuse(&format!("no operation of DICT has {path} with its methods"));
            }
        }
    }
    for (operation, list) in Operation::ALL.iter().zip(&candidates) {
        let mut policies: Vec<usize> = list.iter().map(|one| one.policy).collect();
        policies.dedup();
        if policies.len() > DRAWS_MAX {
            let name = operation.as_str();
            let reason = format!("{name} would draw on more than {DRAWS_MAX} buckets");
            problems.push(Problem::new(None, reason));
        }
    }
    candidates
}

fn sample_path(operation: Operation) -> String {
    let segments = operation.path().split('/').map(|segment| {
        if segment.starts_with('{') {
            "any"
        } else {
            segment
        }
    });
    segments.collect::<Vec<_>>().join("/")
}

fn details(rule: &Rule) -> Details {
    let Some((part, shapes)) = rule.shaped() else {
        return if rule.has_conditions() {
            Details::Rule(Box::new(rule.clone()))
        } else {
            Details::Nothing
        };
    };
    let types = shapes.iter().map(|(name, _)| KeyType::parse(name));
    let types: Option<Vec<KeyType>> = types.collect();
    match (part, types) {
        (Part::Path(name), Some(types)) if **name == *"Key" && !rule.has_conditions() => {
            Details::KeyTypes(types.iter().fold(0, |bits, one| bits | one.bit()))
        }
        _ => Details::Rule(Box::new(rule.clone())),
    }
}
