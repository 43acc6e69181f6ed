//! Walks through the published API: every operation accepts a request made from its schema, answers as
//! its schema says, answers a repetition alike where that is promised, and every error can be provoked.

mod differences;
#[expect(
    clippy::match_same_arms,
    reason = "one arm for each operation and error, in the order of the data"
)]
mod drafts;
mod schema;
mod walks;
mod world;
mod xml;

use std::collections::BTreeSet;
use std::sync::Arc;

use balde_dict::wire::{SignatureError, Verifier};
use balde_dict::{Operation, profiles};
use balde_simulator::Participants;
use reqwest::Method;
use serde_json::{Value, json};

use self::drafts::{accepted, blank, refused};
use self::schema::Api;
use self::world::World;
use self::xml::Node;
use crate::mutual_tls::{Authority, server_with_participants};
use crate::test_server::{CALLER, KEY_HOLDER, PERSON, TestServer};

const SERVED: [(&str, &str); 1] = [("deprecated_operations", "served")];

/// Errors whose cause is inside DICT, and which only an injected fault can provoke.
const BY_FAULT: [&str; 4] = [
    "FundsRecoveryTrackingTimeout",
    "InternalServerError",
    "ResourceConflict",
    "ServiceUnavailable",
];

#[tokio::test]
async fn every_operation_accepts_its_request_and_answers_by_its_schema() {
    let api = Api::load();
    let world = World::new(&api, &SERVED, false).await;
    let automated = World::new(&api, &[], false).await;
    let mut wrong = Vec::new();
    for operation in api.operations() {
        let id = operation["id"].as_str().unwrap();
        assert!(Operation::parse(id).is_some(), "no operation {id}");
        let is_deprecated = operation["deprecated"] == true;
        for (world, is_full) in [(&world, false), (&world, true), (&automated, false)] {
            let needs_served = is_deprecated || id == "cancelInfractionReport";
            if needs_served && std::ptr::eq(world, &raw const automated) {
                continue;
            }
            let Some(draft) = accepted(world, id).await else {
                wrong.push(format!("{id}: there is no request for it"));
                continue;
            };
            if operation["request"].is_object() {
                let request = api.request(operation, &draft.values, is_full);
                let problems = api.problems(&operation["request"], &Node::parse(&request));
                wrong.extend(
                    problems
                        .iter()
                        .map(|one| format!("{id}, the request: {one}")),
                );
            }
            let (status, body) = world.send(id, &draft, is_full).await;
            if u64::from(status) != operation["success"]["status"] {
                wrong.push(format!("{id}, full {is_full}: {status} {body}"));
                continue;
            }
            let answer = Node::parse(&body);
            let problems = api.problems(&operation["success"]["body"], &answer);
            wrong.extend(problems.iter().map(|one| format!("{id}: {one}")));
            // Bucket states differ because asking for them is counted.
            let is_read =
                operation["method"] == "GET" && !id.contains("olicy") && id != "bucketStates";
            if operation.get("repeat").is_some() || is_read {
                let (again, body) = world.send(id, &draft, is_full).await;
                let repeated = Node::parse(&body).without_head();
                if (again, repeated) != (status, answer.without_head()) {
                    wrong.push(format!("{id}: the repetition is answered {again} {body}"));
                }
            }
        }
    }
    // A refund that is rejected has a reason.
    let (refund, _) = world.refund().await;
    let rejected = world
        .refund_close_step(&refund)
        .with("RefundAnalysisResult", "REJECTED")
        .with("RefundTransactionId", "")
        .with("RefundRejectionReason", "NO_BALANCE");
    let answer = world.ok("closeRefund", &rejected).await;
    wrong.extend(api.problems(&api.operation("closeRefund")["success"]["body"], &answer));
    // A violation is a type too.
    let draft = world.entry_draft().with("RequestId", "1");
    let (_, body) = world.send("createEntry", &draft, false).await;
    wrong.extend(api.problem_problems(&Node::parse(&body)));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unseen = api.unseen_types();
    assert!(unseen.is_empty(), "types without an example: {unseen:?}");
    let current = Operation::ALL.iter().filter(|one| one.is_in_version_2());
    for operation in current {
        api.operation(operation.operation_id());
    }
}

/// The simulators by which errors are provoked.
struct Worlds<'a> {
    served: World<'a>,
    strict: World<'a>,
    automated: World<'a>,
    /// Refuses every signature.
    signed: World<'a>,
    /// Knows no participant that requests name.
    unknown: World<'a>,
    /// The client's certificate is another participant's, or nobody's.
    other: World<'a>,
    nobody: World<'a>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_declared_error_can_be_provoked() {
    let api = Api::load();
    let authority = Authority::new();
    let worlds = Worlds::new(&api, &authority).await;
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for operation in api.operations() {
        let id = operation["id"].as_str().unwrap();
        let mut errors: Vec<(u64, &str)> = vec![(429, "RateLimited"), (500, "InternalServerError")];
        for error in operation["errors"].as_array().unwrap() {
            let status = error["status"].as_u64().unwrap();
            let types = error["types"].as_array().unwrap();
            errors.extend(types.iter().map(|one| (status, one.as_str().unwrap())));
        }
        for (status, error) in errors {
            let Some((answered, body)) = worlds.provoke(operation, error).await else {
                wrong.push(format!("{id}: no way to provoke {error}"));
                continue;
            };
            let found = Node::parse(&body);
            let error_type = found.at("type").unwrap_or_default();
            let error_type = error_type.rsplit('/').next().unwrap_or_default().to_owned();
            if (u64::from(answered), error_type.as_str()) != (status, error) {
                wrong.push(format!(
                    "{id}: instead of {status} {error}: {answered} {body}"
                ));
                continue;
            }
            let problems = api.problem_problems(&found);
            wrong.extend(problems.iter().map(|one| format!("{id} {error}: {one}")));
            if let Some(title) = api.title(error)
                && found.at("title") != Some(title)
            {
                wrong.push(format!(
                    "{id} {error}: the title is {:?}",
                    found.at("title")
                ));
            }
            seen.insert(error.to_owned());
        }
    }
    // Some types belong to no operation.
    for (error, status) in api.error_types() {
        if seen.contains(error) {
            continue;
        }
        let operation = api.operation("getClaim");
        let (answered, body) = worlds.served.fault(operation, error).await;
        if u64::from(answered) != status || !body.contains(error) {
            wrong.push(format!("{error}: {answered} {body}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

impl<'a> Worlds<'a> {
    async fn new(api: &'a Api, authority: &Authority) -> Self {
        let served = || {
            profiles::named_with("dict-2.12.1", &SERVED)
                .unwrap()
                .unwrap()
        };
        let signed = TestServer::with(|builder| {
            let builder = builder.profile(served());
            builder.verifier(Arc::new(NoSignatureIsGood))
        });
        let file = format!("[[participant]]\nispb = \"{KEY_HOLDER}\"\n");
        let source = balde_config::Source::new("participants.toml", &*file);
        let known = Participants::read(&source).unwrap();
        let unknown = TestServer::with(|builder| {
            let builder = builder.profile(served());
            builder.participants(known)
        });
        let both = format!("{file}[[participant]]\nispb = \"{CALLER}\"\n");
        let other = server_with_participants(authority, &both, KEY_HOLDER);
        let nobody = server_with_participants(authority, &both, "55555555");
        Self {
            served: World::new(api, &SERVED, false).await,
            strict: World::new(api, &SERVED, true).await,
            automated: World::new(api, &[], false).await,
            signed: World::of(api, signed.await),
            unknown: World::of(api, unknown.await),
            other: World::of(api, other.await),
            nobody: World::of(api, nobody.await),
        }
    }

    async fn provoke(&self, operation: &Value, error: &str) -> Option<(u16, String)> {
        let id = operation["id"].as_str().unwrap();
        let blank = |world: &World<'_>| blank(world, id);
        Some(match error {
            "RequestSignatureInvalid" => self.signed.send(id, &blank(&self.signed), false).await,
            "ParticipantInvalid" => self.unknown.send(id, &blank(&self.unknown), false).await,
            "Forbidden" if id == "checkKeys" => {
                self.nobody.send(id, &blank(&self.nobody), false).await
            }
            "Forbidden" => self.other.send(id, &blank(&self.other), false).await,
            "DeprecatedResource" => {
                self.automated
                    .send(id, &blank(&self.automated), false)
                    .await
            }
            "RateLimited" => match operation["policies"].as_array().unwrap().as_slice() {
                // No policy counts the operation, by default.
                [] => self.served.fault(operation, error).await,
                policies => self.served.empty(operation, policies).await,
            },
            // The key is reserved while the claim is confirmed, so that nobody can create the entry.
            "ClaimResultingEntryAlreadyExists" if id == "completeClaim" => {
                self.served.fault(operation, error).await
            }
            _ if BY_FAULT.contains(&error) => self.served.fault(operation, error).await,
            _ => {
                let (draft, is_strict) = refused(&self.served, &self.strict, id, error).await?;
                let world = if is_strict {
                    &self.strict
                } else {
                    &self.served
                };
                world.send(id, &draft, false).await
            }
        })
    }
}

impl World<'_> {
    /// Sends a request while a fault is injected.
    async fn fault(&self, operation: &Value, error: &str) -> (u16, String) {
        let id = operation["id"].as_str().unwrap();
        let fault = json!({"operation": id, "type": error});
        let (status, shown) = self
            .server
            .sim(Method::PUT, "/sim/faults", Some(fault))
            .await;
        assert_eq!(status, 200, "{shown}");
        let answer = self.send(id, &blank(self, id), false).await;
        self.server.sim(Method::DELETE, "/sim/faults", None).await;
        answer
    }

    /// Sends a request while its buckets are empty.
    async fn empty(&self, operation: &Value, policies: &[Value]) -> (u16, String) {
        let id = operation["id"].as_str().unwrap();
        let mut before = Vec::new();
        let participant = if id == "checkKeys" {
            "99999999"
        } else {
            CALLER
        };
        for policy in policies {
            let policy = policy.as_str().unwrap();
            let payer = policy.contains("USER").then_some(PERSON);
            let level = self.server.level(policy, participant, payer).await;
            before.push((policy, payer, level));
            self.server.set_level(policy, participant, payer, 0).await;
        }
        let answer = self.send(id, &blank(self, id), false).await;
        for (policy, payer, level) in before {
            self.server
                .set_level(policy, participant, payer, level)
                .await;
        }
        answer
    }
}

#[derive(Debug)]
struct NoSignatureIsGood;

impl Verifier for NoSignatureIsGood {
    fn verify(&self, _document: &[u8]) -> Result<(), SignatureError> {
        Err(SignatureError::Missing)
    }
}
