//! The live stream of states, as server-sent events.
//!
//! One task computes and serialises the states for all clients, and only when something may have
//! changed: after a poll, after a change of leadership or by an operator, and otherwise every few
//! seconds, because a standby monitor sees the leader's work in the database only. It ends when the
//! last client has left.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::App;
use super::api;

/// How often the task looks for changes.
const TICK: Duration = Duration::from_secs(1);

/// The longest time between two messages of a kind, which keeps the client's clock right.
const REFRESH: Duration = Duration::from_secs(5);

/// How soon a client reconnects. The server ends long connections from time to time.
const RETRY: Duration = Duration::from_millis(500);

/// The newest messages. `None` until the first is computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Messages {
    states: Option<Arc<str>>,
    status: Option<Arc<str>>,
}

/// The shared source of all streams.
#[derive(Debug, Default)]
pub(super) struct Feed {
    sender: Mutex<Option<watch::Sender<Messages>>>,
}

impl Feed {
    /// Subscribes, and starts the task if none is running.
    fn subscribe(&self, app: &App) -> watch::Receiver<Messages> {
        let mut sender = self.sender.lock();
        if let Some(sender) = &*sender {
            return sender.subscribe();
        }
        let (new, receiver) = watch::channel(Messages::default());
        *sender = Some(new);
        tokio::spawn(produce(app.clone()));
        receiver
    }

    /// Publishes messages, or returns false if nobody listens any more.
    fn publish(&self, messages: Messages) -> bool {
        let mut sender = self.sender.lock();
        match &*sender {
            Some(open) if open.receiver_count() > 0 => {
                open.send_if_modified(|shown| {
                    let is_new = *shown != messages;
                    *shown = messages;
                    is_new
                });
                true
            }
            _ => {
                *sender = None;
                false
            }
        }
    }
}

async fn produce(app: App) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut messages = Messages::default();
    let mut seen = None;
    let mut computed = Instant::now();
    loop {
        ticks.tick().await;
        let revision = app.0.status.revision();
        if seen != Some(revision) || computed.elapsed() >= REFRESH {
            seen = Some(revision);
            computed = Instant::now();
            if let Ok(states) = api::states_text(&app).await {
                messages.states = Some(states.into());
            }
            messages.status = Some(api::status_text(&app).await.into());
        }
        if !app.0.feed.publish(messages.clone()) {
            return;
        }
    }
}

/// Streams the states and the monitor's status.
pub(super) async fn stream(State(app): State<App>) -> Response {
    let receiver = app.0.feed.subscribe(&app);
    let follower = Follower {
        receiver,
        sent: Messages::default(),
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
    receiver: watch::Receiver<Messages>,
    sent: Messages,
}

impl Follower {
    /// The next message that differs from the last one sent; `None` when the monitor stops.
    async fn next(&mut self) -> Option<Event> {
        loop {
            let newest = self.receiver.borrow_and_update().clone();
            if newest.states != self.sent.states {
                self.sent.states.clone_from(&newest.states);
                return newest.states.map(|text| message("states", &text));
            }
            if newest.status != self.sent.status {
                self.sent.status.clone_from(&newest.status);
                return newest.status.map(|text| message("status", &text));
            }
            self.receiver.changed().await.ok()?;
        }
    }
}

fn message(name: &str, text: &str) -> Event {
    Event::default().event(name).retry(RETRY).data(text)
}
