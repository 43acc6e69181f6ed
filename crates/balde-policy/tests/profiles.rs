//! Profiles as texts: the documented one, and every problem that a profile can have.

use balde::{OnFailure, Share};
use balde_config::{DIAGNOSTICS_MAX, FILE_BYTES_MAX, Source};
use balde_core::{Command, Strategy};
use balde_policy::{Matcher, NoBucketError, Profile, Request};
use proptest::prelude::*;

/// The example in docs/profiles.md.
fn documented() -> &'static str {
    let page = include_str!("../../../docs/profiles.md");
    let (_, from) = page
        .split_once("```toml\n")
        .expect("the page shows a profile");
    from.split_once("```").expect("it ends").0
}

fn shop() -> Profile {
    Profile::parse(documented()).unwrap_or_else(|error| panic!("{error}"))
}

/// The first error, or the policy, variant value and key of each bucket that counts a request.
fn buckets(
    profile: &Profile,
    request: &Request<'_>,
) -> Result<Vec<(String, Option<String>, String)>, NoBucketError> {
    let matcher = Matcher::new(profile.clone());
    let buckets = matcher.buckets(request, &|_, _| None).into_iter();
    let described = buckets.map(|bucket| {
        let bucket = bucket?;
        let key = String::from_utf8(bucket.key().to_vec()).expect("keys are text");
        let value = bucket.value().map(str::to_owned);
        Ok((bucket.policy().name().to_owned(), value, key))
    });
    described.collect()
}

/// Policies and keys of a request to the shop.
fn counted(
    method: &str,
    path: &str,
    query: &str,
    headers: &[(&str, &str)],
) -> Vec<(String, String)> {
    let shop = shop();
    let path = shop.without_base(path).expect("below /v1");
    let mut request = Request::new(method, path, query);
    request.headers = &headers;
    let buckets = buckets(&shop, &request).unwrap();
    let named = buckets.into_iter().map(|(policy, _, key)| (policy, key));
    named.collect()
}

#[test]
fn the_documented_profile_of_an_api_that_is_not_dict_counts_as_it_says() {
    let ana = [("x-customer", "ana")];
    let pairs = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect()
    };
    for (method, path, query, expected) in [
        (
            "GET",
            "/v1/products/ABC-1234",
            "",
            vec![("reads", "ana"), ("guesses", "ana")],
        ),
        ("GET", "/v1/products/socks", "", vec![("reads", "ana")]),
        ("HEAD", "/v1/products", "", vec![("reads", "ana")]),
        (
            "POST",
            "/v1/products/a%2Fb/reviews",
            "",
            vec![("reviews", "ana/a%2Fb")],
        ),
        ("GET", "/v1/search", "", vec![("open-searches", "ana")]),
        ("GET", "/v1/search", "in-stock=true", vec![]),
        (
            "GET",
            "/v1/search",
            "in-stock=false",
            vec![("open-searches", "ana")],
        ),
        ("GET", "/v1/search", "q=socks", vec![]),
        (
            "POST",
            "/v1/imports/2026/01",
            "",
            vec![("imports", "everyone")],
        ),
        ("DELETE", "/v1/products/ABC-1234", "", vec![]),
    ] {
        let found = counted(method, path, query, &ana);
        assert_eq!(found, pairs(&expected), "{method} {path}?{query}");
    }
    let urgent = [("X-Customer", "ana"), ("X-Priority", "high")];
    assert_eq!(counted("POST", "/v1/imports/1", "", &urgent), []);
}

#[test]
fn the_documented_profile_has_the_numbers_it_says() {
    let shop = shop();
    let policy = |name: &str| shop.policy(name).unwrap();
    assert_eq!(
        policy("reads").limit(Some("paid")).unwrap().capacity(),
        6_000
    );
    assert_eq!(policy("reads").limit(Some("gold")), None);
    assert_eq!(
        [200, 404, 503].map(|status| policy("guesses").cost(status)),
        [1, 5, 0]
    );
    assert_eq!(
        policy("guesses").settlement(404),
        Some(Command::Charge { n: 4 })
    );
    assert_eq!(policy("guesses").credit("order-placed", None), 1);
    assert_eq!(policy("guesses").credit("anything-else", None), 0);
    assert_eq!(
        policy("reviews").limit(None).unwrap().strategy(),
        Strategy::FixedWindow
    );
    assert_eq!(
        [200, 429, 502].map(|status| policy("reads").cost(status)),
        [1, 0, 0]
    );
    assert_eq!(policy("imports").admission(), 2);
    assert_eq!(
        policy("imports").limit(None).unwrap().strategy(),
        Strategy::Stepwise
    );
    assert_eq!(
        policy("imports").on_failure(),
        OnFailure::Local {
            share: Share::percent(25)
        }
    );
    assert_eq!(policy("reads").on_failure(), OnFailure::Allow);

    let stepwise = Profile::parse_with(documented(), &[("refill", "stepwise")]).unwrap();
    let reads = stepwise
        .policy("reads")
        .unwrap()
        .limit(Some("free"))
        .unwrap();
    assert_eq!(reads.strategy(), Strategy::Stepwise);
    // A limit that says so itself stays what it is.
    let reviews = stepwise.policy("reviews").unwrap().limit(None).unwrap();
    assert_eq!(reviews.strategy(), Strategy::FixedWindow);
}

#[test]
fn the_plan_is_told_by_a_header_and_otherwise_free() {
    let shop = shop();
    for (headers, plan) in [
        ([("X-Customer", "a"), ("X-Plan", "paid")], "paid"),
        ([("X-Customer", "a"), ("X-Plan", "unheard-of")], "free"),
        ([("X-Customer", "a"), ("Accept", "*/*")], "free"),
    ] {
        let mut request = Request::new("GET", "/products", "");
        request.headers = &headers;
        let buckets = buckets(&shop, &request).unwrap();
        assert_eq!(buckets[0].1.as_deref(), Some(plan));
    }
    let anonymous = buckets(&shop, &Request::new("GET", "/products", ""));
    let error = anonymous.unwrap_err().to_string();
    assert_eq!(error, "policy reads: the request has no header:X-Customer");
}

#[test]
fn all_problems_are_reported_at_once_with_their_positions() {
    let text = r#"
profile = "bad name"
titel = "x"

[settings]
unused = 1

[patterns]
A = "[0-9"
B = "[0-9]{1,3}[0-5]"

[scopes]
odd = ["cookie:x"]
byid = ["path:id"]

[variants]
tier = ["a", "b"]

[defaults]
costs = { default = 1, 600 = 2 }

[[policy]]
name = "one"
scope = "nobody"
match = ["get /x", { on = "/y", patterns = { "path:id" = ["C"] } }, { path = "/z" }]
limit = "10/s bursts 20"

[[policy]]
name = "two"
scope = "byid"
match = ["GET /users/{other}"]
limits = { by = "tier", a = "1/s", c = "2/s" }

[[policy]]
name = "two"
limit = "5/s"
limits = "none"

[[policy]]
limit = "1/s"
admission = 2
on_failure = "local 0%"

[[policy]]
name = "two"
limit = "1/s"
costs = { default = "$nothing", 404 = -1 }
"#;
    let error = Profile::parse(text).unwrap_err();
    let reported = error.diagnostics().iter().map(ToString::to_string);
    let reported: Vec<String> = reported.collect();
    let expected = [
        "2:11: a name must consist of",
        "3:1: unknown key `titel`; did you mean `title`?",
        "6:10: nothing refers to the setting `unused`",
        "9:5: a class is ASCII characters",
        "10:5: a count that varies must be followed by",
        "13:8: a key part must be participant",
        "20:24: `600` is not a status",
        "24:9: there is no scope `nobody`",
        "25:10: a rule must be a path, or methods in capitals",
        "25:59: there is no pattern `C`",
        "25:69: missing key `on` in [[policy.match]]",
        "25:71: unknown key `path` in [[policy.match]]",
        "26:15: did not expect `bursts 20`",
        "29:8: scope `byid` needs {id}",
        "32:10: there is no entry for tier b",
        "32:36: `c` is not a value of tier; expected one of a, b",
        "37:10: write either `limit` or `limits`, not both",
        "39:1: missing key `name` in [[policy]]",
        "42:14: `on_failure` must be \"deny\", \"allow\", or \"local\" with a share",
        "45:8: there is a policy `two` already",
        "47:21: there is no setting `nothing`",
        "47:39: `404` must be between 0 and 1000000",
    ];
    for (reported, expected) in reported.iter().zip(expected) {
        assert!(
            reported.starts_with(expected),
            "expected {expected}, reported {reported}"
        );
    }
    assert_eq!(reported.len(), expected.len(), "{reported:#?}");
    let named = Profile::from_source(&Source::new("shop.toml", text), &[]).unwrap_err();
    let first = named.diagnostics()[0].to_string();
    assert!(first.starts_with("shop.toml:2:11: a name"), "{first}");
}

#[test]
fn syntax_errors_are_reported_with_their_positions_and_nothing_that_follows_from_them() {
    let text = "profile = \"x\"\nlimit = = 3\n[[policy]\nname = \"a\"\nlimit = \"1/lustrum\"\n";
    let error = Profile::parse(text).unwrap_err();
    let lines: Vec<usize> = error
        .diagnostics()
        .iter()
        .map(|diagnostic| diagnostic.position().line().unwrap())
        .collect();
    assert!(lines.contains(&2) && lines.contains(&3), "{error}");
    let repeated = "profile = \"x\"\nprofile = \"y\"\n";
    let error = Profile::parse(repeated).unwrap_err();
    let first = error.diagnostics()[0].to_string();
    assert!(first.starts_with("2:1: "), "{first}");
}

#[test]
fn a_name_twice_and_an_admission_that_never_comes_are_refused() {
    let text = "profile = 'x'\n[[policy]]\nname = 'a'\nlimit = '1/s'\n[[policy]]\nname = 'a'\nlimit = '1/s'\nadmission = 2\n";
    let error = Profile::parse(text).unwrap_err();
    let reported = error.diagnostics().iter().map(ToString::to_string);
    let reported: Vec<String> = reported.collect();
    assert_eq!(reported.len(), 2, "{reported:?}");
    assert!(
        reported
            .iter()
            .any(|one| one.starts_with("6:8: there is a policy `a` already"))
    );
    assert!(
        reported
            .iter()
            .any(|one| one.contains("would refuse every request"))
    );
}

#[test]
fn there_is_a_limit_on_everything() {
    let error = Profile::parse(&" ".repeat(FILE_BYTES_MAX + 1)).unwrap_err();
    assert!(error.to_string().contains("more than 1048576 bytes"));

    let policy = |n: usize| format!("[[policy]]\nname = 'p{n}'\nlimit = '1/s'\n");
    let many: String = (0..257).map(policy).collect();
    let error = Profile::parse(&format!("profile = 'x'\n{many}")).unwrap_err();
    assert!(
        error.to_string().contains("at most 256 policies"),
        "{error}"
    );

    let wrong: Vec<String> = (0..200).map(|n| format!("wrong{n} = 1\n")).collect();
    let error = Profile::parse(&wrong.concat()).unwrap_err();
    assert_eq!(error.diagnostics().len(), DIAGNOSTICS_MAX);
    // Two hundred keys, a name and a policy.
    assert_eq!(error.omitted(), 202 - DIAGNOSTICS_MAX);

    let deep = format!("x = {}1{}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(Profile::parse(&deep).is_err());
}

#[test]
fn keys_of_different_parts_never_meet() {
    let key = |a: &str, b: &str| {
        let headers = [("A", a), ("B", b)];
        let text = "profile='x'\n[scopes]\ns=['header:A','header:B']\n[[policy]]\nname='p'\nscope='s'\nlimit='1/s'";
        let profile = Profile::parse(text).unwrap();
        let mut request = Request::new("GET", "/", "");
        request.headers = &headers;
        buckets(&profile, &request).unwrap()[0].2.clone()
    };
    let pairs = [
        ("a/b", "c"),
        ("a", "b/c"),
        ("a%2Fb", "c"),
        ("a%", "2Fb/c"),
        ("a", "b%2Fc"),
    ];
    for (index, one) in pairs.iter().enumerate() {
        for other in &pairs[..index] {
            assert_ne!(
                key(one.0, one.1),
                key(other.0, other.1),
                "{one:?} {other:?}"
            );
        }
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
        let _ = Profile::parse(&text);
    }

    #[test]
    fn nothing_that_looks_like_a_profile_makes_it_panic(
        words in prop::collection::vec(
            prop_oneof![
                Just("profile = "), Just("[settings]\n"), Just("[[policy]]\n"), Just("name = "),
                Just("limit = "), Just("limits = "), Just("match = "), Just("costs = "), Just("[patterns]\n"),
                Just("[scopes]\n"), Just("[variants]\n"), Just("[defaults]\n"), Just("scope = "), Just("by = "),
                Just("{ "), Just(" }"), Just("["), Just("]"), Just(", "), Just("\n"), Just("'x'\n"),
                Just("\"$x\""), Just("'10/s burst 5'\n"), Just("x = "), Just("on = "), Just("'GET /a/{b}'"),
                Just("404 = 20"), Just("'[0-9]{3}'\n"), Just("-1\n"), Just("1.5\n"), Just("true\n"), Just("é"),
            ],
            0..60,
        ),
    ) {
        let _ = Profile::parse(&words.concat());
    }

    #[test]
    fn a_profile_with_a_piece_missing_or_doubled_is_read_or_refused_with_positions_inside_it(
        from in 0_usize..3_000, length in 0_usize..60, is_doubled: bool,
    ) {
        let text = documented();
        let inside = |mut at: usize| { at = at.min(text.len()); while !text.is_char_boundary(at) { at -= 1; } at };
        let (from, to) = (inside(from), inside(from + length));
        let middle = if is_doubled { text[from..to].repeat(2) } else { String::new() };
        let changed = format!("{}{middle}{}", &text[..from], &text[to..]);
        if let Err(error) = Profile::parse(&changed) {
            let lines = changed.lines().count();
            for diagnostic in error.diagnostics() {
                let position = diagnostic.position();
                let Some(line) = position.line() else {
                    // Only what is missing from the file as a whole has no line.
                    let message = diagnostic.message();
                    prop_assert!(message.starts_with("missing") || message.contains("needs"), "{}", message);
                    continue;
                };
                prop_assert!(line >= 1 && line <= lines + 1);
                prop_assert!(position.column().unwrap() >= 1);
                prop_assert!(position.span().unwrap().end() <= changed.len());
            }
        }
    }
}
