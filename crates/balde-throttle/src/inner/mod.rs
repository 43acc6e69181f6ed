//! The state that all handles of a throttler share: the scheduler behind a lock, the clock, the timer
//! and the log.
//!
//! Every change serves all waiters whose time has come before it releases the lock, and wakes them
//! afterwards. For what only time changes there is one task, the [`driver`], which sleeps until the next
//! due moment while any request waits.

mod driver;
#[cfg(feature = "redis")]
mod sync;

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use balde::Clock;
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::error::Refusal;
use crate::micros::whole_us;
use crate::outcome::Report;
use crate::rate::Rate;
#[cfg(feature = "redis")]
use crate::remote::Remote;
use crate::scheduler::fast_path::{FastPath, Prefetch, SlotOwner};
use crate::scheduler::serve::{Progress, WakeList};
use crate::scheduler::waiters::WaiterId;
use crate::scheduler::{Scheduler, TokenSource, Verdict};
use crate::settings::Settings;

pub(crate) struct Inner {
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: Clock,
    fast_path: Arc<FastPath>,
    locked: Mutex<Locked>,
    /// Notified when something may be due earlier than the driver's timer.
    driver_wakeup: Notify,
    /// Held by the thread that writes log events, so that they are written in order.
    log_lock: Mutex<()>,
    #[cfg(feature = "redis")]
    remote: Option<Remote>,
}

struct Locked {
    scheduler: Scheduler,
    /// True while a driver task runs.
    is_driven: bool,
    /// When the driver's timer fires.
    driver_due_us: u64,
}

/// Whether the caller will report the outcome of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Tokens,
    Permit,
}

/// A request for tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) partition: PartitionRef<'a>,
    pub(crate) n: u64,
    pub(crate) kind: RequestKind,
    pub(crate) within: Option<Duration>,
}

/// A partition, by name or by handle.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PartitionRef<'a> {
    Name(&'a str),
    Handle(SlotOwner),
}

/// A grant: of which partition, and in which of its epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) index: u32,
    pub(crate) epoch: u32,
}

/// The first answer to a request that may wait.
pub(crate) enum Entry {
    Granted(Grant),
    Refused(Refusal),
    /// It waits, and its waker has been stored.
    Queued {
        index: u32,
        id: WaiterId,
    },
}

/// Work for background tasks, started after the lock has been released.
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "only a shared store has background tasks")
)]
struct Deferred {
    /// Partitions whose queues need tokens.
    needs_tokens: Vec<u32>,
    /// Partitions with health events to publish.
    to_publish: Vec<Arc<str>>,
}

impl Deferred {
    fn take(scheduler: &mut Scheduler) -> Self {
        Self {
            needs_tokens: std::mem::take(&mut scheduler.needs_tokens),
            to_publish: std::mem::take(&mut scheduler.to_publish),
        }
    }
}

impl Inner {
    pub(crate) fn new(settings: Settings, clock: Clock, source: TokenSource) -> Self {
        let settings = Arc::new(settings);
        let fast_path = FastPath::new(settings.partitions_max);
        let prefetch = Prefetch::new(&fast_path, !clock.is_virtual());
        let scheduler = Scheduler::new(Arc::clone(&settings), source, prefetch, clock.now_us());
        Self {
            settings,
            clock,
            fast_path,
            locked: Mutex::new(Locked {
                scheduler,
                is_driven: false,
                driver_due_us: u64::MAX,
            }),
            driver_wakeup: Notify::new(),
            log_lock: Mutex::new(()),
            #[cfg(feature = "redis")]
            remote: None,
        }
    }

    /// Takes prefetched tokens, without the lock.
    #[inline]
    pub(crate) fn take_prefetched(&self, partition: PartitionRef<'_>, n: u64) -> bool {
        match partition {
            PartitionRef::Name(name) => self.fast_path.take_by_name(name, n),
            PartitionRef::Handle(owner) => self.fast_path.take(owner, n),
        }
    }

    /// Grants tokens now, or refuses.
    pub(crate) fn try_enter(self: &Arc<Self>, request: Request<'_>) -> Result<Grant, Refusal> {
        let mut locked = self.locked.lock();
        let now_us = self.clock.now_us();
        serve_waiting(&mut locked, now_us);
        let (index, verdict) = begin(&mut locked.scheduler, request, now_us);
        let must_wait = matches!(verdict, Verdict::MustWait { .. });
        let burst = must_wait.then(|| locked.scheduler.burst_of(index));
        if must_wait {
            locked.scheduler.relax(index, now_us);
        }
        self.unlock(locked, now_us);
        let n = request.n;
        match verdict {
            Verdict::Granted { epoch } => Ok(Grant { index, epoch }),
            Verdict::Refused(refusal) => Err(refusal),
            // A request for more than the burst has to be first in line to save up for it.
            Verdict::MustWait { .. } if burst.is_some_and(|burst| n > burst) => {
                let burst = burst.unwrap_or(0);
                Err(Refusal::TooLarge { n, burst })
            }
            Verdict::MustWait { retry_us } => {
                let retry_after = retry_us.map(Duration::from_micros);
                Err(Refusal::NotNow { retry_after })
            }
        }
    }

    /// Grants tokens now, or adds a waiter to the partition's queue.
    pub(crate) fn enter(self: &Arc<Self>, request: Request<'_>, waker: &Waker) -> Entry {
        let mut locked = self.locked.lock();
        let now_us = self.clock.now_us();
        serve_waiting(&mut locked, now_us);
        let (index, verdict) = begin(&mut locked.scheduler, request, now_us);
        let entry = match verdict {
            Verdict::Granted { epoch } => Entry::Granted(Grant { index, epoch }),
            Verdict::Refused(refusal) => Entry::Refused(refusal),
            Verdict::MustWait { .. } => match self.join(&mut locked, index, request, now_us) {
                Ok(id) => {
                    locked.scheduler.poll_waiter(id, waker);
                    Entry::Queued { index, id }
                }
                Err(refusal) => Entry::Refused(refusal),
            },
        };
        self.unlock(locked, now_us);
        entry
    }

    fn join(
        self: &Arc<Self>,
        locked: &mut Locked,
        index: u32,
        request: Request<'_>,
        now_us: u64,
    ) -> Result<WaiterId, Refusal> {
        let Ok(handle) = Handle::try_current() else {
            return Err(Refusal::NoRuntime);
        };
        let deadline_us = request
            .within
            .map(|within| now_us.saturating_add(whole_us(within)));
        let id = locked
            .scheduler
            .join(index, request.n, deadline_us, now_us)?;
        self.drive(locked, &handle);
        Ok(id)
    }

    /// Returns the result of a waiter, if it has one. Where the runtime of the driver has ended, this
    /// starts a new driver in the current one.
    pub(crate) fn poll_waiter(
        self: &Arc<Self>,
        id: WaiterId,
        kind: RequestKind,
        waker: &Waker,
    ) -> Option<Result<u32, Refusal>> {
        let mut locked = self.locked.lock();
        let waiter = locked.scheduler.waiters.get(id);
        let (index, n) = (waiter.partition, waiter.n);
        let result = locked.scheduler.poll_waiter(id, waker);
        match result {
            Some(Ok(_)) if kind == RequestKind::Permit => locked.scheduler.open_permit(index, n),
            None if !locked.is_driven => {
                if let Ok(handle) = Handle::try_current() {
                    self.drive(&mut locked, &handle);
                }
            }
            _ => {}
        }
        result
    }

    /// Removes a waiter whose future was dropped.
    pub(crate) fn cancel(self: &Arc<Self>, id: WaiterId) {
        self.update(|scheduler, now_us| scheduler.cancel(id, now_us));
    }

    /// Runs `update` under the lock, and serves all waiters whose time has come.
    pub(crate) fn update<R>(self: &Arc<Self>, update: impl FnOnce(&mut Scheduler, u64) -> R) -> R {
        let mut locked = self.locked.lock();
        let now_us = self.clock.now_us();
        let result = update(&mut locked.scheduler, now_us);
        self.unlock(locked, now_us);
        result
    }

    /// Runs `read` under the lock.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&Scheduler) -> R) -> R {
        read(&self.locked.lock().scheduler)
    }

    /// Reports how a request ended: one with a permit (its epoch and tokens), or one without.
    pub(crate) fn report(
        self: &Arc<Self>,
        index: u32,
        permit: Option<(u32, u64)>,
        report: &Report,
    ) {
        let epoch = permit.map(|(epoch, _)| epoch);
        self.update(|scheduler, now_us| {
            if let Some((_, n)) = permit {
                scheduler.close_permit(index, n);
            }
            scheduler.report(index, epoch, report, now_us);
        });
    }

    pub(crate) fn set_rate(self: &Arc<Self>, rate: Rate) {
        self.update(|scheduler, now_us| scheduler.set_rate(rate, now_us));
        #[cfg(feature = "redis")]
        if let Some(remote) = &self.remote {
            remote
                .tokens
                .set_rate(&self.read(|scheduler| scheduler.global_pace));
        }
    }

    pub(crate) fn close(self: &Arc<Self>) {
        self.update(Scheduler::close);
        self.driver_wakeup.notify_one();
    }

    /// Serves waiters, releases the lock, wakes those who were served and logs events.
    #[inline]
    fn unlock(self: &Arc<Self>, locked: MutexGuard<'_, Locked>, now_us: u64) {
        if locked.scheduler.is_idle() && !locked.is_driven {
            return;
        }
        self.unlock_busy(locked, now_us);
    }

    #[cold]
    fn unlock_busy(self: &Arc<Self>, mut locked: MutexGuard<'_, Locked>, now_us: u64) {
        let mut wake_list = WakeList::default();
        serve_due(&mut locked, now_us, &mut wake_list);
        let due_us = locked.scheduler.next_due_us().unwrap_or(u64::MAX);
        let is_earlier = due_us < locked.driver_due_us || locked.scheduler.waiting == 0;
        let must_wake_driver = is_earlier && locked.is_driven;
        self.finish(locked, &mut wake_list, must_wake_driver);
    }

    /// Releases the lock and does what must not be done under it.
    fn finish(
        self: &Arc<Self>,
        mut locked: MutexGuard<'_, Locked>,
        wake_list: &mut WakeList,
        must_wake_driver: bool,
    ) {
        let has_events = !locked.scheduler.events.is_empty();
        let deferred = Deferred::take(&mut locked.scheduler);
        drop(locked);
        wake_list.wake_all();
        if must_wake_driver {
            self.driver_wakeup.notify_one();
        }
        self.start_tasks(deferred);
        if has_events {
            self.log_events();
        }
    }

    #[cfg(not(feature = "redis"))]
    #[expect(
        clippy::unused_self,
        reason = "only a shared store has background tasks"
    )]
    fn start_tasks(self: &Arc<Self>, _deferred: Deferred) {}

    /// Logs events in the order in which they happened. A thread that finds another one logging leaves
    /// its events to that one, so no caller waits for the log.
    fn log_events(&self) {
        loop {
            let Some(logging) = self.log_lock.try_lock() else {
                return;
            };
            loop {
                let event = self.locked.lock().scheduler.events.pop_front();
                let Some(event) = event else { break };
                event.log(&self.settings.name);
            }
            drop(logging);
            if self.locked.lock().scheduler.events.is_empty() {
                return;
            }
        }
    }
}

/// Serves waiters before a new request is decided.
#[inline]
fn serve_waiting(locked: &mut MutexGuard<'_, Locked>, now_us: u64) {
    if locked.scheduler.waiting > 0 {
        let mut wake_list = WakeList::default();
        serve_due(locked, now_us, &mut wake_list);
        if !wake_list.is_empty() {
            MutexGuard::unlocked(locked, || wake_list.wake_all());
        }
    }
}

/// Serves all waiters whose time has come. The lock is released in between, so that many of them do
/// not block other callers.
fn serve_due(locked: &mut MutexGuard<'_, Locked>, now_us: u64, wake_list: &mut WakeList) {
    while locked.scheduler.serve_due(now_us, wake_list) == Progress::More {
        MutexGuard::unlocked(locked, || wake_list.wake_all());
    }
}

fn begin(scheduler: &mut Scheduler, request: Request<'_>, now_us: u64) -> (u32, Verdict) {
    let index = match request.partition {
        PartitionRef::Name(name) => match scheduler.find(name, now_us) {
            Ok(index) => index,
            Err(refusal) => return (0, Verdict::Refused(refusal)),
        },
        // A partition with a handle is not removed.
        PartitionRef::Handle(owner) => owner.index,
    };
    let verdict = scheduler.begin(index, request.n, now_us);
    if request.kind == RequestKind::Permit && matches!(verdict, Verdict::Granted { .. }) {
        scheduler.open_permit(index, request.n);
    }
    (index, verdict)
}
