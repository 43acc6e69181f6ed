//! From a request to buckets and costs, for every operation and every policy.

mod key_shapes;
mod paths;
mod published_tables;
mod request_errors;
mod roles;
mod rows;

use balde_dict::{BucketRef, Category, Incoming, Operation, PAYMENT_ORDER, Table, profiles};
use balde_policy::{Matcher, Request};

pub(crate) const ISPB: &str = "12345678";
pub(crate) const PERSON: &str = "11122233300";
pub(crate) const COMPANY: &str = "12345678000195";
pub(crate) const END_TO_END_ID: &str = "E1234567820260115102030abcDEF123";

pub(crate) fn table() -> Table {
    Table::new(profiles::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// Policies and bucket keys of a request, by name.
pub(crate) fn buckets(
    table: &Table,
    method: &str,
    path: &str,
    query: &str,
    headers: &[(&str, &str)],
    body: Option<&str>,
) -> Vec<(String, String)> {
    let route = table
        .route(method, path)
        .unwrap_or_else(|error| panic!("{method} {path}: {error}"));
    let incoming = Incoming::new(query, &headers)
        .with_body_participant(body)
        .with_certificate(Some(ISPB));
    let call = table.resolve(&route, &incoming);
    assert_eq!(call.error(), None, "{method} {path}?{query}");
    let buckets = table.buckets(&call, Category::A);
    let named = buckets.iter().map(|bucket| {
        let name = bucket.policy().name().to_owned();
        let key = String::from_utf8(bucket.key().to_vec()).expect("keys are text");
        (name, key)
    });
    named.collect()
}

const STATUSES: [u16; 8] = [200, 201, 400, 403, 404, 429, 500, 503];
const USER_COSTS: [u64; 8] = [1, 0, 0, 0, 20, 0, 0, 0];
const PARTICIPANT_COSTS: [u64; 8] = [1, 0, 0, 0, 3, 0, 0, 0];
const OTHER_COSTS: [u64; 8] = [1, 1, 1, 1, 1, 0, 0, 1];

#[test]
fn every_operation_draws_on_its_buckets_and_every_status_has_its_price() {
    let table = table();
    let mut operations_seen = Vec::new();
    let mut policies_seen = Vec::new();
    for row in rows::ROWS {
        let lookup = [
            ("pi-requestingparticipant", ISPB),
            ("PI-PayerId", row.payer),
            ("PI-EndToEndId", END_TO_END_ID),
        ];
        let route = table.route(row.method, row.path).unwrap();
        assert_eq!(route.operation().as_str(), row.operation, "{}", row.path);
        operations_seen.push(route.operation());

        let found = buckets(&table, row.method, row.path, row.query, &lookup, Some(ISPB));
        let expected: Vec<(String, String)> = row
            .buckets
            .iter()
            .map(|(policy, key)| ((*policy).to_owned(), (*key).to_owned()))
            .collect();
        assert_eq!(found, expected, "{} {}?{}", row.method, row.path, row.query);

        for (name, _) in row.buckets {
            let policy = table.profile().policy(name).unwrap();
            let costs = STATUSES.map(|status| policy.cost(status));
            let expected = match *name {
                "ENTRIES_READ_USER_ANTISCAN" | "ENTRIES_READ_USER_ANTISCAN_V2" => USER_COSTS,
                "ENTRIES_READ_PARTICIPANT_ANTISCAN" => PARTICIPANT_COSTS,
                _ => OTHER_COSTS,
            };
            assert_eq!(costs, expected, "{name} for {STATUSES:?}");
            assert_eq!(policy.admission(), 1, "{name}");
            policies_seen.push(*name);
        }
    }
    let current = Operation::ALL.iter().filter(|one| one.is_in_version_2());
    for operation in current {
        assert!(
            operations_seen.contains(operation),
            "no row for {operation:?}"
        );
    }
    for policy in table.profile().policies() {
        assert!(
            policies_seen.contains(&policy.name()),
            "no row for {}",
            policy.name()
        );
    }
}

#[test]
fn the_rules_in_the_file_say_the_same_without_the_table() {
    let table = table();
    let matcher = Matcher::new(table.profile().clone());
    for row in rows::ROWS {
        let headers = [("PI-PayerId", row.payer)];
        let path = table.profile().without_base(row.path).unwrap();
        let mut request = Request::new(row.method, path, row.query);
        request.headers = &headers;
        request.participant = Some(ISPB);
        let assigned = |_: &str, _: &str| Some("A".into());
        let buckets: Vec<_> = matcher
            .buckets(&request, &assigned)
            .into_iter()
            .map(Result::unwrap)
            .collect();
        let found: Vec<(&str, &str)> = buckets
            .iter()
            .map(|bucket| {
                (
                    bucket.policy().name(),
                    str::from_utf8(bucket.key()).unwrap(),
                )
            })
            .collect();
        assert_eq!(
            found, row.buckets,
            "{} {}?{}",
            row.method, row.path, row.query
        );
    }
}

#[test]
fn a_person_and_a_company_have_different_limits_for_the_same_lookup() {
    let table = table();
    for (payer, capacity, credit) in [(PERSON, 100, 1), (COMPANY, 1_000, 2)] {
        let headers = [
            ("PI-RequestingParticipant", ISPB),
            ("PI-PayerId", payer),
            ("PI-EndToEndId", END_TO_END_ID),
        ];
        let route = table.route("GET", "/api/v2/entries/a@b.br").unwrap();
        let call = table.resolve(&route, &Incoming::new("", &headers));
        let buckets = table.buckets(&call, Category::H);
        let [user, participant] = buckets.as_slice() else {
            panic!("a lookup draws on two buckets");
        };
        let credited =
            |bucket: &BucketRef<'_>| bucket.policy().credit(PAYMENT_ORDER, bucket.value());
        assert_eq!(user.limit().capacity(), capacity);
        assert_eq!(credited(user), credit);
        assert_eq!(participant.limit().capacity(), 50);
        assert_eq!(credited(participant), 1);
        assert_eq!(call.payer(), Some(payer));
        assert_eq!(call.end_to_end_id(), Some(END_TO_END_ID));
    }
}
