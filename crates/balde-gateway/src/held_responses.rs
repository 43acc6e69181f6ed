//! Responses that hold a connection to the upstream because their clients have not taken them yet.
//!
//! A client that takes nothing may hold a connection for as long as the write timeout. While
//! connections run short, clients that take little hold at most a quarter of them: the slowest of
//! them are cut, by the bytes that they have taken in the time since the response began.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use http::Extensions;
use parking_lot::Mutex;
use tokio::task::{Id, try_id};

use crate::cut_tasks;

/// A client is not called slow before its response is this old.
const GRACE: Duration = Duration::from_millis(50);

/// How often responses are checked for the write timeout.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// The responses of one upstream that hold a connection.
#[derive(Debug)]
pub(crate) struct HeldResponses {
    /// How many connections slow clients may hold while others need one.
    slow_max: usize,
    held: Mutex<Held>,
    cuts: [AtomicU64; CutReason::ALL.len()],
}

#[derive(Debug, Default)]
struct Held {
    last_id: u64,
    responses: HashMap<u64, Entry>,
    is_checked: bool,
}

#[derive(Debug)]
struct Entry {
    response: Arc<Response>,
    /// What the client had taken when it was last checked, and since when that is so.
    taken: u64,
    since: Instant,
}

/// Why a response was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutReason {
    /// The client took nothing for as long as the write timeout.
    Timeout,
    /// Others needed the connection, and slow clients held more than their share.
    Share,
}

impl CutReason {
    pub(crate) const ALL: [Self; 2] = [Self::Timeout, Self::Share];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Share => "share",
        }
    }
}

#[derive(Debug)]
struct Response {
    started: Instant,
    /// Bytes of the body that the client took.
    taken: AtomicU64,
    /// Whether the client would take more, but the upstream has sent no more.
    is_upstream_awaited: AtomicBool,
    is_cut: AtomicBool,
    client: Mutex<Option<ClientTask>>,
}

/// The task that writes to the client.
#[derive(Debug)]
struct ClientTask {
    id: Id,
    waker: Waker,
    write_timeout: Duration,
}

/// One response that holds a connection, until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldResponse {
    id: u64,
    response: Arc<Response>,
    all: Arc<HeldResponses>,
}

impl HeldResponses {
    pub(crate) fn new(connections_max: usize) -> Self {
        Self {
            slow_max: (connections_max / 4).max(1),
            held: Mutex::default(),
            cuts: Default::default(),
        }
    }

    /// How many responses were cut for a reason.
    pub(crate) fn cuts(&self, reason: CutReason) -> u64 {
        self.cuts[reason as usize].load(Ordering::Relaxed)
    }

    /// Registers a response.
    pub(crate) fn hold(self: &Arc<Self>) -> Arc<HeldResponse> {
        let now = Instant::now();
        let response = Arc::new(Response {
            started: now,
            taken: AtomicU64::new(0),
            is_upstream_awaited: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            client: Mutex::new(None),
        });
        let mut held = self.held.lock();
        held.last_id += 1;
        let id = held.last_id;
        let entry = Entry {
            response: Arc::clone(&response),
            taken: 0,
            since: now,
        };
        held.responses.insert(id, entry);
        if !held.is_checked {
            held.is_checked = true;
            tokio::spawn(check_timeouts(Arc::downgrade(self)));
        }
        Arc::new(HeldResponse {
            id,
            response,
            all: Arc::clone(self),
        })
    }

    /// Cuts the slowest response if slow clients hold more than their share. Returns whether it did.
    pub(crate) fn cut_slowest(&self) -> bool {
        let held = self.held.lock();
        if held.responses.len() <= self.slow_max {
            return false;
        }
        let now = Instant::now();
        let mut slow = 0;
        let mut slowest: Option<(u128, &Response)> = None;
        for entry in held.responses.values() {
            let response = &*entry.response;
            let Some(rate) = response.slow_rate(now) else {
                continue;
            };
            slow += 1;
            if slowest.is_none_or(|(least, _)| rate < least) {
                slowest = Some((rate, response));
            }
        }
        match slowest {
            Some((_, response)) if slow > self.slow_max => {
                self.cut(response, CutReason::Share);
                true
            }
            _ => false,
        }
    }

    /// Only called with `held` locked, so that the response cannot end meanwhile.
    fn cut(&self, response: &Response, reason: CutReason) {
        if let Some(client) = &*response.client.lock() {
            response.is_cut.store(true, Ordering::Relaxed);
            self.cuts[reason as usize].fetch_add(1, Ordering::Relaxed);
            cut_tasks::mark(client.id);
            client.waker.wake_by_ref();
        }
    }

    /// Cuts what clients have not taken for too long. Returns whether any response is left.
    fn check(&self) -> bool {
        let mut held = self.held.lock();
        let now = Instant::now();
        for entry in held.responses.values_mut() {
            let response = &*entry.response;
            let taken = response.taken.load(Ordering::Relaxed);
            if taken != entry.taken || response.is_upstream_awaited.load(Ordering::Relaxed) {
                (entry.taken, entry.since) = (taken, now);
                continue;
            }
            let timeout = response.client.lock().as_ref().map(|it| it.write_timeout);
            let is_late = timeout.is_some_and(|timeout| now - entry.since >= timeout);
            if is_late && !response.is_cut.load(Ordering::Relaxed) {
                self.cut(response, CutReason::Timeout);
            }
        }
        held.is_checked = !held.responses.is_empty();
        if !held.is_checked {
            held.responses.shrink_to_fit();
        }
        held.is_checked
    }
}

async fn check_timeouts(all: Weak<HeldResponses>) {
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        let Some(all) = all.upgrade() else { return };
        if !all.check() {
            return;
        }
    }
}

impl Response {
    /// The bytes per second that a slow client takes; `None` if the client is not slow.
    fn slow_rate(&self, now: Instant) -> Option<u128> {
        let age = now.saturating_duration_since(self.started);
        if age < GRACE
            || self.is_upstream_awaited.load(Ordering::Relaxed)
            || self.is_cut.load(Ordering::Relaxed)
            || self.client.lock().is_none()
        {
            return None;
        }
        let taken = u128::from(self.taken.load(Ordering::Relaxed));
        // A tie, such as between those that took nothing, is decided by age.
        Some((taken + 1) * 1_000_000_000_000 / age.as_micros().max(1))
    }
}

impl HeldResponse {
    /// Takes it out of a response's extensions; `None` if the response holds no connection.
    pub(crate) fn of(extensions: &mut Extensions) -> Option<Arc<Self>> {
        extensions.remove::<Arc<Self>>()
    }

    /// From now on the current task writes the response to the client, which may take nothing for as
    /// long as `write_timeout`.
    pub(crate) async fn written_here(&self, write_timeout: Duration) {
        let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        *self.response.client.lock() = try_id().map(|id| ClientTask {
            id,
            waker,
            write_timeout,
        });
    }

    /// The client took so many bytes.
    pub(crate) fn taken(&self, bytes: u64) {
        let response = &self.response;
        response.taken.fetch_add(bytes.max(1), Ordering::Relaxed);
        response.is_upstream_awaited.store(false, Ordering::Relaxed);
    }

    /// The client would take more than the upstream has sent.
    pub(crate) fn awaits_upstream(&self) {
        let awaited = &self.response.is_upstream_awaited;
        awaited.store(true, Ordering::Relaxed);
    }
}

impl Drop for HeldResponse {
    fn drop(&mut self) {
        self.all.held.lock().responses.remove(&self.id);
        if self.response.is_cut.load(Ordering::Relaxed)
            && let Some(client) = self.response.client.lock().take()
        {
            cut_tasks::unmark(client.id);
        }
    }
}
