//! Records that requests are about, made through the API itself.

use std::cell::Cell;
use std::time::Duration;

use balde_dict::profiles;
use balde_simulator::directory::DirectoryRules;
use reqwest::Method;
use serde_json::{Value, json};

use super::schema::Api;
use super::xml::Node;
use crate::test_server::{CALLER, KEY_HOLDER, PERSON, TestServer};

pub(super) const OWNER: &str = "99988877700";
pub(super) const OTHER: &str = "11122233305";

/// A request before it is written.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    /// What replaces the parameter of the path.
    pub(super) id: String,
    pub(super) query: String,
    pub(super) participant: Option<&'static str>,
    pub(super) payer: Option<&'static str>,
    pub(super) values: Vec<(&'static str, String)>,
}

impl Draft {
    pub(super) fn at(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            ..Self::default()
        }
    }

    pub(super) fn with(mut self, path: &'static str, value: impl Into<String>) -> Self {
        self.values.retain(|(own, _)| *own != path);
        self.values.push((path, value.into()));
        self
    }

    pub(super) fn by(mut self, participant: &'static str) -> Self {
        self.participant = Some(participant);
        self
    }

    pub(super) fn query(mut self, query: impl Into<String>) -> Self {
        self.query = query.into();
        self
    }
}

/// A simulator and what was made in it. Every record is a new one.
pub(super) struct World<'a> {
    pub(super) api: &'a Api,
    pub(super) server: TestServer,
    /// Whether funds recoveries wait for the deprecated operations.
    pub(super) is_served: bool,
    number: Cell<u64>,
}

#[expect(
    clippy::unused_self,
    reason = "requests are drafted for a world, whether they need a number of it or not"
)]
impl<'a> World<'a> {
    pub(super) async fn new(api: &'a Api, settings: &[(&str, &str)], is_strict: bool) -> Self {
        let profile = profiles::named_with("dict-2.12.1", settings).unwrap();
        let profile = profile.unwrap();
        let rules = DirectoryRules {
            transactions_must_be_known: is_strict,
        };
        let server = TestServer::with(|builder| builder.profile(profile).rules(rules)).await;
        let is_served = settings.contains(&("deprecated_operations", "served"));
        Self {
            is_served,
            ..Self::of(api, server)
        }
    }

    pub(super) fn of(api: &'a Api, server: TestServer) -> Self {
        Self {
            api,
            server,
            is_served: false,
            number: Cell::new(0),
        }
    }

    /// Numbers its records from here on, so that they are not those of another world.
    pub(super) fn numbered_from(self, first: u64) -> Self {
        self.number.set(first);
        self
    }

    pub(super) fn number(&self) -> u64 {
        self.number.set(self.number.get() + 1);
        self.number.get()
    }

    pub(super) fn phone(&self) -> String {
        format!("+55619{:08}", self.number())
    }

    pub(super) fn request_id(&self) -> String {
        format!("a946d533-7f22-42a5-9a9b-{:012x}", self.number())
    }

    pub(super) fn transaction_id(&self) -> String {
        format!("E{CALLER}202601010000{:011}", self.number())
    }

    /// Sends a request of an operation, with everything that its schema has or only with what it
    /// requires.
    pub(super) async fn send(&self, id: &str, draft: &Draft, is_full: bool) -> (u16, String) {
        let operation = self.api.operation(id);
        let body = operation["request"].is_object();
        let body = body.then(|| self.api.request(operation, &draft.values, is_full));
        self.send_raw(operation, draft, body).await
    }

    pub(super) async fn send_raw(
        &self,
        operation: &Value,
        draft: &Draft,
        body: Option<String>,
    ) -> (u16, String) {
        let mut path = operation["path"].as_str().unwrap().to_owned();
        if let (Some(start), Some(end)) = (path.find('{'), path.find('}')) {
            let id = draft.id.replace('+', "%2B");
            path = format!("{}{id}{}", &path[..start], &path[end + 1..]);
        }
        self.api.see_query(operation, &draft.query);
        let is_apart = operation["servers"].is_object();
        let base = if is_apart { "/api-np/v2" } else { "/api/v2" };
        let mut headers = Vec::new();
        let id = self.transaction_id();
        for header in operation["headers"].as_array().unwrap() {
            headers.push(match header["name"].as_str().unwrap() {
                name @ "PI-RequestingParticipant" => (name, draft.participant.unwrap_or(CALLER)),
                name @ "PI-PayerId" => (name, draft.payer.unwrap_or(PERSON)),
                name @ "PI-EndToEndId" => (name, id.as_str()),
                other => panic!("unknown header {other}"),
            });
        }
        let method = operation["method"].as_str().unwrap();
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let query = if draft.query.is_empty() { "" } else { "?" };
        let path = format!("{base}{path}{query}{}", draft.query);
        let response = self.server.send(method, &path, &headers, body).await;
        let status = response.status().as_u16();
        (status, response.text().await.unwrap())
    }

    /// Sends a request that must succeed.
    pub(super) async fn ok(&self, id: &str, draft: &Draft) -> Node {
        let (status, body) = self.send(id, draft, false).await;
        let expected = self.api.operation(id)["success"]["status"].as_u64();
        assert_eq!(Some(u64::from(status)), expected, "{id}: {body}");
        Node::parse(&body)
    }

    pub(super) fn entry_draft(&self) -> Draft {
        Draft::default()
            .with("Entry/Key", self.phone())
            .with("Entry/KeyType", "PHONE")
            .with("Entry/Account/AccountNumber", self.number().to_string())
            .with("Entry/Account/Participant", KEY_HOLDER)
            .with("Entry/Owner/TaxIdNumber", OWNER)
            .with("RequestId", self.request_id())
    }

    /// Makes an entry of the key holder and returns its key.
    pub(super) async fn entry(&self) -> String {
        let draft = self.entry_draft();
        let made = self.ok("createEntry", &draft).await;
        made.at("Entry/Key").unwrap().to_owned()
    }

    pub(super) fn claim_draft(&self, claim_type: &str, key: &str) -> Draft {
        let claimer = if claim_type == "OWNERSHIP" {
            OTHER
        } else {
            OWNER
        };
        Draft::default()
            .with("Claim/Type", claim_type)
            .with("Claim/Key", key)
            .with("Claim/KeyType", "PHONE")
            .with(
                "Claim/ClaimerAccount/AccountNumber",
                self.number().to_string(),
            )
            .with("Claim/Claimer/TaxIdNumber", claimer)
    }

    /// Opens a claim and returns its id and its key.
    pub(super) async fn claim(&self, claim_type: &str) -> (String, String) {
        let key = self.entry().await;
        let draft = self.claim_draft(claim_type, &key);
        let made = self.ok("createClaim", &draft).await;
        (made.at("Claim/Id").unwrap().to_owned(), key)
    }

    pub(super) fn claim_step(&self, id: &str, participant: &str, reason: &str) -> Draft {
        let draft = Draft::at(id)
            .with("ClaimId", id)
            .with("Participant", participant)
            .with("RequestId", self.request_id());
        match reason {
            "" => draft,
            reason => draft.with("Reason", reason),
        }
    }

    pub(super) async fn claim_waiting(&self, claim_type: &str) -> (String, String) {
        let (id, key) = self.claim(claim_type).await;
        let step = self.claim_step(&id, KEY_HOLDER, "");
        self.ok("acknowledgeClaim", &step).await;
        (id, key)
    }

    pub(super) async fn claim_confirmed(&self, claim_type: &str) -> (String, String) {
        let (id, key) = self.claim_waiting(claim_type).await;
        let step = self.claim_step(&id, KEY_HOLDER, "USER_REQUESTED");
        self.ok("confirmClaim", &step).await;
        (id, key)
    }

    pub(super) async fn claim_cancelled(&self) -> String {
        let (id, _) = self.claim("PORTABILITY").await;
        let step = self.claim_step(&id, CALLER, "USER_REQUESTED");
        self.ok("cancelClaim", &step).await;
        id
    }

    /// Announces a payment of the caller's to the key holder's and returns its id.
    pub(super) async fn payment(&self, more: Value) -> String {
        let id = self.transaction_id();
        let mut order = json!({
            "end_to_end_id": id,
            "payer": PERSON,
            "participant": CALLER,
            "credited_participant": KEY_HOLDER,
            "payee_tax_id": OWNER,
            "amount": "300.00",
        });
        for (name, value) in more.as_object().unwrap() {
            order[name] = value.clone();
        }
        let (status, shown) = self
            .server
            .sim(Method::POST, "/sim/payment-orders", Some(order))
            .await;
        assert_eq!(status, 200, "{shown}");
        id
    }

    pub(super) async fn days(&self, days: u64) {
        self.server
            .advance(Duration::from_secs(days * 86_400))
            .await;
    }

    pub(super) fn report_draft(&self, transaction: &str) -> Draft {
        Draft::default()
            .with("InfractionReport/TransactionId", transaction)
            .with("InfractionReport/Reason", "REFUND_REQUEST")
            .with("InfractionReport/SituationType", "SCAM")
    }

    /// Opens a report and returns its id and its transaction's.
    pub(super) async fn report(&self) -> (String, String) {
        let transaction = self.payment(json!({})).await;
        let draft = self.report_draft(&transaction);
        let made = self.ok("createInfractionReport", &draft).await;
        (
            made.at("InfractionReport/Id").unwrap().to_owned(),
            transaction,
        )
    }

    pub(super) fn report_step(&self, id: &str, participant: &str) -> Draft {
        Draft::at(id)
            .with("InfractionReportId", id)
            .with("Participant", participant)
    }

    pub(super) fn close_step(&self, id: &str, result: &str) -> Draft {
        let step = self
            .report_step(id, KEY_HOLDER)
            .with("AnalysisResult", result);
        match result {
            "AGREED" => step.with("FraudType", "MULE_ACCOUNT"),
            _ => step.with("FraudType", ""),
        }
    }

    pub(super) async fn close(&self, id: &str, result: &str) {
        let step = self.report_step(id, KEY_HOLDER);
        self.ok("acknowledgeInfractionReport", &step).await;
        let step = self.close_step(id, result);
        self.ok("closeInfractionReport", &step).await;
    }

    pub(super) async fn report_cancelled(&self) -> String {
        let (id, _) = self.report().await;
        let step = self.report_step(&id, CALLER);
        self.ok("cancelInfractionReport", &step).await;
        id
    }

    pub(super) fn marker_draft(&self) -> Draft {
        Draft::default()
            .with("FraudMarker/TaxIdNumber", OWNER)
            .with("FraudMarker/FraudType", "SCAMMER_ACCOUNT")
            .with("FraudMarker/Key", "ana@example.com")
            .with("RequestId", self.request_id())
    }

    pub(super) async fn marker(&self) -> String {
        let made = self.ok("createFraudMarker", &self.marker_draft()).await;
        made.at("FraudMarker/Id").unwrap().to_owned()
    }

    pub(super) fn refund_draft(&self, transaction: &str) -> Draft {
        Draft::default()
            .with("Refund/TransactionId", transaction)
            .with("Refund/RefundReason", "OPERATIONAL_FLAW")
            .with("Refund/RefundDetails", "detalhes")
    }

    /// Requests a refund and returns its id and its transaction's.
    pub(super) async fn refund(&self) -> (String, String) {
        let transaction = self.payment(json!({})).await;
        let made = self
            .ok("createRefund", &self.refund_draft(&transaction))
            .await;
        (made.at("Refund/Id").unwrap().to_owned(), transaction)
    }

    pub(super) fn refund_step(&self, id: &str, participant: &str) -> Draft {
        Draft::at(id)
            .with("RefundId", id)
            .with("Participant", participant)
    }

    pub(super) fn refund_close_step(&self, id: &str) -> Draft {
        self.refund_step(id, KEY_HOLDER)
            .with("RefundAnalysisResult", "TOTALLY_ACCEPTED")
            .with("RefundRejectionReason", "")
            .with(
                "RefundTransactionId",
                format!("D{}", &self.transaction_id()[1..]),
            )
            .with("EffectiveRefundedAmount", "100.00")
    }

    pub(super) async fn refund_cancelled(&self) -> String {
        let (id, _) = self.refund().await;
        self.ok("cancelRefund", &self.refund_step(&id, CALLER))
            .await;
        id
    }

    pub(super) fn recovery_draft(&self, transaction: &str) -> Draft {
        Draft::default()
            .with("FundsRecovery/RootTransactionId", transaction)
            .with("FundsRecovery/SituationType", "SCAM")
    }

    /// Creates a funds recovery whose reports are open, and returns its id.
    pub(super) async fn recovery(&self) -> String {
        let id = self.recovery_created().await;
        if self.is_served {
            let step = self.recovery_step(&id);
            self.ok("createTrackingGraph", &step).await;
            let step = step.with("PrioritizationStrategy", "STANDARD_ALGORITHM");
            self.ok("blockFundsRecovery", &step).await;
        }
        id
    }

    /// Creates a funds recovery whose money went on, and returns its id.
    pub(super) async fn recovery_created(&self) -> String {
        let transaction = self.payment(json!({})).await;
        // The payee passes the money on.
        let onward = json!({"payer": OWNER, "payee_tax_id": OTHER, "participant": KEY_HOLDER,
                            "credited_participant": KEY_HOLDER});
        self.payment(onward).await;
        let draft = self.recovery_draft(&transaction);
        let made = self.ok("createFundsRecovery", &draft).await;
        made.at("FundsRecovery/Id").unwrap().to_owned()
    }

    pub(super) fn recovery_step(&self, id: &str) -> Draft {
        Draft::at(id).with("FundsRecoveryId", id)
    }

    /// Brings a funds recovery on: its reports are closed.
    pub(super) async fn recovery_analysed(&self) -> String {
        let id = self.recovery().await;
        let reports = self
            .ok("listFundsRecoveryInfractionReports", &Draft::at(&*id))
            .await;
        for report in &reports.child("InfractionReports").unwrap().children {
            let report = report.at("Id").unwrap();
            self.close(report, "AGREED").await;
        }
        id
    }

    pub(super) async fn recovery_refunding(&self) -> String {
        let id = self.recovery_analysed().await;
        self.ok("refundFundsRecovery", &self.recovery_step(&id))
            .await;
        id
    }

    pub(super) async fn recovery_cancelled(&self) -> String {
        let id = self.recovery().await;
        self.ok("cancelFundsRecovery", &self.recovery_step(&id))
            .await;
        id
    }

    pub(super) async fn restrict(&self, what: Value) {
        let (status, shown) = self
            .server
            .sim(Method::PUT, "/sim/restrictions", Some(what))
            .await;
        assert_eq!(status, 200, "{shown}");
    }
}
