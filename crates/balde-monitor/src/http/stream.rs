//! The live stream of states, as server-sent events.
//!
//! A client first gets all states, and then what has changed. One task looks for changes, for all
//! clients: it computes a participant again after its poll was judged, renders every bucket once, and
//! sends the buckets whose text differs from what was sent before. The cost grows with what happens,
//! not with what is monitored, and hardly with the number of clients. The task ends when the last
//! client has left.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use parking_lot::Mutex;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::App;
use super::api;
use super::view::{self, ParticipantView, StorageFailureView};

/// How often the task looks for changes.
const TICK: Duration = Duration::from_secs(1);

/// The longest time between two messages, which keeps the client's clock right.
const REFRESH: Duration = Duration::from_secs(5);

/// How long a participant is shown as computed without a new poll: on the leader, where only silences
/// and staleness change meanwhile, and on a standby, which sees the leader's work in the database only.
const AGE_MAX_LEADER: Duration = Duration::from_secs(30);
const AGE_MAX_STANDBY: Duration = Duration::from_secs(5);

/// How soon a client reconnects. The server ends long connections from time to time.
const RETRY: Duration = Duration::from_millis(500);

/// How many messages a client may be behind. One that is further behind gets all states again.
const BEHIND_MAX: usize = 16;

/// A message: the name of the event, and its text.
type Message = (&'static str, Arc<str>);

/// The shared source of all streams.
#[derive(Debug, Default)]
pub(super) struct Feed {
    running: Mutex<Option<Running>>,
    must_recompute: AtomicBool,
}

/// What the task has sent, while there is one.
#[derive(Debug)]
struct Running {
    sender: broadcast::Sender<Message>,
    participants: BTreeMap<String, Rendered>,
    status: Option<Arc<str>>,
}

/// A participant as text.
#[derive(Debug)]
struct Rendered {
    revision: u64,
    computed: Instant,
    /// The fields of the participant, without braces and without its buckets.
    fields: String,
    buckets: BTreeMap<String, String>,
}

impl Feed {
    /// Computes all participants again at the next tick: an operator has changed something.
    pub(super) fn recompute_all(&self) {
        self.must_recompute.store(true, Ordering::Relaxed);
    }

    /// Subscribes, and starts the task if none is running. Returns the messages to begin with, too;
    /// none before the first states are computed.
    fn subscribe(&self, app: &App) -> (Vec<Message>, broadcast::Receiver<Message>) {
        let mut running = self.running.lock();
        if let Some(running) = &*running {
            return (running.first(app), running.sender.subscribe());
        }
        let (sender, receiver) = broadcast::channel(BEHIND_MAX);
        *running = Some(Running {
            sender,
            participants: BTreeMap::new(),
            status: None,
        });
        tokio::spawn(produce(app.clone()));
        (Vec::new(), receiver)
    }
}

impl Running {
    /// The messages that a new client gets.
    fn first(&self, app: &App) -> Vec<Message> {
        if self.participants.is_empty() {
            return Vec::new();
        }
        let all = |rendered: &Rendered| {
            let buckets = rendered.buckets.values().map(String::as_str);
            rendered.text(buckets)
        };
        let all: Vec<String> = self.participants.values().map(all).collect();
        let note = serde_json::to_string(&app.0.note).unwrap_or_default();
        let text = format!("{{\"note\":{note},{}}}", participants_text(app, &all));
        let mut messages = vec![("states", text.into())];
        messages.extend(self.status.clone().map(|status| ("status", status)));
        messages
    }
}

impl Rendered {
    fn of(view: &ParticipantView, revision: u64) -> Option<Self> {
        let fields = serde_json::to_string(&view.clone_without_buckets()).ok()?;
        let fields = fields.strip_prefix('{')?.strip_suffix(",\"buckets\":[]}")?;
        let mut buckets = BTreeMap::new();
        for bucket in &view.buckets {
            let text = serde_json::to_string(bucket).ok()?;
            buckets.insert(bucket.policy.clone(), text);
        }
        Some(Self {
            revision,
            computed: Instant::now(),
            fields: fields.to_owned(),
            buckets,
        })
    }

    fn text<'a>(&self, buckets: impl Iterator<Item = &'a str>) -> String {
        let buckets: Vec<&str> = buckets.collect();
        format!("{{{},\"buckets\":[{}]}}", self.fields, buckets.join(","))
    }

    /// What differs from `before`, with the names of all buckets; `None` if nothing does.
    fn changes(&self, before: Option<&Self>) -> Option<String> {
        let old = |policy: &String| before.and_then(|before| before.buckets.get(policy));
        let is_new =
            |(policy, text): &(&String, &String)| old(policy).is_none_or(|old| old != *text);
        let changed: Vec<&str> = self
            .buckets
            .iter()
            .filter(is_new)
            .map(|(_, text)| text.as_str())
            .collect();
        let is_same = before.is_some_and(|before| {
            before.fields == self.fields && before.buckets.len() == self.buckets.len()
        });
        if is_same && changed.is_empty() {
            return None;
        }
        let policies: Vec<&String> = self.buckets.keys().collect();
        let policies = serde_json::to_string(&policies).ok()?;
        let buckets = changed.join(",");
        Some(format!(
            "{{{},\"policies\":{policies},\"buckets\":[{buckets}]}}",
            self.fields
        ))
    }
}

/// The time, the storage failure and participants that are text already.
fn participants_text(app: &App, participants: &[String]) -> String {
    let now_us = app.0.cycle.components().time.now_us();
    let failure = StorageFailureView::of(&app.0.cycle);
    let failure = serde_json::to_string(&failure).unwrap_or_else(|_| "null".to_owned());
    let participants = participants.join(",");
    format!("\"now_us\":{now_us},\"storage_failure\":{failure},\"participants\":[{participants}]")
}

async fn produce(app: App) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = None;
    let mut sent = Instant::now();
    let mut is_first = true;
    loop {
        ticks.tick().await;
        let revision = app.0.status.revision();
        let is_due = is_first || seen != Some(revision) || sent.elapsed() >= REFRESH;
        let newest = if is_due {
            newest(&app).await
        } else {
            Vec::new()
        };
        let status = if is_due {
            Some(Arc::from(api::status_text(&app).await))
        } else {
            None
        };
        let mut guard = app.0.feed.running.lock();
        let Some(running) = &mut *guard else {
            return;
        };
        if running.sender.receiver_count() == 0 {
            *guard = None;
            return;
        }
        if !is_due {
            continue;
        }
        seen = Some(revision);
        sent = Instant::now();
        let mut changes = Vec::new();
        for (participant, rendered) in newest {
            changes.extend(rendered.changes(running.participants.get(&participant)));
            running.participants.insert(participant, rendered);
        }
        running.status = status;
        let messages = if std::mem::take(&mut is_first) {
            running.first(&app)
        } else {
            let text = format!("{{{}}}", participants_text(&app, &changes));
            let status = running.status.clone().map(|status| ("status", status));
            let changes = Some(("changes", Arc::from(text)));
            changes.into_iter().chain(status).collect()
        };
        for message in messages {
            let _nobody_listens = running.sender.send(message);
        }
    }
}

/// The participants that may have changed, computed again.
async fn newest(app: &App) -> Vec<(String, Rendered)> {
    let components = app.0.cycle.components();
    let status = &app.0.status;
    let age_max = if status.is_leader() {
        AGE_MAX_LEADER
    } else {
        AGE_MAX_STANDBY
    };
    let all = app.0.feed.must_recompute.swap(false, Ordering::Relaxed);
    let due = |participant: &&String| {
        let running = app.0.feed.running.lock();
        let shown = running
            .as_ref()
            .and_then(|running| running.participants.get(*participant));
        all || shown.is_none_or(|shown| {
            shown.revision != status.revision_of(participant) || shown.computed.elapsed() >= age_max
        })
    };
    let due: Vec<&String> = components.sources.keys().filter(due).collect();
    let mut newest = Vec::new();
    for participant in due {
        // Read before the state, so that what happens meanwhile is seen at the next tick.
        let revision = status.revision_of(participant);
        let view = view::participant(&app.0.cycle, participant).await;
        if let Some(rendered) = Rendered::of(&view, revision) {
            newest.push((participant.clone(), rendered));
        }
    }
    newest
}

/// Streams the states and the monitor's status. Streams have a limit of their own, below that of
/// connections: otherwise they would keep out everything else.
pub(super) async fn stream(State(app): State<App>) -> Response {
    let Ok(permit) = Arc::clone(&app.0.event_streams).try_acquire_owned() else {
        let why = "too many event streams are open; close some, or use /api/v1/states\n";
        let retry = [(header::RETRY_AFTER, "10")];
        return (StatusCode::SERVICE_UNAVAILABLE, retry, why).into_response();
    };
    let (first, receiver) = app.0.feed.subscribe(&app);
    let follower = Follower {
        app,
        waiting: first.into(),
        receiver,
        _permit: permit,
    };
    let events = stream::unfold(follower, |mut follower| async {
        let event = follower.next().await?;
        Some((Ok::<_, Infallible>(event), follower))
    });
    Sse::new(events)
        .keep_alive(KeepAlive::new())
        .into_response()
}

/// One client's place in the stream.
struct Follower {
    app: App,
    waiting: std::collections::VecDeque<Message>,
    receiver: broadcast::Receiver<Message>,
    _permit: OwnedSemaphorePermit,
}

impl Follower {
    /// The next message; `None` when the monitor stops.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((name, text)) = self.waiting.pop_front() {
                return Some(Event::default().event(name).retry(RETRY).data(&*text));
            }
            match self.receiver.recv().await {
                Ok(message) => self.waiting.push_back(message),
                Err(RecvError::Closed) => return None,
                // Too slow: begins again with all states.
                Err(RecvError::Lagged(_)) => {
                    let (first, receiver) = self.app.0.feed.subscribe(&self.app);
                    self.waiting = first.into();
                    self.receiver = receiver;
                }
            }
        }
    }
}
