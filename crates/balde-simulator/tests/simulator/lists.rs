//! The bucket that a list is counted in depends on its role filter and on a setting.

use balde_dict::{Profile, profiles};
use reqwest::Method;

use crate::test_server::{CALLER, TestServer};

const WITH: &str = "CLAIMS_LIST_WITH_ROLE";
const WITHOUT: &str = "CLAIMS_LIST_WITHOUT_ROLE";

/// The default profile with another `role_filter`.
fn with_role_filter(filter: &str) -> Profile {
    let text = include_str!("../../../balde-dict/profiles/dict-2.12.1.toml");
    let other = text.replace(
        "role_filter = \"exactly_one_true\"",
        &format!("role_filter = \"{filter}\""),
    );
    Profile::parse(&other).expect("a profile")
}

#[tokio::test]
async fn the_setting_decides_which_bucket_counts_a_list_of_claims() {
    // The query, and whether it is filtered by exactly_one_true, any_true and any_present.
    let cases = [
        ("", [false, false, false]),
        ("&IsDonor=true", [true, true, true]),
        ("&IsClaimer=true", [true, true, true]),
        ("&IsDonor=false", [false, false, true]),
        ("&IsDonor=false&IsClaimer=false", [false, false, true]),
        ("&IsDonor=true&IsClaimer=false", [true, true, true]),
        ("&IsDonor=true&IsClaimer=true", [false, true, true]),
        ("&Status=OPEN", [false, false, false]),
    ];
    for (setting, name) in ["exactly_one_true", "any_true", "any_present"]
        .into_iter()
        .enumerate()
    {
        let server = TestServer::with(|builder| builder.profile(with_role_filter(name))).await;
        for (query, filtered) in &cases {
            let before = (
                server.level(WITH, CALLER, None).await,
                server.level(WITHOUT, CALLER, None).await,
            );
            let path = format!("/api/v2/claims/?Participant={CALLER}{query}");
            let response = server.send(Method::GET, &path, &[], None).await;
            assert_eq!(response.status(), 200, "{name} {query}");
            let after = (
                server.level(WITH, CALLER, None).await,
                server.level(WITHOUT, CALLER, None).await,
            );
            let taken = (before.0 - after.0, before.1 - after.1);
            let expected = if filtered[setting] { (1, 0) } else { (0, 1) };
            assert_eq!(taken, expected, "{name} {query}");
        }
    }
}

#[tokio::test]
async fn reports_and_refunds_have_other_role_parameters() {
    let server = TestServer::with(|builder| builder.profile(profiles::default())).await;
    for (path, policy) in [
        (
            "/infraction-reports/?Participant=12345678",
            "INFRACTION_REPORTS_LIST_WITHOUT_ROLE",
        ),
        (
            "/infraction-reports/?Participant=12345678&IsReporter=true",
            "INFRACTION_REPORTS_LIST_WITH_ROLE",
        ),
        ("/refunds/?Participant=12345678", "REFUND_LIST_WITHOUT_ROLE"),
        (
            "/refunds/?Participant=12345678&ParticipantRole=CONTESTED",
            "REFUND_LIST_WITH_ROLE",
        ),
    ] {
        let before = server.level(policy, CALLER, None).await;
        let response = server
            .send(Method::GET, &format!("/api/v2{path}"), &[], None)
            .await;
        // A list of refunds without a role is refused, and counted all the same.
        let is_refused = policy == "REFUND_LIST_WITHOUT_ROLE";
        let expected = if is_refused { 400 } else { 200 };
        assert_eq!(response.status(), expected, "{path}");
        assert_eq!(
            before - server.level(policy, CALLER, None).await,
            1,
            "{path}"
        );
    }
}
