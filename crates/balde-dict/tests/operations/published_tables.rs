//! The profiles against a second transcription of the published tables, made by hand and apart from
//! the files.

use balde_core::{Limit, Strategy};
use balde_dict::{Category, PAYMENT_ORDER, PayerKind, Policy, Profile, Settings, Table, profiles};
use balde_policy::Setting;

const PERSON_AND_COMPANY: u64 = 0;
const BY_CATEGORY: u64 = 1;

/// Name, scope, refill, period in seconds, capacity. A period of 0 or 1 stands for variants.
const API_2_12_1: [(&str, &str, u64, u64, u64); 31] = [
    (
        "ENTRIES_READ_USER_ANTISCAN",
        "USER",
        0,
        PERSON_AND_COMPANY,
        0,
    ),
    (
        "ENTRIES_READ_USER_ANTISCAN_V2",
        "USER",
        0,
        PERSON_AND_COMPANY,
        0,
    ),
    (
        "ENTRIES_READ_PARTICIPANT_ANTISCAN",
        "PSP",
        0,
        BY_CATEGORY,
        0,
    ),
    ("ENTRIES_STATISTICS_READ", "PSP", 0, BY_CATEGORY, 0),
    ("ENTRIES_WRITE", "PSP", 1_200, 60, 36_000),
    ("ENTRIES_UPDATE", "PSP", 600, 60, 600),
    ("CLAIMS_READ", "PSP", 600, 60, 18_000),
    ("CLAIMS_WRITE", "PSP", 1_200, 60, 36_000),
    ("CLAIMS_LIST_WITH_ROLE", "PSP", 40, 60, 200),
    ("CLAIMS_LIST_WITHOUT_ROLE", "PSP", 10, 60, 50),
    ("SYNC_VERIFICATIONS_WRITE", "PSP", 10, 60, 50),
    ("CIDS_FILES_WRITE", "PSP", 40, 86_400, 200),
    ("CIDS_FILES_READ", "PSP", 10, 60, 50),
    ("CIDS_EVENTS_LIST", "PSP", 20, 60, 100),
    ("CIDS_ENTRIES_READ", "PSP", 1_200, 60, 36_000),
    ("INFRACTION_REPORTS_READ", "PSP", 600, 60, 18_000),
    ("INFRACTION_REPORTS_WRITE", "PSP", 1_200, 60, 36_000),
    ("INFRACTION_REPORTS_LIST_WITH_ROLE", "PSP", 40, 60, 200),
    ("INFRACTION_REPORTS_LIST_WITHOUT_ROLE", "PSP", 10, 60, 50),
    ("KEYS_CHECK", "PSP", 70, 60, 70),
    ("REFUNDS_READ", "PSP", 1_200, 60, 36_000),
    ("REFUNDS_WRITE", "PSP", 2_400, 60, 72_000),
    ("REFUND_LIST_WITH_ROLE", "PSP", 40, 60, 200),
    ("REFUND_LIST_WITHOUT_ROLE", "PSP", 10, 60, 50),
    ("FRAUD_MARKERS_READ", "PSP", 600, 60, 18_000),
    ("FRAUD_MARKERS_WRITE", "PSP", 1_200, 60, 36_000),
    ("FRAUD_MARKERS_LIST", "PSP", 600, 60, 18_000),
    ("PERSONS_STATISTICS_READ", "PSP", 12_000, 60, 36_000),
    ("POLICIES_READ", "PSP", 60, 60, 200),
    ("POLICIES_LIST", "PSP", 6, 60, 20),
    ("EVENT_LIST", "PSP", 40, 60, 200),
];

/// Refill a minute and capacity.
const CATEGORIES_2_12_1: [(char, u64, u64); 8] = [
    ('A', 25_000, 50_000),
    ('B', 20_000, 40_000),
    ('C', 15_000, 30_000),
    ('D', 8_000, 16_000),
    ('E', 2_500, 5_000),
    ('F', 250, 500),
    ('G', 25, 250),
    ('H', 2, 50),
];

const CATEGORIES_1_8_0: [(char, u64, u64); 6] = [
    ('A', 12_000, 20_000),
    ('B', 8_000, 15_000),
    ('C', 2_000, 8_000),
    ('D', 500, 4_000),
    ('E', 50, 3_000),
    ('F', 2, 1_000),
];

fn numbers(limit: &Limit) -> (u64, u64, u64) {
    assert_eq!(limit.period_us() % 1_000_000, 0);
    let seconds = limit.period_us() / 1_000_000;
    (limit.refill_tokens(), seconds, limit.capacity())
}

struct Expected {
    profile: Profile,
    categories: Vec<(char, u64, u64)>,
    company_refill: u64,
    company_credit: u64,
    rows: Vec<(&'static str, &'static str, u64, u64, u64)>,
}

fn published() -> [Expected; 3] {
    let manual = API_2_12_1.map(|row| match row.0 {
        "ENTRIES_WRITE" => ("ENTRIES_WRITE", "PSP", 800, 60, 1_200),
        "CIDS_EVENTS_LIST" => ("CIDS_EVENTS_LIST", "PSP", 40, 60, 200),
        _ => row,
    });
    let gone = [
        "FRAUD_MARKERS_READ",
        "FRAUD_MARKERS_WRITE",
        "FRAUD_MARKERS_LIST",
        "PERSONS_STATISTICS_READ",
        "ENTRIES_STATISTICS_READ",
        "EVENT_LIST",
    ];
    let mut old = API_2_12_1.to_vec();
    old.retain(|row| !gone.contains(&row.0));
    old.push(("STATISTICS_READ", "PSP", 500, 60, 500));
    assert_eq!(old.len(), 26);
    let of = |name: &str| profiles::named(name).expect("it ships");
    [
        Expected {
            profile: of("dict-2.12.1"),
            categories: CATEGORIES_2_12_1.to_vec(),
            company_refill: 20,
            company_credit: 2,
            rows: API_2_12_1.to_vec(),
        },
        Expected {
            profile: of("dict-manual-8.0"),
            categories: CATEGORIES_2_12_1.to_vec(),
            company_refill: 20,
            company_credit: 2,
            rows: manual.to_vec(),
        },
        Expected {
            profile: of("dict-1.8.0"),
            categories: CATEGORIES_1_8_0.to_vec(),
            company_refill: 2,
            company_credit: 1,
            rows: old,
        },
    ]
}

/// The limit of a policy for a participant of a category or a payer of a kind.
fn limit_of(policy: &Policy, category: Category, payer: Option<PayerKind>) -> Option<&Limit> {
    match policy.limits().variant() {
        Some("category") => policy.limit(Some(category.as_str())),
        _ => policy.limit(payer.map(PayerKind::as_str)),
    }
}

#[test]
fn every_profile_has_the_published_numbers_and_no_other_policy() {
    for expected in published() {
        let table = Table::new(expected.profile).unwrap_or_else(|error| panic!("{error}"));
        let name = table.profile().name();
        assert_eq!(
            table.profile().policies().len(),
            expected.rows.len(),
            "{name}"
        );
        for (policy, scope, refill, period, capacity) in expected.rows {
            let index = table.policy_index(policy);
            let index = index.unwrap_or_else(|| panic!("{name} lacks {policy}"));
            assert_eq!(table.policy(index).scope().name(), scope, "{policy}");
            let limit = |category, payer| {
                let category = Category::new(category).unwrap();
                limit_of(table.policy(index), category, payer).map(numbers)
            };
            match period {
                PERSON_AND_COMPANY => {
                    assert_eq!(limit('A', Some(PayerKind::Pf)), Some((2, 60, 100)));
                    let company = Some((expected.company_refill, 60, 1_000));
                    assert_eq!(limit('A', Some(PayerKind::Pj)), company, "{name}");
                }
                BY_CATEGORY => {
                    for (letter, refill, capacity) in &expected.categories {
                        let numbers = Some((*refill, 60, *capacity));
                        assert_eq!(limit(*letter, None), numbers, "{name} {letter}");
                    }
                    let last = expected.categories.last().unwrap().0;
                    let beyond = char::from(u8::try_from(last).unwrap() + 1);
                    assert_eq!(limit(beyond, None), None, "{name} ends at {last}");
                }
                _ => assert_eq!(
                    limit('A', None),
                    Some((refill, period, capacity)),
                    "{policy}"
                ),
            }
        }
    }
}

#[test]
fn payment_orders_give_back_one_and_to_companies_two() {
    for expected in published() {
        let table = Table::new(expected.profile).unwrap();
        for (policy, ..) in expected.rows {
            let index = table.policy_index(policy).unwrap();
            let credits = [PayerKind::Pf, PayerKind::Pj].map(|payer| {
                table
                    .policy(index)
                    .credit(PAYMENT_ORDER, Some(payer.as_str()))
            });
            let given = match policy {
                "ENTRIES_READ_USER_ANTISCAN" | "ENTRIES_READ_USER_ANTISCAN_V2" => {
                    [1, expected.company_credit]
                }
                "ENTRIES_READ_PARTICIPANT_ANTISCAN" => [1, 1],
                _ => [0, 0],
            };
            assert_eq!(credits, given, "{policy}");
        }
    }
}

#[test]
fn every_open_question_has_a_named_setting_with_its_documented_default() {
    let names = [
        "refill",
        "refill_time_zone",
        "start",
        "cost_of_429",
        "cost_of_other_lookups",
        "in_flight",
        "role_filter",
        "credit_once",
        "credit_deadline",
        "credit_above_capacity",
        "credit_statuses",
        "retry_after_on_429",
        "trailing_slash",
        "api_version",
        "deprecated_operations",
        "funds_recovery_policy",
        "participant_when_absent",
        "claim_period_start",
        "claim_reason_error",
        "cancelled_claim_entry",
        "funds_recovery_repeats",
        "cancel_while_refunding",
        "event_recipients",
        "unknown_funds_recovery_status",
        "unknown_policy_status",
        "unregistered_key_statistics",
        "cid_file_delay",
        "cache_max_age",
        "problem_correlation_id",
        "recovery_report_contact",
        "answer_signature_key_info",
    ];
    for (name, text) in profiles::TEXTS {
        let profile = Profile::parse(text).unwrap();
        let found: Vec<&str> = profile.settings().iter().map(Setting::name).collect();
        assert_eq!(found, names, "{name}");
        // What the files write is what is assumed when they write nothing.
        let bare = Profile::new("bare");
        let mut expected = Settings::of(&bare).unwrap();
        if name == "dict-1.8.0" {
            // What was not deprecated then.
            expected.is_version_1 = true;
            expected.serve_deprecated = true;
        }
        assert_eq!(Settings::of(&profile).unwrap(), expected);
    }
}

#[test]
fn settings_are_worked_into_the_policies() {
    let with = |settings: &[(&str, &str)]| {
        let profile = profiles::named_with("dict-2.12.1", settings).unwrap();
        Table::new(profile.unwrap_or_else(|error| panic!("{error}"))).unwrap()
    };
    let limit = |table: &Table, name: &str| {
        let index = table.policy_index(name).unwrap();
        *limit_of(table.policy(index), Category::A, None).unwrap()
    };
    let plain = with(&[]);
    assert_eq!(
        limit(&plain, "ENTRIES_WRITE").strategy(),
        Strategy::Continuous
    );
    let changed = with(&[
        ("refill", "stepwise"),
        ("cost_of_429", "1"),
        ("cost_of_other_lookups", "2"),
        ("credit_statuses", "200, 404"),
    ]);
    for policy in changed.profile().policies() {
        for (_, limit) in policy.limits().iter() {
            assert_eq!(limit.strategy(), Strategy::Stepwise, "{}", policy.name());
        }
        assert_eq!(policy.cost(429), 1, "{}", policy.name());
        let is_lookup = policy.name().contains("ANTISCAN");
        assert_eq!(policy.cost(403), if is_lookup { 2 } else { 1 });
    }
    assert_eq!(changed.settings().credit_statuses, [200, 404]);
}

#[test]
fn settings_that_do_not_exist_or_cannot_be_are_refused() {
    for (name, value, reason) in [
        ("refil", "stepwise", "no setting `refil`"),
        (
            "refill",
            "sometimes",
            "must be \"continuous\" or \"stepwise\"",
        ),
        ("credit_above_capacity", "true", "only false is possible"),
        ("cost_of_429", "many", "expected an integer"),
        ("credit_statuses", "200,99", "statuses from 100 to 599"),
        ("role_filter", "maybe", "exactly_one_true"),
    ] {
        let profile = profiles::named_with("dict-2.12.1", &[(name, value)]).unwrap();
        let error = profile.and_then(Table::new).unwrap_err().to_string();
        assert!(error.contains(reason), "{name}={value}: {error}");
    }
}
