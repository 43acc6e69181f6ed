//! The shell around the core: the lock, the clock, one timer for all who wait, and the log.
//!
//! Whoever changes something serves all whose time has come before it lets go of the lock, and wakes
//! them after that. Only time needs somebody of its own: one task that sleeps until the next moment
//! at which anything can change, while anybody waits at all.

use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::error::Refused;
use crate::rate::Rate;
use crate::scheduler::prefetch::{Ahead, Counters, Owner};
use crate::scheduler::serve::{Settled, Wakes};
use crate::scheduler::waiters::Place;
use crate::scheduler::{Core, Source, Verdict};
use crate::settings::Settings;
use crate::signal::Report;
use balde::Clock;

pub(crate) struct Shared {
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: Clock,
    pub(crate) ahead: Arc<Ahead>,
    inside: Mutex<Inside>,
    /// Something may be due earlier than the driver thinks.
    news: Notify,
    /// Held by whoever writes the log, so that lines come in the order of what happened.
    telling: Mutex<()>,
    #[cfg(feature = "redis")]
    pub(crate) feed: Option<crate::remote::tokens::Feed>,
}

struct Inside {
    core: Core,
    is_driven: bool,
    /// When the driver wakes by itself.
    driver_due_us: u64,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Tokens,
    /// Tokens, and somebody will report how it went.
    Permit,
}

/// A request on its way in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) whom: Whom<'a>,
    pub(crate) n: u64,
    pub(crate) want: Want,
    pub(crate) within: Option<Duration>,
}

/// Which partition.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whom<'a> {
    Name(&'a str),
    Owner(Owner),
}

/// What was given, and in which epoch of its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) index: u32,
    pub(crate) epoch: u32,
}

/// What became of it for now.
pub(crate) enum Entered {
    Granted(Given),
    Refused(Refused),
    /// A place in a line; where somebody has to be told, a waker was left there.
    Waits {
        index: u32,
        place: Place,
    },
}

/// What has to be done elsewhere when the lock has been let go.
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "without a store there is nowhere else")
)]
pub(crate) struct Errands {
    /// Partitions whose lines need tokens.
    pub(crate) hungry: Vec<u32>,
    /// Partitions of which others should hear.
    pub(crate) news: Vec<Arc<str>>,
}

impl Errands {
    fn of(core: &mut Core) -> Self {
        Self {
            hungry: std::mem::take(&mut core.hungry),
            news: std::mem::take(&mut core.news),
        }
    }
}

impl Shared {
    pub(crate) fn new(settings: Settings, clock: Clock, source: Source) -> Self {
        let settings = Arc::new(settings);
        let ahead = Ahead::new(settings.partitions_max);
        let counters = Counters::new(&ahead, !clock.is_virtual());
        let core = Core::new(Arc::clone(&settings), source, counters, clock.now_us());
        Self {
            settings,
            clock,
            ahead,
            inside: Mutex::new(Inside {
                core,
                is_driven: false,
                driver_due_us: u64::MAX,
            }),
            news: Notify::new(),
            telling: Mutex::new(()),
            #[cfg(feature = "redis")]
            feed: None,
        }
    }

    /// Tokens from the partition's door, without the lock.
    #[inline]
    pub(crate) fn take_ahead(&self, whom: Whom<'_>, n: u64) -> bool {
        match whom {
            Whom::Name(name) => self.ahead.take_by_name(name, n),
            Whom::Owner(owner) => self.ahead.take(owner, n),
        }
    }

    /// Tokens now, or why not.
    pub(crate) fn try_enter(self: &Arc<Self>, request: Request<'_>) -> Result<Given, Refused> {
        let mut inside = self.inside.lock();
        let now_us = self.clock.now_us();
        serve_waiting(&mut inside, now_us);
        let (index, verdict) = begin(&mut inside.core, request, now_us);
        let must_wait = matches!(verdict, Verdict::MustWait { .. });
        let burst = must_wait.then(|| inside.core.burst_of(index));
        self.leave(inside, now_us);
        let n = request.n;
        match verdict {
            Verdict::Granted { epoch } => Ok(Given { index, epoch }),
            Verdict::Refused(refused) => Err(refused),
            // Such a request is served in slices, over time.
            Verdict::MustWait { .. } if burst.is_some_and(|burst| n > burst) => {
                let burst = burst.unwrap_or(0);
                Err(Refused::TooLarge { n, burst })
            }
            Verdict::MustWait { retry_us } => {
                let retry_after = retry_us.map(Duration::from_micros);
                Err(Refused::NotNow { retry_after })
            }
        }
    }

    /// Tokens now, or a place in the line.
    pub(crate) fn enter(self: &Arc<Self>, request: Request<'_>, waker: &Waker) -> Entered {
        let mut inside = self.inside.lock();
        let now_us = self.clock.now_us();
        serve_waiting(&mut inside, now_us);
        let (index, verdict) = begin(&mut inside.core, request, now_us);
        let entered = match verdict {
            Verdict::Granted { epoch } => Entered::Granted(Given { index, epoch }),
            Verdict::Refused(refused) => Entered::Refused(refused),
            Verdict::MustWait { .. } => match self.join(&mut inside, index, request, now_us) {
                Ok(place) => {
                    inside.core.look(place, waker);
                    Entered::Waits { index, place }
                }
                Err(refused) => Entered::Refused(refused),
            },
        };
        self.leave(inside, now_us);
        entered
    }

    fn join(
        self: &Arc<Self>,
        inside: &mut Inside,
        index: u32,
        request: Request<'_>,
        now_us: u64,
    ) -> Result<Place, Refused> {
        let Ok(handle) = Handle::try_current() else {
            return Err(Refused::NoRuntime);
        };
        let deadline_us = request
            .within
            .map(|within| now_us.saturating_add(crate::health::whole_us(within)));
        let place = inside.core.join(index, request.n, deadline_us, now_us)?;
        self.drive(inside, &handle);
        Ok(place)
    }

    /// What has become of a waiter. Where nobody drives any more, because the runtime that did has
    /// ended, this one does from now on.
    pub(crate) fn look(
        self: &Arc<Self>,
        place: Place,
        want: Want,
        waker: &Waker,
    ) -> Option<Result<u32, Refused>> {
        let mut inside = self.inside.lock();
        let waiter = inside.core.waiters.get(place);
        let (index, n) = (waiter.part, waiter.n);
        let fate = inside.core.look(place, waker);
        match fate {
            Some(Ok(_)) if want == Want::Permit => inside.core.hold(index, n),
            None if !inside.is_driven => {
                if let Ok(handle) = Handle::try_current() {
                    self.drive(&mut inside, &handle);
                }
            }
            _ => {}
        }
        fate
    }

    /// Runs `step` under the lock and serves all whose time has come.
    pub(crate) fn step<R>(self: &Arc<Self>, step: impl FnOnce(&mut Core, u64) -> R) -> R {
        let mut inside = self.inside.lock();
        let now_us = self.clock.now_us();
        let result = step(&mut inside.core, now_us);
        self.leave(inside, now_us);
        result
    }

    /// Looks under the lock, and changes nothing that anybody waits for.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&Core) -> R) -> R {
        read(&self.inside.lock().core)
    }

    /// Serves, lets go of the lock, wakes and tells.
    #[inline]
    fn leave(self: &Arc<Self>, inside: MutexGuard<'_, Inside>, now_us: u64) {
        if inside.core.is_calm() && !inside.is_driven {
            return;
        }
        self.leave_busy(inside, now_us);
    }

    #[cold]
    fn leave_busy(self: &Arc<Self>, mut inside: MutexGuard<'_, Inside>, now_us: u64) {
        let mut wakes = Wakes::default();
        settle(&mut inside, now_us, &mut wakes);
        let due_us = inside.core.next_due_us().unwrap_or(u64::MAX);
        let is_news = due_us < inside.driver_due_us || inside.core.waiting == 0;
        let is_driven = inside.is_driven;
        let has_notes = !inside.core.notes.is_empty();
        let errands = Errands::of(&mut inside.core);
        drop(inside);
        wakes.wake_all();
        if is_news && is_driven {
            self.news.notify_one();
        }
        self.run(errands);
        if has_notes {
            self.tell();
        }
    }

    /// Writes what has happened to the log, in order. Nobody waits for it: whoever finds it being
    /// written leaves its lines to the one who writes.
    fn tell(&self) {
        loop {
            let Some(telling) = self.telling.try_lock() else {
                return;
            };
            loop {
                let note = self.inside.lock().core.notes.pop_front();
                let Some(note) = note else { break };
                note.log(&self.settings.name);
            }
            drop(telling);
            if self.inside.lock().core.notes.is_empty() {
                return;
            }
        }
    }

    /// How a request ended: one with a permit of this epoch and so many tokens, or somebody's.
    pub(crate) fn report(
        self: &Arc<Self>,
        index: u32,
        permit: Option<(u32, u64)>,
        report: &Report,
    ) {
        let epoch = permit.map(|(epoch, _)| epoch);
        self.step(|core, now_us| {
            if let Some((_, n)) = permit {
                core.release(index, n);
            }
            core.report(index, epoch, report, now_us);
        });
    }

    pub(crate) fn set_rate(self: &Arc<Self>, rate: Rate) {
        self.step(|core, now_us| core.set_rate(rate, now_us));
        #[cfg(feature = "redis")]
        if let Some(feed) = &self.feed {
            feed.set_rate(self);
        }
    }

    pub(crate) fn close(self: &Arc<Self>) {
        self.step(Core::close);
        self.news.notify_one();
    }

    #[cfg(not(feature = "redis"))]
    #[expect(clippy::unused_self, reason = "without a store there are no errands")]
    fn run(self: &Arc<Self>, _errands: Errands) {}

    fn drive(self: &Arc<Self>, inside: &mut Inside, handle: &Handle) {
        if inside.is_driven {
            return;
        }
        inside.is_driven = true;
        inside.driver_due_us = 0;
        let driving = Driving {
            shared: Arc::clone(self),
            is_done: false,
        };
        handle.spawn(async move { driving.run().await });
    }

    /// Serves, and says how long until there is more to do; nothing, when nobody waits.
    fn tend(self: &Arc<Self>) -> Option<Duration> {
        let mut inside = self.inside.lock();
        let now_us = self.clock.now_us();
        let mut wakes = Wakes::default();
        settle(&mut inside, now_us, &mut wakes);
        let due_us = inside.core.next_due_us().unwrap_or(u64::MAX);
        let is_needed = inside.core.waiting > 0;
        inside.is_driven = is_needed;
        inside.driver_due_us = due_us;
        let has_notes = !inside.core.notes.is_empty();
        let errands = Errands::of(&mut inside.core);
        drop(inside);
        wakes.wake_all();
        self.run(errands);
        if has_notes {
            self.tell();
        }
        is_needed.then(|| Duration::from_micros(due_us.saturating_sub(now_us)))
    }
}

/// The task that lets time pass for those who wait.
struct Driving {
    shared: Arc<Shared>,
    is_done: bool,
}

impl Driving {
    /// However far away the next moment is, the clock is looked at again after this: a clock that is
    /// moved by hand does not call.
    const LOOK_AGAIN: Duration = Duration::from_secs(1);

    async fn run(mut self) {
        while let Some(wait) = self.shared.tend() {
            let news = self.shared.news.notified();
            let _either = tokio::time::timeout(wait.min(Self::LOOK_AGAIN), news).await;
        }
        self.is_done = true;
    }
}

impl Drop for Driving {
    /// A runtime may end while others still wait elsewhere. They are woken, and the first to look
    /// drives on. A panic here means a runtime without time: then nobody can be served.
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut inside = self.shared.inside.lock();
        inside.is_driven = false;
        if thread::panicking() {
            let now_us = self.shared.clock.now_us();
            inside.core.close(now_us);
            let mut wakes = Wakes::default();
            settle(&mut inside, now_us, &mut wakes);
            MutexGuard::unlocked(&mut inside, || wakes.wake_all());
        }
        let wakers = inside.core.waiters.wakers();
        drop(inside);
        for waker in wakers {
            waker.wake();
        }
    }
}

/// Those who wait are served before somebody who has just come.
#[inline]
fn serve_waiting(inside: &mut MutexGuard<'_, Inside>, now_us: u64) {
    if inside.core.waiting > 0 {
        let mut wakes = Wakes::default();
        settle(inside, now_us, &mut wakes);
        if !wakes.is_empty() {
            MutexGuard::unlocked(inside, || wakes.wake_all());
        }
    }
}

/// Serves all whose time has come. The lock is let go in between, so that a crowd holds up nobody.
fn settle(inside: &mut MutexGuard<'_, Inside>, now_us: u64, wakes: &mut Wakes) {
    while inside.core.settle(now_us, wakes) == Settled::Part {
        MutexGuard::unlocked(inside, || wakes.wake_all());
    }
}

fn begin(core: &mut Core, request: Request<'_>, now_us: u64) -> (u32, Verdict) {
    let index = match request.whom {
        Whom::Name(name) => match core.find(name, now_us) {
            Ok(index) => index,
            Err(refused) => return (0, Verdict::Refused(refused)),
        },
        // A handle keeps its partition.
        Whom::Owner(owner) => owner.index,
    };
    let verdict = core.begin(index, request.n, now_us);
    if request.want == Want::Permit && matches!(verdict, Verdict::Granted { .. }) {
        core.hold(index, request.n);
    }
    (index, verdict)
}
