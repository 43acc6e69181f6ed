//! Writes what a client did, one JSON object per line, and which of Bacen's expectations it missed.
//!
//! | Expectation | Missed when |
//! |--|--|
//! | `repeated_without_request_id` | a write is sent again with the same content and another `RequestId` |
//! | `ignored_429` | after a 429, the same call comes before its bucket can have a token |
//! | `missing_payment_order` | no payment order has followed a successful lookup |
//! | `lookups_without_payment` | a participant made twice as many lookups as payments |

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use balde_dict::Operation;
use parking_lot::Mutex;
use ring::digest;
use serde_json::{Value, json};

use crate::wire::{Element, Timestamp};

/// The most writes, refusals and lookups that are followed. More are written, but not judged.
const FOLLOWED_MAX: usize = 100_000;

/// The most lookups without payment that a summary names.
const EXAMPLES_MAX: usize = 20;

/// From how many lookups on a participant's ratio is judged.
const LOOKUPS_MIN: u64 = 10;

/// A transcript, and what has to be remembered for it.
pub(crate) struct Transcript(Mutex<Inner>);

struct Inner {
    file: BufWriter<File>,
    requests: u64,
    missed: BTreeMap<&'static str, u64>,
    /// The ids of writes by a digest of their content.
    writes: HashMap<[u8; 32], Write>,
    /// Until when buckets are empty, by call: as the clients know it, and as the current answer says.
    empty_until_ms: HashMap<CallKey, u64>,
    refused: HashMap<CallKey, u64>,
    /// When successful lookups were made for which no order has come, by participant, payer and id.
    unpaid: BTreeMap<(String, String, String), Timestamp>,
    /// Lookups and payment orders, by participant.
    ratios: BTreeMap<String, (u64, u64)>,
}

struct Write {
    request_id: String,
    subject: String,
}

/// What a 429 is about: an operation, a participant and a payer, if it has one.
type CallKey = (Operation, String, Option<String>);

/// A request that was answered.
pub(super) struct Exchange<'e> {
    pub(super) at: Timestamp,
    pub(super) operation: Operation,
    pub(super) participant: Option<&'e str>,
    pub(super) payer: Option<&'e str>,
    pub(super) end_to_end_id: Option<&'e str>,
    pub(super) body: &'e [u8],
    pub(super) status: u16,
}

impl Transcript {
    /// Creates the file, or empties it.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(Mutex::new(Inner {
            file: BufWriter::new(File::create(path)?),
            requests: 0,
            missed: BTreeMap::new(),
            writes: HashMap::new(),
            empty_until_ms: HashMap::new(),
            refused: HashMap::new(),
            unpaid: BTreeMap::new(),
            ratios: BTreeMap::new(),
        })))
    }

    /// Notes that the request which is being answered is refused, and until when its bucket is empty.
    pub(super) fn refused(
        &self,
        operation: Operation,
        participant: &str,
        payer: Option<&str>,
        until_ms: u64,
    ) {
        let mut inner = self.0.lock();
        if inner.refused.len() < FOLLOWED_MAX {
            let key = (operation, participant.to_owned(), payer.map(str::to_owned));
            inner.refused.insert(key, until_ms);
        }
    }

    /// Writes a request, and what it missed.
    pub(super) fn record(&self, exchange: &Exchange<'_>) {
        let mut inner = self.0.lock();
        let inner = &mut *inner;
        inner.requests += 1;
        let mut missed = Vec::new();
        let participant = exchange.participant.unwrap_or_default();
        let payer = exchange.payer.map(str::to_owned);
        let key = (exchange.operation, participant.to_owned(), payer);
        let until_ms = inner.empty_until_ms.remove(&key).unwrap_or(0);
        if exchange.at.ms() < until_ms {
            missed.push("ignored_429");
        }
        // A second refusal has a new time; without one, the old time still holds.
        match inner.refused.remove(&key) {
            Some(until_ms) => {
                inner.empty_until_ms.insert(key, until_ms);
            }
            None if exchange.at.ms() < until_ms => {
                inner.empty_until_ms.insert(key, until_ms);
            }
            None => {}
        }
        let request_id = inner.follow_write(exchange, &mut missed);
        if exchange.operation == Operation::GetEntry && exchange.status == 200 {
            inner.ratios.entry(participant.to_owned()).or_default().0 += 1;
            if let (Some(payer), Some(id)) = (exchange.payer, exchange.end_to_end_id)
                && inner.unpaid.len() < FOLLOWED_MAX
            {
                let lookup = (participant.to_owned(), payer.to_owned(), id.to_owned());
                inner.unpaid.insert(lookup, exchange.at);
            }
        }
        for name in &missed {
            *inner.missed.entry(name).or_default() += 1;
        }
        let line = json!({
            "at": exchange.at.to_string(),
            "operation": exchange.operation.as_str(),
            "participant": exchange.participant,
            "payer": exchange.payer,
            "end_to_end_id": exchange.end_to_end_id,
            "request_id": request_id,
            "status": exchange.status,
            "missed": missed,
        });
        inner.write(&line);
    }

    /// Writes a payment order.
    pub(super) fn record_order(
        &self,
        at: Timestamp,
        participants: &[String],
        payer: &str,
        id: &str,
    ) {
        let mut inner = self.0.lock();
        for participant in participants {
            let lookup = (participant.clone(), payer.to_owned(), id.to_owned());
            if inner.unpaid.remove(&lookup).is_some() {
                inner.ratios.entry(participant.clone()).or_default().1 += 1;
            }
        }
        let line = json!({
            "at": at.to_string(),
            "operation": "paymentOrder",
            "participant": participants.first(),
            "payer": payer,
            "end_to_end_id": id,
        });
        inner.write(&line);
    }

    /// What was seen so far.
    pub(super) fn summary(&self) -> Value {
        self.0.lock().summary()
    }

    /// Writes the summary as the last line.
    pub(super) fn finish(&self) {
        let mut inner = self.0.lock();
        let summary = json!({"summary": inner.summary()});
        inner.write(&summary);
    }
}

impl Inner {
    /// Follows writes that have a request id, and returns the id.
    fn follow_write(
        &mut self,
        exchange: &Exchange<'_>,
        missed: &mut Vec<&'static str>,
    ) -> Option<String> {
        let root = Element::read(exchange.body).ok()?;
        let text = |path: &str| root.at(path).map(|found| found.text().to_owned());
        let is_done = (200..300).contains(&exchange.status);
        match exchange.operation {
            // What was removed may be made again, by a new request.
            Operation::DeleteEntry if is_done => {
                let key = text("Key").unwrap_or_default();
                self.writes.retain(|_, write| write.subject != key);
            }
            Operation::CancelFraudMarker if is_done => {
                let participant = exchange.participant.unwrap_or_default();
                self.writes.retain(|_, write| write.subject != participant);
            }
            _ => {}
        }
        let request_id = text("RequestId")?;
        let subject = match exchange.operation {
            Operation::CreateEntry => text("Entry/Key").unwrap_or_default(),
            Operation::CompleteClaim => text("ClaimId").unwrap_or_default(),
            Operation::CreateFraudMarker => exchange.participant.unwrap_or_default().to_owned(),
            _ => return Some(request_id),
        };
        // DICT makes the keys of type EVP, so two requests without key want two keys.
        if subject.is_empty() {
            return Some(request_id);
        }
        let mut context = digest::Context::new(&digest::SHA256);
        content(&root, &mut context);
        let mut key = [0; 32];
        key.copy_from_slice(context.finish().as_ref());
        match self.writes.get(&key) {
            Some(write) if write.request_id != request_id => {
                missed.push("repeated_without_request_id");
            }
            // A request that was wrong may be sent again under a new id.
            None if self.writes.len() < FOLLOWED_MAX
                && (is_done || exchange.status >= 500 || exchange.status == 429) =>
            {
                let write = Write {
                    request_id: request_id.clone(),
                    subject,
                };
                self.writes.insert(key, write);
            }
            _ => {}
        }
        Some(request_id)
    }

    fn summary(&self) -> Value {
        let mut missed: BTreeMap<&str, u64> = self.missed.clone();
        if !self.unpaid.is_empty() {
            missed.insert("missing_payment_order", self.unpaid.len() as u64);
        }
        let is_too_many =
            |(lookups, orders): &(u64, u64)| *lookups >= LOOKUPS_MIN && *lookups >= 2 * orders;
        let few = self
            .ratios
            .values()
            .filter(|ratio| is_too_many(ratio))
            .count();
        if few > 0 {
            missed.insert("lookups_without_payment", few as u64);
        }
        let participants = self.ratios.iter().map(|(participant, (lookups, orders))| {
            let ratio = json!({"lookups": lookups, "payment_orders": orders});
            (participant.clone(), ratio)
        });
        let unpaid = self.unpaid.iter().take(EXAMPLES_MAX);
        let unpaid = unpaid.map(|((participant, payer, id), at)| {
            json!({"at": at.to_string(), "participant": participant, "payer": payer,
                   "end_to_end_id": id})
        });
        json!({
            "requests": self.requests,
            "missed": missed,
            "participants": participants.collect::<serde_json::Map<_, _>>(),
            "lookups_without_order": unpaid.collect::<Vec<_>>(),
        })
    }

    fn write(&mut self, line: &Value) {
        let written = writeln!(self.file, "{line}").and_then(|()| self.file.flush());
        if let Err(error) = written {
            tracing::warn!(%error, "a line of the transcript could not be written");
        }
    }
}

/// Adds what a document says to a digest: names and texts, without signature and request id.
fn content(element: &Element, context: &mut digest::Context) {
    if matches!(element.name(), "Signature" | "RequestId") {
        return;
    }
    for text in ["<", element.name(), ">", element.text()] {
        context.update(text.as_bytes());
    }
    for child in element.children() {
        content(child, context);
    }
    context.update(b"</>");
}
