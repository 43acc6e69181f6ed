//! What is valid in a profile, but does not do what it seems to.

use super::Profile;
use crate::policy::MatchRule;

impl Profile {
    /// Rules that do not count the requests that they seem to count, in words; empty if there are none.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for policy in self.policies() {
            for rule in policy.rules() {
                if let Some(path) = rule.path()
                    && let Some(reason) = path.never_matches()
                {
                    warnings.push(format!(
                        "policy {}: `{}` counts nothing, because {reason}",
                        policy.name(),
                        path.as_str(),
                    ));
                }
                warnings.extend(self.heads_taken(policy.name(), rule));
            }
        }
        warnings
    }

    /// `HEAD` counts as `GET`, unless a rule is about `HEAD` only: then that rule takes these requests
    /// from the other policies.
    fn heads_taken(&self, name: &str, rule: &MatchRule) -> Option<String> {
        if !rule.is_for_head_only() {
            return None;
        }
        let others = self.policies().iter().filter(|other| other.name() != name);
        let mut losing = others.filter(|other| {
            let mut rules = other.rules().iter();
            rules.any(|other| other.path() == rule.path() && other.is_for_get_only())
        });
        let other = losing.next()?;
        Some(format!(
            "policy {name}: because of `{rule}`, policy {} does not count HEAD requests of this path; \
             write GET,HEAD in both if it should",
            other.name(),
        ))
    }
}
