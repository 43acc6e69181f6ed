//! The index of rules finds what comparing every rule finds.

use balde_policy::{MatchRule, Matcher, PathRules, PathTemplate, Policy, Profile, Request};
use proptest::prelude::*;

fn segment() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("a".to_owned()),
        Just("b".to_owned()),
        Just("{x}".to_owned()),
        Just(String::new()),
    ]
}

fn template() -> impl Strategy<Value = String> {
    let segments = prop::collection::vec(segment(), 0..4);
    (segments, any::<bool>()).prop_map(|(mut segments, is_open)| {
        // An empty segment is a slash at the end, or refused.
        let last = segments.len();
        let mut index = 0;
        segments.retain(|segment| {
            index += 1;
            !segment.is_empty() || (index == last && !is_open)
        });
        // Two holes of one name are refused.
        for (index, segment) in segments.iter_mut().enumerate() {
            if segment == "{x}" {
                *segment = format!("{{x{index}}}");
            }
        }
        if is_open {
            segments.push("{*}".to_owned());
        }
        format!("/{}", segments.join("/"))
    })
}

fn rule() -> impl Strategy<Value = MatchRule> {
    let methods = prop::collection::vec(prop_oneof![Just("GET"), Just("PUT")], 0..2);
    (methods, template()).prop_map(|(methods, path)| {
        let path = PathTemplate::new(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        MatchRule::new(methods, path)
    })
}

proptest! {
    #[test]
    fn the_index_finds_what_comparing_every_rule_finds(
        policies in prop::collection::vec(prop::collection::vec(rule(), 0..4), 1..6),
        paths in prop::collection::vec("/?((a|b|c|)/){0,4}(a|b|c|)", 1..8),
    ) {
        let mut profile = Profile::new("p");
        for (index, rules) in policies.into_iter().enumerate() {
            let mut policy = Policy::new(format!("p{index}"), "1/s".parse().unwrap());
            for rule in rules {
                policy = policy.with_rule(rule);
            }
            profile = profile.with_policy(policy);
        }
        let matcher = Matcher::new(profile.clone());
        for path in &paths {
            for method in ["GET", "PUT", "POST"] {
                let request = Request::new(method, path, "");
                let normal = PathRules::default().normalized(path).unwrap();
                let plain = Request::new(method, &normal, "");
                let expected: Vec<&str> = profile
                    .policies()
                    .iter()
                    .filter(|policy| policy.matching_rule(&plain).is_some())
                    .map(Policy::name)
                    .collect();
                let buckets = matcher.buckets(&request, &|_, _| None);
                let found: Vec<&str> = buckets
                    .iter()
                    .map(|bucket| bucket.as_ref().unwrap().policy().name())
                    .collect();
                prop_assert_eq!(found, expected, "{} {}", method, path);
            }
        }
    }
}
