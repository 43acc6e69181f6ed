//! Lists filtered by role, or not: the bucket that the setting says.

use balde_dict::{Table, profiles};

use super::{ISPB, buckets};

fn list_bucket(table: &Table, path: &str, roles: &str) -> String {
    let query = format!("Participant={ISPB}{roles}");
    let found = buckets(table, "GET", path, &query, &[], None);
    let [(policy, key)] = found.as_slice() else {
        panic!("a list draws on one bucket, not {found:?}");
    };
    assert_eq!(key, ISPB);
    policy.clone()
}

#[test]
fn with_and_without_role_with_false_and_with_both_under_each_setting() {
    // The parameters, and whether they count as a filter: exactly one true, any true, any present.
    let cases = [
        ("", [false, false, false]),
        ("&A=true", [true, true, true]),
        ("&B=true", [true, true, true]),
        ("&A=false", [false, false, true]),
        ("&A=false&B=false", [false, false, true]),
        ("&A=true&B=false", [true, true, true]),
        ("&A=true&B=true", [false, true, true]),
        ("&A=", [false, false, false]),
        ("&A=TRUE", [true, true, true]),
        ("&A=%74rue", [true, true, true]),
        ("&a=true", [false, false, false]),
    ];
    let lists = [
        ("/api/v2/claims/", "IsDonor", "IsClaimer", "CLAIMS_LIST"),
        (
            "/api/v2/infraction-reports/",
            "IsReporter",
            "IsCounterparty",
            "INFRACTION_REPORTS_LIST",
        ),
    ];
    for (index, setting) in ["exactly_one_true", "any_true", "any_present"]
        .iter()
        .enumerate()
    {
        let profile = profiles::named_with("dict-2.12.1", &[("role_filter", setting)]).unwrap();
        let table = Table::new(profile.unwrap()).unwrap();
        for (path, a, b, policy) in lists {
            for (roles, is_filtered) in cases {
                let named = roles
                    .replace("A=", &format!("{a}="))
                    .replace("B=", &format!("{b}="));
                let ending = if is_filtered[index] {
                    "_WITH_ROLE"
                } else {
                    "_WITHOUT_ROLE"
                };
                let expected = format!("{policy}{ending}");
                assert_eq!(
                    list_bucket(&table, path, &named),
                    expected,
                    "{setting}: {named}"
                );
            }
        }
    }
}

/// Nothing says which value of a repeated parameter DICT reads, so the list counts in both buckets.
#[test]
fn a_role_that_is_given_twice_with_different_values_counts_in_both_buckets() {
    let table = super::table();
    for roles in ["IsDonor=true&IsDonor=false", "IsDonor=false&IsDonor=true"] {
        let query = format!("Participant={ISPB}&{roles}");
        let found = buckets(&table, "GET", "/api/v2/claims/", &query, &[], None);
        let policies: Vec<&str> = found.iter().map(|(policy, _)| policy.as_str()).collect();
        let both = ["CLAIMS_LIST_WITH_ROLE", "CLAIMS_LIST_WITHOUT_ROLE"];
        assert_eq!(policies, both, "{roles}");
    }
}

#[test]
fn refunds_are_filtered_when_a_role_is_named() {
    let table = super::table();
    for (roles, expected) in [
        ("", "REFUND_LIST_WITHOUT_ROLE"),
        ("&ParticipantRole=", "REFUND_LIST_WITHOUT_ROLE"),
        ("&ParticipantRole=REQUESTING", "REFUND_LIST_WITH_ROLE"),
        ("&ParticipantRole=CONTESTED", "REFUND_LIST_WITH_ROLE"),
    ] {
        assert_eq!(
            list_bucket(&table, "/api/v2/refunds/", roles),
            expected,
            "{roles}"
        );
    }
}

#[test]
fn the_first_version_calls_the_roles_debited_and_credited() {
    let table = Table::new(profiles::named("dict-1.8.0").unwrap()).unwrap();
    let path = "/api/v1/infraction-reports/";
    for (roles, expected) in [
        ("&IsDebited=true", "INFRACTION_REPORTS_LIST_WITH_ROLE"),
        ("&IsCredited=true", "INFRACTION_REPORTS_LIST_WITH_ROLE"),
        ("&IsReporter=true", "INFRACTION_REPORTS_LIST_WITHOUT_ROLE"),
    ] {
        assert_eq!(list_bucket(&table, path, roles), expected, "{roles}");
    }
}
