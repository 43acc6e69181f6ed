//! What is valid in a file, but lets requests pass uncounted or refuses more than it seems to.

use balde_policy::PathTemplate;

use super::{Config, MethodOverride, RouteConfig};

impl Config {
    /// What in the file may not do what was meant, in words; empty if there is nothing.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(profile) = &self.limiting.profile {
            warnings.extend(profile.warnings());
            for route in self.routes.iter().filter(|route| !route.is_limited) {
                warnings.extend(self.uncounted(route));
            }
            let names_methods = profile
                .policies()
                .iter()
                .any(|policy| policy.rules().iter().any(|rule| !rule.methods().is_empty()));
            if self.paths.method_override == MethodOverride::Keep && names_methods {
                let warning = "[paths] method_override: a caller can name another method in a header \
                               field than the one by which its request is counted";
                warnings.push(warning.to_owned());
            }
        }
        for route in &self.routes {
            if route
                .upgrade
                .iter()
                .any(|own| own.eq_ignore_ascii_case("h2c"))
            {
                warnings.push(format!(
                    "route {}: requests within a tunnel of h2c are neither counted nor checked",
                    route.name
                ));
            }
        }
        warnings.extend(self.dict_warnings());
        warnings
    }

    /// Rules whose requests go through a route without limits.
    fn uncounted(&self, route: &RouteConfig) -> Option<String> {
        let profile = self.limiting.profile.as_ref()?;
        let bases = profile.base_paths();
        let is_above = |path: &PathTemplate| {
            let path = path.as_str();
            let is_below = |path: &str| {
                let rest = path.strip_prefix(route.path.trim_end_matches('/'));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if bases.is_empty() {
                return is_below(path);
            }
            bases.iter().any(|base| is_below(&format!("{base}{path}")))
        };
        let mut policies = profile.policies().iter();
        let policy = policies.find(|policy| {
            let mut paths = policy.rules().iter().filter_map(|rule| rule.path());
            paths.any(is_above)
        })?;
        Some(format!(
            "route {}: with `policies = false`, policy {} does not count all of its requests",
            route.name,
            policy.name(),
        ))
    }

    fn dict_warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let Some(dict) = &self.dict else {
            return warnings;
        };
        if dict.charged.is_none() {
            let warning = "[dict] checkKeys is refused, because the file does not say whom DICT charges \
                           for it: set `check_keys_as`";
            warnings.push(warning.to_owned());
        }
        let has_clients = self
            .listeners
            .iter()
            .any(|listener| listener.client_ca.is_some());
        if has_clients && dict.participants.len() > 1 && dict.certificates.is_empty() {
            let warning = "[dict] a client certificate without an ISPB in its subject may speak for \
                           every participant: write [dict.certificates]";
            warnings.push(warning.to_owned());
        }
        warnings
    }
}
