//! Plays a PSP's conversation with a DICT from the outside, and reports where its answers differ from
//! what is published: against this crate's simulator, or against any other address.
//!
//! | File | Holds |
//! |--|--|
//! | `conversation` | the steps: requests, and what the published texts say about their answers |
//! | `step`, `values` | one step as data, and the values that its texts refer to |
//! | `caller` | sends requests: addresses, TLS, signatures |
//! | `check` | compares an answer with what its step expects |
//! | `report`, `junit`, `html` | what was found, for people and for machines |

mod caller;
mod check;
mod conversation;
mod html;
mod junit;
mod report;
mod step;
mod values;

use std::collections::BTreeMap;

use thiserror::Error;

pub use caller::Caller;
pub use html::to_html;
pub use junit::to_junit;
pub use report::{Difference, Report, StepReport, Verdict, compare};

use caller::Answer;
use check::{Observed, check, observe};
use step::{Role, Step};
use values::{Values, fill};

/// The most attempts of a step that is repeated until a bucket is empty.
const ATTEMPTS_MAX: usize = 200;

/// Who speaks in the conversation, and about which transactions.
#[derive(Clone, Debug)]
pub struct Conversation {
    participant: String,
    counterparty: String,
    transactions: Vec<String>,
}

impl Conversation {
    /// A conversation of a participant, and of another one on the other side of its claims and
    /// reports.
    pub fn new(participant: impl Into<String>, counterparty: impl Into<String>) -> Self {
        Self {
            participant: participant.into(),
            counterparty: counterparty.into(),
            transactions: Vec::new(),
        }
    }

    /// Sets the ids of settled transactions from the participant to the counterparty: one for the funds
    /// recovery, one for the refund. By default, ids are made up, which a simulator accepts.
    pub fn transactions(mut self, ids: Vec<String>) -> Self {
        self.transactions = ids;
        self
    }

    /// Plays the conversation. A step that differs does not end it: steps that need a value of an
    /// answer that did not come are reported as not run.
    pub async fn run(&self, caller: &Caller) -> Report {
        let mut values = Values::new(&self.participant, &self.counterparty, &self.transactions);
        let mut report = Report {
            url: caller.url().to_owned(),
            steps: Vec::new(),
        };
        for step in conversation::steps() {
            report.steps.push(play(&step, caller, &mut values).await);
        }
        report
    }
}

/// Why a conversation could not begin.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CertifyError {
    /// The address is not one of HTTP.
    #[error("{url} is not an address such as http://127.0.0.1:8085/api/v2/")]
    Url {
        /// The address.
        url: String,
    },
    /// A certificate or key cannot be used.
    #[error("TLS cannot be set up: {reason}")]
    Tls {
        /// Why not.
        reason: String,
    },
}

async fn play(step: &Step, caller: &Caller, values: &mut Values) -> StepReport {
    let mut report = StepReport {
        name: step.name,
        chapter: step.chapter,
        source: step.source,
        sentence: step.sentence,
        verdict: Verdict::AsPublished,
        request: String::new(),
        answer: String::new(),
        observed: Observed::default(),
    };
    values.prepare(step.computes);
    let request = match request(step, values) {
        Ok(request) => request,
        Err(missing) => {
            let reason = format!("no earlier answer has given the value {missing}");
            report.verdict = Verdict::NotRun(reason);
            return report;
        }
    };
    let attempts = if step.is_repeated { ATTEMPTS_MAX } else { 1 };
    let mut answered = None;
    for _ in 0..attempts {
        let answer = caller.send(&request).await;
        let is_last = answer
            .as_ref()
            .map_or(true, |own| own.status == step.status);
        answered = Some(answer);
        if is_last {
            break;
        }
    }
    report.request = request.to_text();
    let answer = match answered {
        Some(Ok(answer)) => answer,
        Some(Err(reason)) => {
            report.verdict = Verdict::Differs(vec![format!("there was no answer: {reason}")]);
            return report;
        }
        None => return report,
    };
    report.answer = answer.to_text();
    report.observed = observe(&answer);
    let differences = check(step, &answer, values);
    save(step, &answer, values);
    if !differences.is_empty() {
        report.verdict = Verdict::Differs(differences);
    }
    report
}

/// A request with all values filled in, or the name of a value that is missing.
fn request(step: &Step, values: &Values) -> Result<caller::Request, String> {
    let participant = match step.role {
        Role::Participant => "{participant}",
        Role::Counterparty => "{counterparty}",
    };
    let mut headers = BTreeMap::new();
    if step.body.is_none() {
        headers.insert("PI-RequestingParticipant", fill(participant, values)?);
    }
    for (name, value) in &step.headers {
        headers.insert(name, fill(value, values)?);
    }
    let body = match step.body {
        Some(body) => Some(fill(&body.replace("{self}", participant), values)?),
        None => None,
    };
    Ok(caller::Request {
        method: step.method,
        path: fill(&step.path.replace("{self}", participant), values)?,
        headers,
        body,
        is_on_np: step.is_on_np,
    })
}

/// Keeps the values that later steps refer to.
fn save(step: &Step, answer: &Answer, values: &mut Values) {
    let Some(root) = &answer.root else {
        return;
    };
    for (name, path) in &step.saves {
        if let Some(found) = root.at(path) {
            values.set(name, found.text());
        }
    }
}
