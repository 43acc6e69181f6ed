//! Requests that are wrong: what DICT answers, and which buckets can still be told.

use balde_dict::{Category, HttpHeaders, Incoming, QUERY_BYTES_MAX, RequestError};

use super::{END_TO_END_ID, ISPB, PERSON, table};

const PARTICIPANT: &str = "PI-RequestingParticipant";
const PAYER: &str = "PI-PayerId";
const ID: &str = "PI-EndToEndId";

/// The error of a request and how many buckets it still draws on.
fn outcome(
    (method, path, query): (&str, &str, &str),
    headers: &[(&str, &str)],
    body: Option<&str>,
) -> (Option<RequestError>, usize) {
    let table = table();
    let route = table.route(method, path).unwrap();
    let incoming = Incoming::new(query, &headers).with_body_participant(body);
    let call = table.resolve(&route, &incoming);
    (call.error(), table.buckets(&call, Category::A).len())
}

#[test]
fn a_lookup_needs_its_three_headers_and_a_key() {
    let good = [(PARTICIPANT, ISPB), (PAYER, PERSON), (ID, END_TO_END_ID)];
    let lookup = ("GET", "/api/v2/entries/a@b.br", "");
    assert_eq!(outcome(lookup, &good, None), (None, 2));
    for (index, name) in [PARTICIPANT, PAYER, ID].into_iter().enumerate() {
        let mut without = good.to_vec();
        without.remove(index);
        let (error, _) = outcome(lookup, &without, None);
        assert_eq!(error, Some(RequestError::MissingHeader(name)));
        let error = error.unwrap();
        assert_eq!((error.status(), error.error_type()), (400, "BadRequest"));
        assert_eq!(error.detail(), format!("Missing request header '{name}'"));

        let mut empty = good;
        empty[index].1 = "";
        assert_eq!(
            outcome(lookup, &empty, None).0,
            Some(RequestError::MissingHeader(name))
        );

        let mut repeated = good.to_vec();
        repeated.push(good[index]);
        assert_eq!(outcome(lookup, &repeated, None), (None, 2));
        repeated.push((name, "87654321"));
        assert_eq!(
            outcome(lookup, &repeated, None).0,
            Some(RequestError::AmbiguousHeader(name))
        );
    }
    for (index, wrong) in [
        (0, "1234567"),
        (0, "123456789"),
        (0, "1234567é"),
        (0, "12345 78"),
        (1, "1112223330"),
        (1, "111222333000"),
        (1, "1112223330a"),
        (1, "111.222.333-00"),
        (1, "12abc34501de35"),
        (2, "é"),
    ] {
        let mut headers = good;
        let name = headers[index].0;
        headers[index].1 = wrong;
        let (error, _) = outcome(lookup, &headers, None);
        assert_eq!(error, Some(RequestError::InvalidHeader(name)), "{wrong}");
    }
    for key in [
        "123",
        "1234567890",
        "+0511987654321",
        "+1",
        "A@b.br",
        "a@b@c",
        "@b.br",
        "a@",
        "%zz",
        "%FF",
        "123E4567-E89B-12D3-A456-426655440000",
        "123456789012345",
        "%20",
        "a b@c.br",
    ] {
        let path = format!("/api/v2/entries/{key}");
        // Only the participant's bucket can be told: no type, no user's bucket.
        assert_eq!(
            outcome(("GET", &path, ""), &good, None),
            (Some(RequestError::InvalidKey), 1),
            "{key}"
        );
    }
    let long = format!("/api/v2/entries/{}@b.br", "a".repeat(73));
    assert_eq!(
        outcome(("GET", &long, ""), &good, None).0,
        Some(RequestError::InvalidKey)
    );
    let fits = format!("/api/v2/entries/{}@b.br", "a".repeat(72));
    assert_eq!(outcome(("GET", &fits, ""), &good, None), (None, 2));
}

#[test]
fn a_participant_has_one_bucket_however_its_letters_are_written() {
    let table = table();
    let route = table.route("GET", "/api/v2/policies/").unwrap();
    for spelling in ["AB345678", "ab345678", "aB345678"] {
        let headers = [(PARTICIPANT, spelling)];
        let headers = headers.as_slice();
        let call = table.resolve(&route, &Incoming::new("", &headers));
        assert_eq!(call.participant(), Some("AB345678"));
    }
    // Some lists take digits only.
    for (path, error) in [
        (
            "/api/v2/claims/",
            Some(RequestError::InvalidParameter("Participant")),
        ),
        (
            "/api/v2/event-notifications",
            Some(RequestError::InvalidParameter("Participant")),
        ),
        ("/api/v2/refunds/", None),
        ("/api/v2/infraction-reports/", None),
    ] {
        let request = ("GET", path, "Participant=ab345678");
        assert_eq!(outcome(request, &[], None).0, error, "{path}");
    }
}

#[test]
fn without_a_participant_there_is_no_bucket() {
    for (request, body, error) in [
        (
            ("GET", "/api/v2/claims/1", ""),
            None,
            RequestError::MissingHeader(PARTICIPANT),
        ),
        (
            ("GET", "/api/v2/policies/", ""),
            None,
            RequestError::MissingHeader(PARTICIPANT),
        ),
        (
            ("GET", "/api/v2/claims/", "IsDonor=true"),
            None,
            RequestError::MissingParameter("Participant"),
        ),
        (
            ("GET", "/api/v2/claims/", "Participant="),
            None,
            RequestError::MissingParameter("Participant"),
        ),
        (
            ("GET", "/api/v2/claims/", "Participant=1"),
            None,
            RequestError::InvalidParameter("Participant"),
        ),
        (
            (
                "GET",
                "/api/v2/claims/",
                "Participant=12345678&Participant=87654321",
            ),
            None,
            RequestError::AmbiguousParameter("Participant"),
        ),
        (
            ("GET", "/api/v2/fraud-markers/", "TaxIdNumber=11122233300"),
            None,
            RequestError::MissingHeader(PARTICIPANT),
        ),
        (
            ("POST", "/api/v2/entries/", ""),
            None,
            RequestError::MissingParticipant,
        ),
        (
            ("POST", "/api/v2/entries/", ""),
            Some("1234"),
            RequestError::InvalidParticipant,
        ),
        (
            ("POST", "/api-np/v2/keys/check", ""),
            None,
            RequestError::MissingParticipant,
        ),
    ] {
        assert_eq!(outcome(request, &[], body), (Some(error), 0), "{request:?}");
    }
}

#[test]
fn a_wrong_request_of_a_known_participant_still_counts_for_it() {
    let headers = [(PARTICIPANT, ISPB)];
    for (request, body, error) in [
        (
            ("GET", "/api/v2/entries/nokey/statistics", ""),
            None,
            RequestError::InvalidKey,
        ),
        (
            ("PUT", "/api/v2/entries/nokey", ""),
            Some(ISPB),
            RequestError::InvalidKey,
        ),
        (
            ("GET", "/api/v2/persons/123/statistics", ""),
            None,
            RequestError::InvalidTaxId,
        ),
        (
            ("GET", "/api/v2/fraud-markers/", ""),
            None,
            RequestError::MissingParameter("TaxIdNumber"),
        ),
        (
            ("GET", "/api/v2/fraud-markers/", "TaxIdNumber=1"),
            None,
            RequestError::InvalidParameter("TaxIdNumber"),
        ),
        (
            ("GET", "/api/v2/cids/events", "Participant=12345678"),
            None,
            RequestError::MissingParameter("KeyType"),
        ),
        (
            (
                "GET",
                "/api/v2/cids/events",
                "Participant=12345678&KeyType=cpf",
            ),
            None,
            RequestError::InvalidParameter("KeyType"),
        ),
    ] {
        assert_eq!(
            outcome(request, &headers, body),
            (Some(error), 1),
            "{request:?}"
        );
    }
}

#[test]
fn fraud_markers_may_name_the_participant_in_the_query_too() {
    let request = (
        "GET",
        "/api/v2/fraud-markers/",
        "TaxIdNumber=11122233300&Participant=12345678",
    );
    assert_eq!(outcome(request, &[], None), (None, 1));
}

#[test]
fn a_query_without_end_is_not_read() {
    let query = "a=b&".repeat(QUERY_BYTES_MAX / 4 + 1);
    let request = ("GET", "/api/v2/claims/", query.as_str());
    assert_eq!(
        outcome(request, &[], None),
        (Some(RequestError::QueryTooLong), 0)
    );
}

#[test]
fn headers_of_http_are_found_whatever_their_case_and_never_when_they_are_no_text() {
    let table = table();
    let route = table.route("GET", "/api/v2/policies/").unwrap();
    let mut map = http::HeaderMap::new();
    map.insert(
        "pi-requestingparticipant",
        http::HeaderValue::from_static(ISPB),
    );
    let headers = HttpHeaders(&map);
    let call = table.resolve(&route, &Incoming::new("", &headers));
    assert_eq!(call.participant(), Some(ISPB));

    map.append(
        "pi-requestingparticipant",
        http::HeaderValue::from_static("87654321"),
    );
    let headers = HttpHeaders(&map);
    let call = table.resolve(&route, &Incoming::new("", &headers));
    assert_eq!(
        call.error(),
        Some(RequestError::AmbiguousHeader(PARTICIPANT))
    );

    let bytes = http::HeaderValue::from_bytes(b"1234567\xff").unwrap();
    map.insert("pi-requestingparticipant", bytes);
    let headers = HttpHeaders(&map);
    let call = table.resolve(&route, &Incoming::new("", &headers));
    assert_eq!(call.error(), Some(RequestError::MissingHeader(PARTICIPANT)));
    assert!(table.buckets(&call, Category::A).is_empty());
}
