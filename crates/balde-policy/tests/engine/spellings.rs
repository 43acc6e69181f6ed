//! No other spelling of a request escapes a rule.

use balde_policy::{AdmitError, Engine, KeyError, Outcome, PathError, Request};

use crate::fixture::parsed;

const PROFILE: &str = r#"
profile = "shop"

[scopes]
by-query = ["query:user"]

[[policy]]
name = "searches"
match = ["GET /search", "GET /%75sers/{id}/files/"]
limit = "1/day burst 1000"

[[policy]]
name = "filtered"
match = [{ on = "GET /list", query = { all = "!*" }, headers = { X-Priority = "!high" } }]
limit = "1/day burst 1000"

[[policy]]
name = "flagged"
match = [{ on = "GET /flags", not_filtered_by = ["on-sale"], filter = "any_true" }]
limit = "1/day burst 1000"

[[policy]]
name = "heads"
match = ["HEAD /stock"]
limit = "1/day burst 1000"

[[policy]]
name = "stock"
match = ["GET /stock"]
limit = "1/day burst 1000"

[[policy]]
name = "keyed"
match = ["GET /keyed"]
scope = "by-query"
limit = "1/day burst 1000"
"#;

fn engine() -> Engine {
    Engine::builder(parsed(PROFILE)).build().unwrap()
}

fn counted(engine: &Engine, request: &Request<'_>) -> String {
    let prices = engine.prices(request, Outcome::Status(200));
    let names: Vec<&str> = prices.iter().map(|(name, _)| &**name).collect();
    names.join(",")
}

#[test]
fn every_spelling_of_a_path_is_counted_by_its_rule_or_refused() {
    let engine = engine();
    for path in [
        "/search",
        "/search/",
        "//search",
        "/%73earch",
        "/%73%65arch//",
        "/se%61rch/",
        "/users/1/files",
        "/users/1/files/",
        "/%75sers/%31//files",
        "/users/a%20b/file%73/",
    ] {
        let request = Request::new("GET", path, "");
        assert_eq!(counted(&engine, &request), "searches", "{path}");
        let ticket = engine.admit_blocking(&request).unwrap();
        assert_eq!(ticket.decisions().count(), 1, "{path}");
    }
    for (path, error) in [
        ("/a/../search", PathError::DotSegment),
        ("/%2e/search", PathError::DotSegment),
        ("/search;x=1", PathError::Parameter),
        ("/search%2F", PathError::EscapedSlash),
        ("/search%00", PathError::Control),
    ] {
        match engine.admit_blocking(&Request::new("GET", path, "")) {
            Err(AdmitError::Path(found)) => assert_eq!(found, error, "{path}"),
            other => panic!("{path}: {other:?}"),
        }
    }
    for path in ["/searching", "/Search", "/search/x", "*", ""] {
        assert_eq!(
            counted(&engine, &Request::new("GET", path, "")),
            "",
            "{path}"
        );
    }
}

#[test]
fn head_counts_as_get_unless_a_rule_is_about_head() {
    let engine = engine();
    for (method, path, expected) in [
        ("HEAD", "/search", "searches"),
        ("get", "/search", "searches"),
        ("POST", "/search", ""),
        ("HEAD", "/stock", "heads"),
        ("head", "/stock/", "heads"),
        ("GET", "/stock", "stock"),
    ] {
        let request = Request::new(method, path, "");
        assert_eq!(counted(&engine, &request), expected, "{method} {path}");
    }
}

#[test]
fn a_second_value_does_not_escape_a_condition() {
    let engine = engine();
    for query in ["", "all=", "al%6c=&all=1", "all=1&all=", "x=1;all=1", "all"] {
        let request = Request::new("GET", "/list", query);
        assert_eq!(counted(&engine, &request), "filtered", "{query}");
    }
    assert_eq!(counted(&engine, &Request::new("GET", "/list", "all=1")), "");
    let two = [("X-Priority", "high"), ("x-priority", "low")];
    let mut request = Request::new("GET", "/list", "");
    request.headers = &two;
    assert_eq!(counted(&engine, &request), "filtered");
    let one = [("X-Priority", "high")];
    request.headers = &one;
    assert_eq!(counted(&engine, &request), "");
    for query in [
        "",
        "on-sale=false",
        "on-sale=true&on-sale=false",
        "on%2Dsale=no",
    ] {
        let request = Request::new("GET", "/flags", query);
        assert_eq!(counted(&engine, &request), "flagged", "{query}");
    }
}

#[test]
fn a_second_value_does_not_choose_another_bucket() {
    let engine = engine();
    for query in [
        "user=ana&user=bob",
        "user=ana;1",
        "x=1;user=ana",
        "user=ana&us%65r=bob",
    ] {
        match engine.admit_blocking(&Request::new("GET", "/keyed", query)) {
            Err(AdmitError::NoBucket(error)) => {
                assert!(
                    matches!(error.key_error(), KeyError::Ambiguous { .. }),
                    "{query}"
                );
            }
            other => panic!("{query}: {other:?}"),
        }
    }
    for query in [
        "user=ana",
        "us%65r=an%61",
        "user=ana&user=ana",
        "x=1;2&user=ana",
    ] {
        let admitted = engine.admit_blocking(&Request::new("GET", "/keyed", query));
        assert!(admitted.is_ok(), "{query}: {admitted:?}");
    }
}
