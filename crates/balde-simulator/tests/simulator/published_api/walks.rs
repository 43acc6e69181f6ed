//! Random walks through the life cycles: two participants do anything to claims, reports, refunds,
//! markers and funds recoveries, and no record ever makes a step that the published tables lack.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use balde::ManualClock;
use balde_dict::profiles;
use balde_simulator::Simulator;
use fastrand::Rng;
use serde_json::{Value, json};

use super::schema::Api;
use super::world::{Draft, World};
use super::xml::Node;
use crate::redis_server::RedisServer;
use crate::test_server::{CALLER, KEY_HOLDER, START_US, TestServer};

const STEPS: usize = 400;
const CLAIM_STATUSES: [&str; 3] = ["OPEN", "WAITING_RESOLUTION", "CONFIRMED"];
const DAY_MS: u64 = 86_400_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Claim,
    Report,
    Refund,
    Marker,
    Recovery,
}

/// A record, and what its tables depend on.
#[derive(Clone, Debug)]
struct Record {
    kind: Kind,
    id: String,
    /// `OWNERSHIP` or `PORTABILITY`, for claims.
    claim_type: String,
    /// The status that was seen last.
    status: String,
    /// The answer that was seen last.
    seen: Node,
}

impl Kind {
    fn lifecycle(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Report => "infractionReport",
            Self::Refund => "refund",
            Self::Marker => "fraudMarker",
            Self::Recovery => "fundsRecovery",
        }
    }

    /// The operation that reads it, and the element in its answer.
    fn read(self) -> (&'static str, &'static str) {
        match self {
            Self::Claim => ("getClaim", "Claim"),
            Self::Report => ("getInfractionReport", "InfractionReport"),
            Self::Refund => ("getRefund", "Refund"),
            Self::Marker => ("getFraudMarker", "FraudMarker"),
            Self::Recovery => ("getFundsRecovery", "FundsRecovery"),
        }
    }

    fn steps(self) -> &'static [&'static str] {
        match self {
            Self::Claim => &[
                "acknowledgeClaim",
                "confirmClaim",
                "cancelClaim",
                "completeClaim",
            ],
            Self::Report => &[
                "acknowledgeInfractionReport",
                "closeInfractionReport",
                "cancelInfractionReport",
            ],
            Self::Refund => &["closeRefund", "cancelRefund"],
            Self::Marker => &["cancelFraudMarker"],
            Self::Recovery => &[
                "updateFundsRecovery",
                "refundFundsRecovery",
                "cancelFundsRecovery",
            ],
        }
    }

    /// The steps while the deprecated operations are served.
    fn served_steps(self) -> &'static [&'static str] {
        match self {
            Self::Recovery => &[
                "updateFundsRecovery",
                "createTrackingGraph",
                "blockFundsRecovery",
                "refundFundsRecovery",
                "cancelFundsRecovery",
            ],
            _ => self.steps(),
        }
    }
}

/// A walk over one or two simulators of the same directory.
struct Walk<'a> {
    api: &'a Api,
    worlds: Vec<World<'a>>,
    random: Rng,
    records: Vec<Record>,
    turn: Cell<usize>,
}

#[tokio::test]
async fn random_walks_stay_within_the_published_tables() {
    let api = Api::load();
    for _ in 0..3 {
        let worlds = vec![World::new(&api, &[], false).await];
        Walk::new(&api, worlds).run().await;
    }
}

/// A funds recovery as its creator drives it: the money is followed and the transactions are reported
/// when it says so, not at once.
#[tokio::test]
async fn random_walks_through_the_deprecated_operations_stay_within_the_published_tables() {
    let api = Api::load();
    for _ in 0..3 {
        let settings = [("deprecated_operations", "served")];
        let worlds = vec![World::new(&api, &settings, false).await];
        let visited = Walk::new(&api, worlds).run().await;
        // Which statuses a walk sees depends on its seed.
        println!("funds recoveries were {visited:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_walks_over_redis_stay_within_the_published_tables() {
    walk_over_redis(&[0]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_walks_over_two_simulators_stay_within_the_published_tables() {
    walk_over_redis(&[0, 1_000_000]).await;
}

/// Walks over simulators that share one Redis, with funds recoveries that DICT drives and that their
/// creators drive by hand.
async fn walk_over_redis(first_numbers: &[u64]) {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let api = Api::load();
    let by_hand = [("deprecated_operations", "served")];
    for (namespace, settings) in [("walk", &[][..]), ("by-hand", &by_hand[..])] {
        let mut worlds = Vec::new();
        // The periods of all pass by the same clock.
        let clock = ManualClock::at_us(START_US);
        for first in first_numbers {
            let profile = profiles::named_with("dict-2.12.1", settings).unwrap();
            let builder = Simulator::builder().redis(redis.url(), namespace);
            let builder = builder.profile(profile.unwrap()).directory_clock(&clock);
            let simulator = builder.build().expect("a simulator");
            let server = TestServer::start(simulator, clock.clone()).await;
            let mut world = World::of(&api, server).numbered_from(*first);
            world.is_served = !settings.is_empty();
            worlds.push(world);
        }
        let visited = Walk::new(&api, worlds).run().await;
        println!("{namespace}: funds recoveries were {visited:?}");
    }
}

impl<'a> Walk<'a> {
    fn new(api: &'a Api, worlds: Vec<World<'a>>) -> Self {
        let seed = std::env::var("BALDE_WALK_SEED").ok();
        let seed = seed.and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| fastrand::u64(..));
        println!("BALDE_WALK_SEED={seed}");
        Self {
            api,
            worlds,
            random: Rng::with_seed(seed),
            records: Vec::new(),
            turn: Cell::new(0),
        }
    }

    /// Returns the statuses in which funds recoveries were seen.
    async fn run(mut self) -> BTreeSet<String> {
        let mut accepted = 0;
        let mut visited = BTreeSet::new();
        for _ in 0..STEPS {
            if self.random.u8(..) < 20 {
                let days = self.random.u64(1..9);
                let clock = &self.worlds[0].server.clock;
                clock.advance(Duration::from_millis(days * DAY_MS));
            }
            if self.records.len() < 8 || self.random.u8(..) < 12 {
                self.create().await;
            } else {
                accepted += usize::from(self.step().await);
            }
            let recoveries = self.records.iter().filter(|own| own.kind == Kind::Recovery);
            visited.extend(recoveries.map(|own| own.status.clone()));
            // Few records at a time, so that they get far.
            if self.records.len() > 10 {
                let oldest = self.random.usize(..self.records.len());
                self.records.remove(oldest);
            }
        }
        assert!(accepted > STEPS / 20, "hardly a step was accepted");
        visited
    }

    /// The simulators in turn.
    fn world(&self) -> usize {
        self.turn.set(self.turn.get() + 1);
        self.turn.get() % self.worlds.len()
    }

    fn now_ms(&self) -> u64 {
        self.worlds[0].server.clock.now_us() / 1_000
    }

    async fn create(&mut self) {
        let world = &self.worlds[self.world()];
        let (kind, id) = match self.random.u8(..4) {
            0 => {
                let types = ["OWNERSHIP", "PORTABILITY"];
                let claim_type = types[self.random.usize(..2)];
                let claim = match self.random.u8(..4) {
                    0 => world.claim(claim_type).await.0,
                    1 => world.claim_waiting(claim_type).await.0,
                    2 => world.claim_confirmed(claim_type).await.0,
                    _ => world.claim_cancelled().await,
                };
                (Kind::Claim, claim)
            }
            1 => (Kind::Marker, world.marker().await),
            2 => (Kind::Refund, world.refund().await.0),
            _ if world.is_served => (Kind::Recovery, world.recovery_created().await),
            _ => {
                let id = world.recovery().await;
                let reports = Draft::at(&*id);
                let reports = world
                    .ok("listFundsRecoveryInfractionReports", &reports)
                    .await;
                for report in &reports.child("InfractionReports").unwrap().children {
                    let report = report.at("Id").unwrap().to_owned();
                    self.add(Kind::Report, report).await;
                }
                (Kind::Recovery, id)
            }
        };
        self.add(kind, id).await;
    }

    async fn add(&mut self, kind: Kind, id: String) {
        let seen = self.read(kind, &id).await;
        self.records.push(Record {
            kind,
            id,
            claim_type: seen.at("Type").unwrap_or_default().to_owned(),
            status: seen.at("Status").unwrap().to_owned(),
            seen,
        });
    }

    async fn read(&self, kind: Kind, id: &str) -> Node {
        let (operation, element) = kind.read();
        let answer = self.worlds[self.world()]
            .ok(operation, &Draft::at(id))
            .await;
        answer.child(element).unwrap().clone()
    }

    /// Does something to a record, and checks what happened to all of them.
    async fn step(&mut self) -> bool {
        let record = self.records[self.random.usize(..self.records.len())].clone();
        let steps = if self.worlds[0].is_served {
            record.kind.served_steps()
        } else {
            record.kind.steps()
        };
        let operation = steps[self.random.usize(..steps.len())];
        let participant = [CALLER, KEY_HOLDER][self.random.usize(..2)];
        let (draft, reason) = self.draft(&record, operation, participant);
        let world = &self.worlds[self.world()];
        let (status, body) = world.send(operation, &draft, false).await;
        let what = format!(
            "{operation} by {participant} for {reason:?} of {} {} in {}: {status} {body}",
            record.claim_type, record.id, record.status
        );
        assert!(matches!(status, 200 | 400 | 403), "{what}");
        let is_accepted = status == 200;
        let allowed = self.allowed(&record, operation, participant, &reason, self.now_ms());
        let before = self.records.clone();
        let mut after = Vec::new();
        for record in &before {
            let seen = self.read(record.kind, &record.id).await;
            after.push((seen.at("Status").unwrap().to_owned(), seen));
        }
        for (index, (before, (status, seen))) in before.iter().zip(after).enumerate() {
            let is_same = before.status == status;
            if before.id != record.id {
                let is_known = is_same || self.is_dicts(before.kind, &before.status, &status);
                assert!(is_known, "{what}: {} to {status}", before.status);
            } else if !is_accepted {
                assert_eq!(before.seen, seen, "refused, but changed: {what}");
                assert_eq!(allowed, None, "refused, but lawful: {what}");
            } else if is_same && before.seen == seen {
                // A repetition, which changes nothing.
                assert!(
                    self.is_repetition(before, operation),
                    "not a repetition: {what}"
                );
            } else {
                let to = allowed
                    .clone()
                    .unwrap_or_else(|| panic!("not lawful: {what}"));
                let is_further = self.is_dicts(before.kind, &to, &status);
                assert!(
                    to == status || to == "(same)" || is_further,
                    "{what}: {status}"
                );
            }
            self.records[index].status = status;
            self.records[index].seen = seen;
        }
        if record.kind == Kind::Claim {
            self.register_claimed(&record.id).await;
        }
        // The reports and refunds that a funds recovery made are records too.
        self.find_reports().await;
        self.find_refunds().await;
        is_accepted
    }

    /// Tries to register and to claim the key of a claim. While the claim is neither completed nor
    /// cancelled, nobody can.
    async fn register_claimed(&mut self, id: &str) {
        let claim = self.records.iter().find(|own| own.id == id).unwrap();
        if matches!(claim.status.as_str(), "COMPLETED" | "CANCELLED") {
            return;
        }
        let key = claim.seen.at("Key").unwrap().to_owned();
        let status = claim.status.clone();
        let participant = [CALLER, KEY_HOLDER, "33333333"][self.random.usize(..3)];
        let world = &self.worlds[self.world()];
        let entry = world.entry_draft().with("Entry/Key", &*key);
        let entry = entry.with("Entry/Account/Participant", participant);
        let other = world.claim_draft("OWNERSHIP", &key);
        for (operation, draft) in [("createEntry", entry), ("createClaim", other)] {
            let (answered, body) = world.send(operation, &draft, false).await;
            assert_eq!(
                answered, 400,
                "{operation} of a {status} claim's key: {body}"
            );
        }
        assert!(CLAIM_STATUSES.contains(&&*status), "{status}");
    }

    async fn find_reports(&mut self) {
        let recoveries: Vec<_> = self
            .records
            .iter()
            .filter(|own| own.kind == Kind::Recovery && own.status == "AWAITING_ANALYSIS")
            .map(|own| own.id.clone())
            .collect();
        let is_served = self.worlds[0].is_served;
        for id in recoveries.into_iter().filter(|_| is_served) {
            let reports = Draft::at(&*id);
            let reports = self.worlds[0]
                .ok("listFundsRecoveryInfractionReports", &reports)
                .await;
            for report in &reports.child("InfractionReports").unwrap().children {
                let id = report.at("Id").unwrap();
                if self.records.iter().all(|own| own.id != id) {
                    self.add(Kind::Report, id.to_owned()).await;
                }
            }
        }
    }

    async fn find_refunds(&mut self) {
        let recoveries: Vec<_> = self
            .records
            .iter()
            .filter(|own| own.kind == Kind::Recovery && own.status == "REFUNDING")
            .map(|own| own.id.clone())
            .collect();
        for id in recoveries {
            let refunds = Draft::at(&*id);
            let refunds = self.worlds[0]
                .ok("listFundsRecoveryRefunds", &refunds)
                .await;
            for refund in &refunds.child("Refunds").unwrap().children {
                let id = refund.at("Id").unwrap();
                if self.records.iter().all(|own| own.id != id) {
                    self.add(Kind::Refund, id.to_owned()).await;
                }
            }
        }
    }

    /// A request, and the reason or result that it names.
    fn draft(&mut self, record: &Record, operation: &str, participant: &str) -> (Draft, String) {
        let mut one_of = |words: &[&str]| words[self.random.usize(..words.len())].to_owned();
        let world = &self.worlds[0];
        let id = record.id.as_str();
        match operation {
            "confirmClaim" | "cancelClaim" => {
                let reason = one_of(&[
                    "USER_REQUESTED",
                    "ACCOUNT_CLOSURE",
                    "FRAUD",
                    "DEFAULT_OPERATION",
                    "RECONCILIATION",
                    "RFB_VALIDATION",
                ]);
                (world.claim_step(id, participant, &reason), reason)
            }
            "acknowledgeClaim" | "completeClaim" => {
                (world.claim_step(id, participant, ""), String::new())
            }
            "closeInfractionReport" => {
                let result = one_of(&["AGREED", "DISAGREED", "AGREED"]);
                let step = world.close_step(id, &result);
                (step.with("Participant", participant), result)
            }
            "acknowledgeInfractionReport" | "cancelInfractionReport" => {
                (world.report_step(id, participant), String::new())
            }
            "closeRefund" => {
                let result = one_of(&["TOTALLY_ACCEPTED", "PARTIALLY_ACCEPTED"]);
                let step = world
                    .refund_close_step(id)
                    .with("RefundAnalysisResult", &*result);
                (step.with("Participant", participant), result)
            }
            "cancelRefund" => (world.refund_step(id, participant), String::new()),
            "cancelFraudMarker" => {
                let draft = Draft::at(id).with("FraudMarkerId", id);
                (draft.with("Participant", participant), String::new())
            }
            "blockFundsRecovery" => {
                let step = world.recovery_step(id).with("Participant", participant);
                let step = step.with("PrioritizationStrategy", "STANDARD_ALGORITHM");
                (step, String::new())
            }
            _ => {
                let step = world.recovery_step(id).with("Participant", participant);
                (step, String::new())
            }
        }
    }

    /// Where the published table lets a participant take a record, if anywhere.
    fn allowed(
        &self,
        record: &Record,
        operation: &str,
        participant: &str,
        reason: &str,
        now_ms: u64,
    ) -> Option<String> {
        let lifecycle = self.api.lifecycle(record.kind.lifecycle());
        let is_claimer = participant == CALLER;
        let transitions = lifecycle["transitions"].as_array().unwrap();
        let found = transitions.iter().find(|one| {
            let has = |key: &str, word: &str| {
                let words = one[key].as_array();
                words.is_some_and(|words| words.iter().any(|own| own == word))
            };
            let by = one["by"].as_str().unwrap();
            // The caller claims, reports and requests; the key holder is on the other side.
            let is_side = match by {
                "donor" | "counterparty" | "contested participant" => !is_claimer,
                "creator, or the counterparty that closed the report" => {
                    is_claimer == record.seen.child("InfractionReport").is_none()
                }
                _ => is_claimer,
            };
            let has_reasons = one["reasons"]
                .as_array()
                .is_some_and(|words| !words.is_empty());
            let is_type = one.get("type").is_none() || one["type"] == record.claim_type;
            one["op"] == operation
                && has("from", &record.status)
                && is_side
                && is_type
                && (!has_reasons || has("reasons", reason))
        })?;
        let is_recovery = record.seen.child("FundsRecoveryId").is_some();
        if found.get("notIf").is_some() && is_recovery {
            return None;
        }
        let has_ended = |name: &str| {
            let end = record.seen.at(name).unwrap();
            let end: balde_dict::wire::Timestamp = end.parse().unwrap();
            now_ms >= end.ms()
        };
        let is_ended = match &found["after"] {
            Value::String(name) => has_ended(name),
            // Thirty days from the start, of which the first seven are the resolution period.
            Value::Object(_) if reason == "DEFAULT_OPERATION" => {
                let end = record.seen.at("ResolutionPeriodEnd").unwrap();
                let end: balde_dict::wire::Timestamp = end.parse().unwrap();
                now_ms >= end.ms() + 23 * DAY_MS
            }
            _ => true,
        };
        // The analysis must not be older than 72 hours.
        let modified = record.seen.at("LastModified").unwrap_or_default();
        let modified = modified.parse::<balde_dict::wire::Timestamp>();
        let is_late = operation == "refundFundsRecovery"
            && modified.is_ok_and(|at| now_ms > at.ms() + 3 * DAY_MS);
        (is_ended && !is_late).then(|| found["to"].as_str().unwrap().to_owned())
    }

    /// Whether DICT itself may take a record from one status to another.
    fn is_dicts(&self, kind: Kind, from: &str, to: &str) -> bool {
        let lifecycle = self.api.lifecycle(kind.lifecycle());
        let transitions = lifecycle["transitions"].as_array().unwrap();
        transitions.iter().any(|one| {
            let from_words = one["from"].as_array().unwrap();
            one["by"] == "DICT" && one["to"] == to && from_words.iter().any(|own| own == from)
        })
    }

    /// Whether a record is already where an operation takes it.
    fn is_repetition(&self, record: &Record, operation: &str) -> bool {
        let lifecycle = self.api.lifecycle(record.kind.lifecycle());
        let transitions = lifecycle["transitions"].as_array().unwrap();
        // An update that changes nothing, and following the same money again, are none, but look alike.
        operation == "updateFundsRecovery"
            || (operation == "createTrackingGraph" && record.status == "TRACKED")
            || transitions.iter().any(|one| {
                let promised = one["repeat"] == json!("same answer");
                one["op"] == operation && promised && one["to"] == record.status
            })
    }
}
