//! Paths: what is an operation, what is none, and what stays as it came.

use balde_dict::{KeyType, Operation, PATH_BYTES_MAX, RouteError, Table, profiles};
use proptest::prelude::*;

use super::table;

#[test]
fn paths_that_are_no_operation_are_told_from_methods_that_are_none() {
    let table = table();
    for path in [
        "/api/v2/",
        "/api/v2/entries",
        "/api/v2/claims",
        "/api/v2/policies",
        "/api/v2/cids/files",
        "/api/v2/cids/events/",
        "/api/v2/event-notifications/",
        "/api/v2/entries//statistics",
        "/api/v2/entries/12345678901/",
        "/api/v2/entries/12345678901/nothing",
        "/api/v2/entries/a/b/c/d/e",
        "/api/v2//entries/12345678901",
        "/api/v2/Entries/12345678901",
        "/api/v2/persons/11122233300",
        "/api/v2/claims//acknowledge",
    ] {
        for method in ["GET", "POST", "PUT"] {
            assert_eq!(
                table.route(method, path),
                Err(RouteError::UnknownPath),
                "{method} {path}"
            );
        }
    }
    for path in [
        "/",
        "",
        "/api/v2",
        "/api/v3/entries/1",
        "/api/v20/entries/1",
        "/entries/12345678901",
        "api/v2/entries/1",
    ] {
        assert_eq!(
            table.route("GET", path),
            Err(RouteError::OutsideBase),
            "{path}"
        );
    }
    for (method, path, allow) in [
        ("DELETE", "/api/v2/entries/12345678901", "GET, PUT"),
        ("GET", "/api/v2/entries/", "POST"),
        ("PUT", "/api/v2/claims/", "GET, POST"),
        ("get", "/api/v2/claims/", "GET, POST"),
        ("POST", "/api/v2/policies/", "GET"),
        ("GET", "/api-np/v2/keys/check", "POST"),
        ("POST", "/api/v2/infraction-reports/1", "GET, PUT"),
    ] {
        let refused = table.route(method, path).unwrap_err();
        assert_eq!(
            refused,
            RouteError::MethodNotAllowed { allow },
            "{method} {path}"
        );
        assert_eq!(refused.status(), 405);
    }
    let long = format!("/api/v2/entries/{}", "a".repeat(PATH_BYTES_MAX));
    assert_eq!(table.route("GET", &long), Err(RouteError::PathTooLong));
}

#[test]
fn the_raw_segment_is_kept_and_the_key_decoded_once() {
    let table = table();
    for (raw, key, key_type) in [
        ("%2B5511987654321", "+5511987654321", Some(KeyType::Phone)),
        ("+5511987654321", "+5511987654321", Some(KeyType::Phone)),
        ("a%2fb%40c.br", "a/b@c.br", Some(KeyType::Email)),
        // Decoded once, and not again: the percent sign is part of the address.
        ("a%2540b.br", "a%40b.br", None),
        ("a%25@b.br", "a%@b.br", None),
    ] {
        let path = format!("/api/v2/entries/{raw}");
        let route = table.route("GET", &path).unwrap();
        assert_eq!(route.raw_segment(), raw);
        assert_eq!(route.path(), format!("/entries/{raw}"));
        let call = table.resolve(&route, &balde_dict::Incoming::new("", &[]));
        assert_eq!(call.key_type(), key_type, "{raw}");
        assert_eq!(call.key(), key_type.map(|_| key), "{raw}");
    }
}

#[test]
fn a_slash_at_the_end_may_be_made_optional() {
    let profile = profiles::named_with("dict-2.12.1", &[("trailing_slash", "optional")]).unwrap();
    let table = Table::new(profile.unwrap()).unwrap();
    for (method, path, operation) in [
        ("GET", "/api/v2/policies", Operation::ListBucketStates),
        ("GET", "/api/v2/policies/", Operation::ListBucketStates),
        ("POST", "/api/v2/cids/files", Operation::CreateCidSetFile),
        ("GET", "/api/v2/cids/events/", Operation::ListCidSetEvents),
        ("GET", "/api/v2/entries/12345678901/", Operation::GetEntry),
        (
            "POST",
            "/api/v2/entries/12345678901/delete/",
            Operation::DeleteEntry,
        ),
    ] {
        let route = table
            .route(method, path)
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(route.operation(), operation, "{path}");
    }
    let route = table.route("GET", "/api/v2/entries/12345678901/").unwrap();
    assert_eq!(route.raw_segment(), "12345678901");
    for path in [
        "/api/v2/entries//",
        "/api/v2/policies//",
        "/api/v2/persons/",
    ] {
        assert_eq!(
            table.route("GET", path),
            Err(RouteError::UnknownPath),
            "{path}"
        );
    }
}

proptest! {
    #[test]
    fn no_path_query_or_header_makes_it_panic(
        method in "[A-Z]{0,6}",
        path in "(/api/v2)?(/[a-z-]{0,12}|/entries|/claims|/[%+@a-zA-Z0-9]{0,40}|/\\PC{0,9}){0,5}",
        query in "([A-Za-z%+=&]|Participant=|IsDonor=|true|\\PC){0,40}",
        value in "\\PC{0,40}",
    ) {
        let table = table();
        let headers = [
            ("PI-RequestingParticipant", value.as_str()),
            ("PI-PayerId", value.as_str()),
            ("PI-EndToEndId", value.as_str()),
        ];
        if let Ok(route) = table.route(&method, &path) {
            let incoming = balde_dict::Incoming::new(&query, &headers)
                .with_body_participant(Some(&value))
                .with_certificate(Some(&value));
            let call = table.resolve(&route, &incoming);
            // A bucket is only ever somebody's: a valid participant's.
            for bucket in table.buckets(&call, balde_dict::Category::A) {
                let participant = call.participant().unwrap();
                prop_assert!(table.is_ispb(participant));
                prop_assert!(bucket.key().starts_with(participant.as_bytes()));
            }
        }
    }
}
