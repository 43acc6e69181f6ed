//! The rules of a profile, sorted by operation once, so that requests need not look at all of them.

use balde_config::Diagnostics;
use balde_policy::{KeyPart, MatchRule, Profile};

use super::call::DRAWS_MAX;
use super::table::{Candidate, Details, Patterns};
use super::{KeyType, Operation, PAYER_HEADER};

impl Patterns {
    pub(super) fn of(profile: &Profile, diagnostics: &mut Diagnostics) -> Option<Self> {
        let mut named = |name: &str| {
            let pattern = profile.pattern(name).cloned();
            if pattern.is_none() {
                let reason = format!("[patterns] of a DICT profile needs `{name}`");
                diagnostics.at(None, reason);
            }
            pattern
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
pub(super) fn candidates(profile: &Profile, diagnostics: &mut Diagnostics) -> Vec<Vec<Candidate>> {
    let mut candidates = vec![Vec::new(); Operation::ALL.len()];
    for (index, policy) in profile.policies().iter().enumerate() {
        let mut refuse = |reason: &str| {
            let reason = format!("policy {}: {reason}", policy.name());
            diagnostics.at(None, reason);
        };
        let is_known = |part: &KeyPart| match part {
            KeyPart::Participant | KeyPart::User => true,
            KeyPart::Constant(text) => text.len() <= 16,
            KeyPart::Header(name) => name.eq_ignore_ascii_case(PAYER_HEADER),
            KeyPart::Query(_) | KeyPart::Path(_) => false,
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
            diagnostics.at(None, reason);
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

fn details(rule: &MatchRule) -> Details {
    let Some((part, patterns)) = rule.patterns() else {
        return if rule.has_conditions() {
            Details::MatchRule(Box::new(rule.clone()))
        } else {
            Details::Nothing
        };
    };
    let types = patterns.iter().map(|(name, _)| KeyType::parse(name));
    let types: Option<Vec<KeyType>> = types.collect();
    match (part, types) {
        (KeyPart::Path(name), Some(types)) if **name == *"Key" && !rule.has_conditions() => {
            Details::KeyTypes(types.iter().fold(0, |bits, one| bits | one.bit()))
        }
        _ => Details::MatchRule(Box::new(rule.clone())),
    }
}
