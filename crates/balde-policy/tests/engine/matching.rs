//! The index of rules finds what comparing every rule finds.

use balde_policy::{MatchRule, Matcher, PathRules, PathTemplate, Policy, Profile, Request};
use proptest::prelude::*;

use crate::fixture::Fixture;

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

#[tokio::test]
async fn rules_match_and_keys_are_made_of_named_values() {
    let profile = "profile = 'descriptors'\n[scopes]\nper-address = ['value:remote_address']\n\
        [[policy]]\nname = 'addresses'\nscope = 'per-address'\nlimit = '1/min'\n\
        match = [{ values = { domain = 'shop', remote_address = '*', internal = '!*' } }]\n\
        [[policy]]\nname = 'writes'\nlimit = '2/min'\n\
        match = [{ on = 'POST /{*}', values = { domain = '!test' } }]";
    let fixture = Fixture::with(profile, |builder| builder);
    let decided = async |method, values: &[(&str, &str)]| {
        let mut request = Request::new(method, "/x", "");
        request.values = values;
        let ticket = fixture.engine.admit(&request).await;
        ticket.map(|ticket| {
            let names = ticket.decisions().map(|(name, _)| name.to_owned());
            names.collect::<Vec<_>>()
        })
    };
    let one = [("domain", "shop"), ("remote_address", "192.0.2.1")];
    assert_eq!(decided("GET", &one).await.unwrap(), ["addresses"]);
    assert!(decided("GET", &one).await.is_err());
    let other = [("domain", "shop"), ("remote_address", "192.0.2.2")];
    assert_eq!(
        decided("POST", &other).await.unwrap(),
        ["addresses", "writes"]
    );
    let internal = [one[0], one[1], ("internal", "yes")];
    assert!(decided("GET", &internal).await.unwrap().is_empty());
    assert!(
        decided("POST", &[("domain", "test")])
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(decided("POST", &[]).await.unwrap(), ["writes"]);
}
