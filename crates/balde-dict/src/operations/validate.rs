//! Whether the policies of a profile fit DICT's operations.

use balde_config::Diagnostics;
use balde_policy::{KeyPart, Profile};

use super::{Operation, PAYER_HEADER};

/// Reports everything in the policies that DICT's operations do not support.
pub(super) fn check_policies(profile: &Profile, diagnostics: &mut Diagnostics) {
    for policy in profile.policies() {
        let mut refuse = |reason: &str| {
            let reason = format!("policy {}: {reason}", policy.name());
            diagnostics.at(None, reason);
        };
        let is_known = |part: &KeyPart| match part {
            KeyPart::Participant | KeyPart::User => true,
            KeyPart::Constant(text) => text.len() <= 16,
            KeyPart::Header(name) => name.eq_ignore_ascii_case(PAYER_HEADER),
            _ => false,
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
            // A segment that matches every placeholder, so that only the form of the path matters.
            let is_used = Operation::ALL
                .iter()
                .any(|operation| rule.matches_route(operation.method(), &sample_path(*operation)));
            if !is_used {
                let path = rule.path().map_or("", |path| path.as_str());
                refuse(&format!("no operation of DICT has {path} with its methods"));
            }
        }
    }
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
