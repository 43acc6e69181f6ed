//! Sentences of the manual and of the API that the simulator once did not follow, one test each.

use reqwest::Method;
use serde_json::{Value, json};

use super::schema::Api;
use super::world::{Draft, OTHER, OWNER, World};
use super::xml::Node;
use crate::test_server::{
    CALLER, KEY_HOLDER, PERSON, create_entry, delete_entry, error_type, text_of,
};

/// A third participant, which receives what the key holder's customer passes on.
const THIRD: &str = "33333333";

const SERVED: [(&str, &str); 1] = [("deprecated_operations", "served")];

/// A payment of the payee of [`World::payment`] to somebody at another participant.
fn onward(credited: &str) -> Value {
    json!({"payer": OWNER, "payee_tax_id": OTHER, "participant": KEY_HOLDER,
           "credited_participant": credited})
}

/// A funds recovery with a second layer at `credited`: its id and the ids of both transactions.
async fn recovery_to(world: &World<'_>, credited: &str) -> (String, String, String) {
    let root = world.payment(json!({})).await;
    let second = world.payment(onward(credited)).await;
    let draft = world.recovery_draft(&root);
    let made = world.ok("createFundsRecovery", &draft).await;
    let id = made.at("FundsRecovery/Id").unwrap().to_owned();
    (id, root, second)
}

/// The reports of a funds recovery: their ids, transactions and counterparties.
async fn reports_of(world: &World<'_>, recovery: &str) -> Vec<(String, String, String)> {
    let operation = "listFundsRecoveryInfractionReports";
    let reports = world.ok(operation, &Draft::at(recovery)).await;
    let reports = &reports.child("InfractionReports").unwrap().children;
    let text = |report: &Node, name: &str| report.at(name).unwrap().to_owned();
    let read = |report: &Node| {
        (
            text(report, "Id"),
            text(report, "TransactionId"),
            text(report, "CounterpartyParticipant"),
        )
    };
    reports.iter().map(read).collect()
}

async fn close_report(world: &World<'_>, id: &str, by: &str, result: &str) {
    let step = world.report_step(id, by);
    world.ok("acknowledgeInfractionReport", &step).await;
    let step = world.close_step(id, result).with("Participant", by);
    world.ok("closeInfractionReport", &step).await;
}

async fn refunds_of(world: &World<'_>, recovery: &str) -> Vec<Node> {
    let refunds = world
        .ok("listFundsRecoveryRefunds", &Draft::at(recovery))
        .await;
    refunds.child("Refunds").unwrap().children.clone()
}

/// A funds recovery with two layers whose reports were agreed to, and whose root was refunded in part.
async fn with_second_refund(world: &World<'_>) -> (String, Node) {
    let (id, _, second) = recovery_to(world, THIRD).await;
    for (report, _, counterparty) in reports_of(world, &id).await {
        close_report(world, &report, &counterparty, "AGREED").await;
    }
    let step = world.recovery_step(&id);
    world.ok("refundFundsRecovery", &step).await;
    let first = refunds_of(world, &id).await[0].at("Id").unwrap().to_owned();
    let close = world.refund_close_step(&first);
    world.ok("closeRefund", &close).await;
    let refunds = refunds_of(world, &id).await;
    assert_eq!(refunds.len(), 2, "{refunds:?}");
    assert_eq!(refunds[1].at("TransactionId"), Some(&*second));
    (id, refunds[1].clone())
}

#[tokio::test]
async fn a_refund_of_a_following_transaction_is_closed_with_a_pacs_008() {
    let api = Api::load();
    let world = World::new(&api, &[], false).await;
    let (_, refund) = with_second_refund(&world).await;
    let refund = refund.at("Id").unwrap();
    let step = world.refund_close_step(refund).with("Participant", THIRD);
    let of = |more: Value| {
        let mut order = json!({"participant": THIRD, "credited_participant": CALLER,
                               "payer": OTHER, "payee_tax_id": PERSON});
        for (name, value) in more.as_object().unwrap() {
            order[name] = value.clone();
        }
        order
    };
    let returned = world.payment(of(json!({"message": "pacs.004"}))).await;
    let other = world.payment(of(json!({"purpose": "IPAY"}))).await;
    let paid = world.payment(of(json!({"purpose": "IPRT"}))).await;
    for (transaction, expected) in [
        (returned, "TransactionTypeInvalid"),
        (other, "RefundTransactionInvalid"),
    ] {
        let draft = step.clone().with("RefundTransactionId", transaction);
        let (status, body) = world.send("closeRefund", &draft, false).await;
        assert_eq!((status, error_type(&body)), (400, expected), "{body}");
    }
    let draft = step.with("RefundTransactionId", &*paid);
    world.ok("closeRefund", &draft).await;
    // A payment that refunds a following transaction is no root itself.
    let draft = world.recovery_draft(&paid).with("Participant", THIRD);
    let (status, body) = world.send("createFundsRecovery", &draft, false).await;
    let expected = (400, "FundsRecoveryTransactionNotEligible");
    assert_eq!((status, error_type(&body)), expected, "{body}");
}

#[tokio::test]
async fn while_a_claim_is_confirmed_nobody_can_register_the_key() {
    let api = Api::load();
    let world = World::new(&api, &[], false).await;
    for claim_type in ["OWNERSHIP", "PORTABILITY"] {
        let (claim, key) = world.claim_confirmed(claim_type).await;
        for participant in [KEY_HOLDER, CALLER, THIRD] {
            let draft = world.entry_draft().with("Entry/Key", &*key);
            let draft = draft.with("Entry/Account/Participant", participant);
            let (status, body) = world.send("createEntry", &draft, false).await;
            let expected = (400, "EntryLockedByClaim");
            assert_eq!(
                (status, error_type(&body)),
                expected,
                "{participant}: {body}"
            );
        }
        let draft = world.claim_draft("OWNERSHIP", &key);
        let (status, body) = world.send("createClaim", &draft, false).await;
        let expected = (400, "ClaimAlreadyExistsForKey");
        assert_eq!((status, error_type(&body)), expected, "{body}");
        let step = world.claim_step(&claim, CALLER, "");
        world.ok("completeClaim", &step).await;
    }
    // Cancelling frees the key.
    let (claim, key) = world.claim_confirmed("OWNERSHIP").await;
    let step = world.claim_step(&claim, CALLER, "USER_REQUESTED");
    world.ok("cancelClaim", &step).await;
    let draft = world.entry_draft().with("Entry/Key", key);
    world.ok("createEntry", &draft).await;
}

#[tokio::test]
async fn max_hops_counts_layers_with_the_root_as_the_first() {
    let api = Api::load();
    let world = World::new(&api, &[], false).await;
    for (hops, layers) in [("1", 1), ("2", 2)] {
        let people = ["1", "2", "3"].map(|last| format!("555666777{hops}{last}"));
        let root = world.payment(json!({"payee_tax_id": people[0]})).await;
        for pair in people.windows(2) {
            let order = json!({"payer": pair[0], "payee_tax_id": pair[1],
                               "participant": KEY_HOLDER, "credited_participant": THIRD});
            world.payment(order).await;
        }
        let draft = world.recovery_draft(&root);
        let draft = draft.with("TrackingGraphParameters/MaxHops", hops);
        let made = world.ok("createFundsRecovery", &draft).await;
        let graph = made.child("TrackingGraph").unwrap();
        let transactions = &graph.child("Transactions").unwrap().children;
        assert_eq!(transactions.len(), layers, "{made:?}");
    }
}

#[tokio::test]
async fn no_refund_is_requested_beyond_a_transaction_that_was_not_agreed_to() {
    let api = Api::load();
    let world = World::new(&api, &SERVED, false).await;
    // Two branches of the second layer, of which one is disagreed with.
    let root = world.payment(json!({})).await;
    let refused = world.payment(onward(THIRD)).await;
    let agreed = world.payment(onward(THIRD)).await;
    let draft = world.recovery_draft(&root);
    let made = world.ok("createFundsRecovery", &draft).await;
    let id = made.at("FundsRecovery/Id").unwrap();
    let step = world.recovery_step(id);
    world.ok("createTrackingGraph", &step).await;
    let step = step.with("PrioritizationStrategy", "STANDARD_ALGORITHM");
    world.ok("blockFundsRecovery", &step).await;
    for (report, transaction, counterparty) in reports_of(&world, id).await {
        let result = if transaction == refused {
            "DISAGREED"
        } else {
            "AGREED"
        };
        close_report(&world, &report, &counterparty, result).await;
    }
    world
        .ok("refundFundsRecovery", &world.recovery_step(id))
        .await;
    let mut refunded = Vec::new();
    loop {
        let refunds = refunds_of(&world, id).await;
        let Some(open) = refunds.iter().find(|own| own.at("Status") == Some("OPEN")) else {
            break;
        };
        refunded.push(open.at("TransactionId").unwrap().to_owned());
        let contested = open.at("ContestedParticipant").unwrap();
        let close = world
            .refund_close_step(open.at("Id").unwrap())
            .with("Participant", contested)
            .with("EffectiveRefundedAmount", "1.00");
        world.ok("closeRefund", &close).await;
    }
    assert_eq!(refunded, [root, agreed]);
}

#[tokio::test]
async fn monitor_account_is_true_only_if_the_roots_receiver_is_the_only_participant_notified() {
    let api = Api::load();
    let world = World::new(&api, &[], false).await;
    for (second, expected) in [(KEY_HOLDER, "true"), (THIRD, "false")] {
        let (id, _, _) = recovery_to(&world, second).await;
        for (report, _, counterparty) in reports_of(&world, &id).await {
            close_report(&world, &report, &counterparty, "AGREED").await;
        }
        world
            .ok("refundFundsRecovery", &world.recovery_step(&id))
            .await;
        let refunds = refunds_of(&world, &id).await;
        assert_eq!(refunds[0].at("MonitorAccount"), Some(expected), "{second}");
    }
}

#[tokio::test]
async fn a_root_below_min_transaction_amount_is_not_indexed() {
    let api = Api::load();
    let world = World::new(&api, &[], false).await;
    for (amount, least, expected) in [
        ("199.99", None, 400),
        ("200.00", None, 201),
        ("199.99", Some("100.00"), 201),
        ("250.00", Some("300.00"), 400),
    ] {
        let root = world.payment(json!({"amount": amount})).await;
        let mut draft = world.recovery_draft(&root);
        if let Some(least) = least {
            draft = draft.with("TrackingGraphParameters/MinTransactionAmount", least);
        }
        let (status, body) = world.send("createFundsRecovery", &draft, false).await;
        assert_eq!(status, expected, "{amount} {least:?}: {body}");
        if status == 400 {
            assert_eq!(error_type(&body), "FundsRecoveryTransactionNotIndexed");
        }
    }
}

#[tokio::test]
async fn a_pacs_004_can_be_a_root_unless_it_returned_an_operational_flaw() {
    let api = Api::load();
    let world = World::new(&api, &[], false).await;
    let order = json!({"message": "pacs.004", "participant": KEY_HOLDER, "payer": OWNER,
                       "credited_participant": CALLER, "payee_tax_id": PERSON});
    let returned = world.payment(order.clone()).await;
    let draft = world
        .recovery_draft(&returned)
        .with("Participant", KEY_HOLDER);
    world.ok("createFundsRecovery", &draft).await;
    let (refund, _) = world.refund().await;
    let returned = world.payment(order).await;
    let close = world.refund_close_step(&refund);
    let close = close.with("RefundTransactionId", &*returned);
    world.ok("closeRefund", &close).await;
    let draft = world
        .recovery_draft(&returned)
        .with("Participant", KEY_HOLDER);
    let (status, body) = world.send("createFundsRecovery", &draft, false).await;
    let expected = (400, "FundsRecoveryTransactionNotEligible");
    assert_eq!((status, error_type(&body)), expected, "{body}");
}

#[tokio::test]
async fn an_operational_flaw_is_refunded_within_ninety_days_of_its_transaction() {
    let api = Api::load();
    let world = World::new(&api, &[], false).await;
    let (in_time, late) = (
        world.payment(json!({})).await,
        world.payment(json!({})).await,
    );
    world.days(90).await;
    world
        .ok("createRefund", &world.refund_draft(&in_time))
        .await;
    world.days(1).await;
    let draft = world.refund_draft(&late);
    let (status, body) = world.send("createRefund", &draft, false).await;
    assert_eq!(
        (status, error_type(&body)),
        (400, "RefundPeriodExpired"),
        "{body}"
    );
}

#[tokio::test]
async fn a_string_that_is_no_key_has_no_entry() {
    let api = Api::load();
    let world = World::new(&api, &[], false).await;
    let body = "<CheckKeysRequest><Keys><Key>no key at all</Key><Key>ana@example.com</Key>\
                </Keys></CheckKeysRequest>";
    let path = "/api-np/v2/keys/check";
    let answer = world
        .server
        .send(Method::POST, path, &[], Some(body.to_owned()));
    let answer = answer.await;
    assert_eq!(answer.status(), 200);
    let text = answer.text().await.unwrap();
    assert!(
        text.contains("<Key hasEntry=\"false\">no key at all</Key>"),
        "{text}"
    );
    assert!(
        text.contains("<Key hasEntry=\"true\">ana@example.com</Key>"),
        "{text}"
    );
}

#[tokio::test]
async fn create_entry_repeated_with_another_opening_date_is_a_repetition() {
    let api = Api::load();
    let world = World::new(&api, &[], false).await;
    let body = create_entry("PHONE", "+5561911110001", CALLER, PERSON, 1);
    let (status, first) = world.server.post("/entries/", body.clone()).await;
    assert_eq!(status, 201, "{first}");
    let other = body.replace("2010-01-10T03:00:00Z", "2011-02-03T03:00:00Z");
    let (status, again) = world.server.post("/entries/", other).await;
    assert_eq!(status, 201, "{again}");
    assert_eq!(
        text_of(&first, "CreationDate"),
        text_of(&again, "CreationDate")
    );
    // What the content id contains makes it another entry.
    let other = body.replace("0007654321", "0007654322");
    let (status, body) = world.server.post("/entries/", other).await;
    assert_eq!((status, error_type(&body)), (400, "RequestIdAlreadyUsed"));
}

#[tokio::test]
async fn a_request_id_stays_used_after_delete_entry() {
    let api = Api::load();
    let world = World::new(&api, &[], false).await;
    let (key, path) = ("+5561911110002", "/entries/%2B5561911110002/delete");
    let body = create_entry("PHONE", key, CALLER, PERSON, 2);
    let (status, _) = world.server.post("/entries/", body.clone()).await;
    assert_eq!(status, 201);
    let (status, deleted) = world.server.post(path, delete_entry(key, CALLER)).await;
    assert_eq!(status, 200, "{deleted}");
    let (status, again) = world.server.post("/entries/", body).await;
    assert_eq!((status, error_type(&again)), (400, "RequestIdAlreadyUsed"));
    // Also when the key was registered again, by another request.
    let body = create_entry("PHONE", key, CALLER, PERSON, 3);
    let (status, _) = world.server.post("/entries/", body).await;
    assert_eq!(status, 201);
    let body = create_entry("PHONE", key, CALLER, PERSON, 2);
    let (status, again) = world.server.post("/entries/", body).await;
    assert_eq!((status, error_type(&again)), (400, "RequestIdAlreadyUsed"));
}

#[tokio::test]
async fn an_ispb_of_seven_characters_is_entry_invalid_with_the_violated_field() {
    let api = Api::load();
    let world = World::new(&api, &[], false).await;
    let body = create_entry("PHONE", "+5561911110004", "1234567", PERSON, 4);
    let (status, body) = world.server.post("/entries/", body).await;
    assert_eq!((status, error_type(&body)), (400, "EntryInvalid"), "{body}");
    assert_eq!(text_of(&body, "property"), "entry.account.participant");
    assert_eq!(text_of(&body, "value"), "1234567");
    let expected = "Value does not match regex &apos;^(?i)[a-z0-9]{8}&apos;";
    assert_eq!(text_of(&body, "reason"), expected);
}

#[tokio::test]
async fn an_element_that_appears_twice_with_different_values_is_refused() {
    let api = Api::load();
    let world = World::new(&api, &[], false).await;
    let body = create_entry("PHONE", "+5561911110005", CALLER, PERSON, 5);
    let number = "<AccountNumber>0007654321</AccountNumber>";
    let same = body.replace(number, &number.repeat(2));
    let (status, answer) = world.server.post("/entries/", same).await;
    assert_eq!(status, 201, "{answer}");
    for (element, other) in [
        (number, "<AccountNumber>1</AccountNumber>"),
        ("<Branch>0001</Branch>", "<Branch>0002</Branch>"),
        (
            "<RequestId>",
            "<RequestId>a946d533-7f22-42a5-9a9b-000000000099</RequestId>",
        ),
    ] {
        let body = create_entry("PHONE", "+5561911110006", CALLER, PERSON, 6);
        let twice = body.replace(element, &format!("{other}{element}"));
        let (status, answer) = world.server.post("/entries/", twice).await;
        assert_eq!(
            (status, error_type(&answer)),
            (400, "EntryInvalid"),
            "{answer}"
        );
        let reason = "appears several times with different values";
        assert_eq!(text_of(&answer, "reason"), reason);
    }
}

#[tokio::test]
async fn the_cid_uses_the_ispb_as_stored_whatever_its_letters_were() {
    let api = Api::load();
    let world = World::new(&api, &[], false).await;
    let key = "+5561911110007";
    let body = create_entry("PHONE", key, "ab345678", PERSON, 7);
    let (status, answer) = world.server.post("/entries/", body).await;
    assert_eq!(status, 201, "{answer}");
    assert_eq!(text_of(&answer, "Participant"), "AB345678");
    let cid = cid(key, "AB345678", "a946d533-7f22-42a5-9a9b-000000000007");
    for spelling in ["AB345678", "ab345678", "Ab345678"] {
        let sync = format!(
            "<CreateSyncVerificationRequest><SyncVerification><Participant>{spelling}</Participant>\
             <KeyType>PHONE</KeyType><ParticipantSyncVerifier>{cid}</ParticipantSyncVerifier>\
             </SyncVerification></CreateSyncVerificationRequest>"
        );
        let (status, answer) = world.server.post("/sync-verifications/", sync).await;
        assert_eq!(status, 201, "{answer}");
        assert_eq!(text_of(&answer, "Result"), "OK");
        let path = format!("/cids/entries/{cid}");
        let (status, answer) = world.server.get(&path, spelling).await;
        assert_eq!(status, 200, "{answer}");
    }
}

/// A content id, computed from the published description.
fn cid(key: &str, participant: &str, request_id: &str) -> String {
    let content = format!("PHONE&{key}&{PERSON}&João Silva&&{participant}&0001&0007654321&CACC");
    let digits = request_id.replace('-', "");
    let bytes = u128::from_str_radix(&digits, 16).unwrap().to_be_bytes();
    let hmac = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &bytes);
    hex::encode(ring::hmac::sign(&hmac, content.as_bytes()))
}

#[tokio::test]
async fn list_fraud_markers_pages_within_limit() {
    let api = Api::load();
    let world = World::new(&api, &[], false).await;
    for _ in 0..5 {
        world.marker().await;
    }
    let base = format!("/fraud-markers/?Participant={CALLER}&TaxIdNumber={OWNER}");
    for (query, expected) in [
        ("&Limit=2", 2),
        ("&Limit=2&page.itemsPerPage=4", 2),
        ("&Limit=2&page.pageNumber=2", 1),
        ("&page.itemsPerPage=4&page.pageNumber=1", 1),
    ] {
        let (status, body) = world.server.get(&format!("{base}{query}"), CALLER).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(
            body.matches("<FraudMarker>").count(),
            expected,
            "{query}: {body}"
        );
    }
}

#[tokio::test]
async fn refund_cancelled_by_rtr_id_is_only_for_the_right_side() {
    let api = Api::load();
    let world = World::new(&api, &SERVED, false).await;
    let order = json!({"message": "pacs.004", "participant": KEY_HOLDER, "payer": OWNER,
                       "credited_participant": CALLER, "payee_tax_id": PERSON});
    for is_announced in [true, false] {
        let returned = if is_announced {
            world.payment(order.clone()).await
        } else {
            // The id of a return names the participant that sent it.
            world
                .transaction_id()
                .replacen(&format!("E{CALLER}"), &format!("D{KEY_HOLDER}"), 1)
        };
        for (participant, expected) in [(CALLER, 403), (KEY_HOLDER, 201)] {
            let draft = world
                .report_draft(&returned)
                .with("InfractionReport/Reason", "REFUND_CANCELLED")
                .with("InfractionReport/SituationType", "OTHER")
                .with("InfractionReport/ReportDetails", "detalhes")
                .with("Participant", participant);
            let (status, body) = world.send("createInfractionReport", &draft, false).await;
            assert_eq!(status, expected, "{participant}, {is_announced}: {body}");
            let draft = world
                .refund_draft(&returned)
                .with("Refund/RefundReason", "REFUND_CANCELLED")
                .with("Participant", participant);
            let (status, body) = world.send("createRefund", &draft, false).await;
            assert_eq!(status, expected, "{participant}, {is_announced}: {body}");
        }
    }
}

#[tokio::test]
async fn a_block_list_must_contain_the_root_and_begin_with_it() {
    let api = Api::load();
    let world = World::new(&api, &SERVED, false).await;
    for (order, expected) in [
        ("second", 400),
        ("second, root", 400),
        ("root, second", 200),
    ] {
        let (id, root, second) = recovery_to(&world, THIRD).await;
        world
            .ok("createTrackingGraph", &world.recovery_step(&id))
            .await;
        let listed = order.split(", ").map(|name| {
            let id = if name == "root" { &root } else { &second };
            format!("<TransactionId>{id}</TransactionId>")
        });
        let body = format!(
            "<BlockFundsRecoveryRequest><FundsRecoveryId>{id}</FundsRecoveryId>\
             <Participant>{CALLER}</Participant>\
             <PrioritizationStrategy>TRANSACTION_LIST</PrioritizationStrategy>\
             <Transactions>{}</Transactions></BlockFundsRecoveryRequest>",
            listed.collect::<String>()
        );
        let operation = api.operation("blockFundsRecovery");
        let draft = Draft::at(&*id);
        let (status, body) = world.send_raw(operation, &draft, Some(body)).await;
        assert_eq!(status, expected, "{order}: {body}");
        if status == 400 {
            assert_eq!(error_type(&body), "FundsRecoveryPrioritizationInvalid");
        }
    }
}

#[tokio::test]
async fn violations_details_and_reasons_have_the_published_wording() {
    let api = Api::load();
    let world = World::new(&api, &[], false).await;
    let reason = "Value does not match regex &apos;^\\+[1-9]\\d{1,14}$&apos;";
    let entry = world.entry_draft().with("Entry/Key", "61988887777");
    let claim = world.claim_draft("OWNERSHIP", "61988887777");
    for (operation, draft, subject, property) in [
        ("createEntry", entry, "Entry", "entry.key"),
        ("createClaim", claim, "Claim", "claim.key"),
    ] {
        let (status, body) = world.send(operation, &draft, false).await;
        assert_eq!(status, 400, "{body}");
        assert_eq!(text_of(&body, "title"), format!("{subject} is invalid"));
        assert_eq!(
            text_of(&body, "detail"),
            format!("{subject} has invalid fields")
        );
        assert_eq!(text_of(&body, "reason"), reason);
        assert_eq!(text_of(&body, "value"), "61988887777");
        assert_eq!(text_of(&body, "property"), property);
    }
}

#[tokio::test]
async fn a_payment_order_without_initiator_credits_the_ispb_in_its_end_to_end_id() {
    let api = Api::load();
    let world = World::new(&api, &[], false).await;
    let server = &world.server;
    let (key, policy) = (crate::test_server::KEY, "ENTRIES_READ_PARTICIPANT_ANTISCAN");
    let id = format!("E{THIRD}20260101000000000000001");
    let before = server.level(policy, THIRD, None).await;
    let answer = server.get_entry_as(THIRD, key, PERSON, &id).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(server.level(policy, THIRD, None).await, before - 1);
    // The payer's participant sends the order; the initiator looked the key up.
    assert!(server.send_order(CALLER, PERSON, &id).await);
    assert_eq!(server.level(policy, THIRD, None).await, before);
}

#[tokio::test]
async fn whether_a_recoverys_reports_have_contact_data_is_a_setting() {
    let api = Api::load();
    for (word, expected) in [("shown", true), ("hidden", false)] {
        let world = World::new(&api, &[("recovery_report_contact", word)], false).await;
        let id = world.recovery().await;
        let operation = "listFundsRecoveryInfractionReports";
        let (status, body) = world.send(operation, &Draft::at(id), false).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(body.contains("<ContactInformation>"), expected, "{word}");
    }
}
