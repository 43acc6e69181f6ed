//! The health of a partition: errors degrade its rate, successes raise it, and at the floor, or after
//! nothing but errors, its circuit opens.
//!
//! ```text
//!      too many errors: rate × ratio            reset interval over
//!   closed ───────────────────────▶ open ──────────────────────────▶ half-open
//!     ▲ ▲ │  (at the floor: opens)   ▲                                │   │
//!     │ └─┘ success, quiet: + step   └───────── a probe fails ────────┘   │
//!     └──────────────── all probes succeed: at the rate as it was ────────┘
//! ```
//!
//! Pure: time is an argument, in microseconds. Rates are whole tokens per period. A degraded rate is
//! the rate times the ratio, rounded down, and never below the floor: 2000 becomes 1800, 1620, 1458,
//! 1312.

mod degradation;
#[cfg(feature = "redis")]
mod shared;
mod window;

use std::time::Duration;

pub use degradation::Degradation;
use window::Window;

use crate::micros::whole_us;

/// How many requests in a row must have failed, at least, to open the circuit above the floor.
const FAILURES_TO_OPEN: u64 = 20;

/// The longest interval that can be set.
pub(crate) const INTERVAL_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The state of a partition's circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circuit {
    /// Requests pass at the current rate.
    Closed,
    /// Requests are refused.
    Open,
    /// A few requests pass as probes; their outcomes decide whether the circuit closes.
    HalfOpen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open { until_us: u64 },
    HalfOpen(Probes),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Probes {
    issued: u32,
    passed: u32,
    /// When the last of them was admitted.
    issued_at_us: u64,
}

/// Requests that failed, with no success among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failing {
    since_us: u64,
    errors: u64,
}

/// One partition's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    configured: u64,
    current: u64,
    state: State,
    /// From when the interval of recovery is counted: the last error that mattered, opening or closing.
    /// After a step of recovery, so long ago that the next one may follow in time.
    quiet_from_us: u64,
    degraded_at_us: Option<u64>,
    /// The latest outcomes. Each process counts its own.
    window: Window,
    /// The errors since the last success.
    failing: Option<Failing>,
    /// Counts openings and half-openings. Outcomes of requests that were admitted in an earlier epoch
    /// are ignored.
    epoch: u32,
}

/// What an event changed, to be applied and logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// The rate before and after.
    pub(crate) rate: Option<(u64, u64)>,
    pub(crate) circuit: Option<Circuit>,
}

/// Whether a request may take tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Yes,
    /// The circuit is open, and half-opens then.
    Refused {
        until_us: u64,
    },
    /// All probes are in flight. By then those without an outcome are treated as lost.
    Wait {
        until_us: u64,
    },
}

impl Health {
    pub(crate) fn new(configured: u64) -> Self {
        Self {
            configured,
            current: configured,
            state: State::Closed,
            quiet_from_us: 0,
            degraded_at_us: None,
            window: Window::default(),
            failing: None,
            epoch: 0,
        }
    }

    pub(crate) const fn current(&self) -> u64 {
        self.current
    }

    pub(crate) const fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(crate) const fn circuit(&self) -> Circuit {
        match self.state {
            State::Closed => Circuit::Closed,
            State::Open { .. } => Circuit::Open,
            State::HalfOpen(_) => Circuit::HalfOpen,
        }
    }

    /// Returns true if the circuit is closed and the rate is the configured one.
    pub(crate) fn is_healthy(&self) -> bool {
        self.current == self.configured && self.state == State::Closed
    }

    /// Returns true if a success would raise the rate or count as a probe.
    pub(crate) fn can_recover(&self, degradation: &Degradation, now_us: u64) -> bool {
        match self.state {
            State::Closed => {
                self.current < self.configured
                    && self.is_quiet(degradation, now_us)
                    && (degradation.is_every_error()
                        || !self.has_too_many_errors(degradation, 0, now_us))
            }
            State::Open { .. } => false,
            State::HalfOpen(_) => true,
        }
    }

    /// Half-opens the circuit when its time is over, and returns whether a request may pass. A probe
    /// is counted by [`record_admitted`](Health::record_admitted) only.
    pub(crate) fn admit(&mut self, degradation: &Degradation, now_us: u64) -> (Admission, Change) {
        let mut change = Change::default();
        if let State::Open { until_us } = self.state {
            if now_us < until_us {
                return (Admission::Refused { until_us }, change);
            }
            self.state = State::HalfOpen(Probes::default());
            self.epoch = self.epoch.wrapping_add(1);
            change.circuit = Some(Circuit::HalfOpen);
        }
        if let State::HalfOpen(probes) = &mut self.state
            && probes.issued >= degradation.probes
        {
            let until_us = probes
                .issued_at_us
                .saturating_add(whole_us(degradation.reset));
            if now_us < until_us {
                return (Admission::Wait { until_us }, change);
            }
            probes.issued = probes.passed;
        }
        (Admission::Yes, change)
    }

    /// Records that a request was admitted.
    pub(crate) fn record_admitted(&mut self, now_us: u64) {
        if let State::HalfOpen(probes) = &mut self.state {
            probes.issued += 1;
            probes.issued_at_us = now_us;
        }
    }

    /// Records that an admitted request will have no outcome.
    pub(crate) fn record_abandoned(&mut self, epoch: Option<u32>) {
        if let State::HalfOpen(probes) = &mut self.state
            && epoch.is_none_or(|epoch| epoch == self.epoch)
            && probes.issued > probes.passed
        {
            probes.issued -= 1;
        }
    }

    /// Records that a request failed, while so many others had no outcome yet. Without an epoch it
    /// counts for the current one.
    pub(crate) fn record_error(
        &mut self,
        degradation: &Degradation,
        epoch: Option<u32>,
        in_flight: u64,
        now_us: u64,
    ) -> Change {
        if epoch.is_some_and(|epoch| epoch != self.epoch) {
            return Change::default();
        }
        match self.state {
            State::Open { .. } => Change::default(),
            State::HalfOpen(_) => self.open(degradation, None, now_us),
            State::Closed => self.record_error_closed(degradation, in_flight, now_us),
        }
    }

    fn record_error_closed(
        &mut self,
        degradation: &Degradation,
        in_flight: u64,
        now_us: u64,
    ) -> Change {
        self.window.record(true, degradation.window_us(), now_us);
        let failing = self.failing.get_or_insert(Failing {
            since_us: now_us,
            errors: 0,
        });
        failing.errors += 1;
        let Failing { since_us, errors } = *failing;
        let is_down = errors >= FAILURES_TO_OPEN
            && degradation
                .open_after_us()
                .is_some_and(|after_us| now_us >= since_us.saturating_add(after_us));
        if is_down {
            return self.open(degradation, None, now_us);
        }
        if degradation.is_every_error() {
            self.quiet_from_us = self.quiet_from_us.max(now_us);
        }
        let is_within_spacing = self
            .degraded_at_us
            .is_some_and(|at_us| now_us < at_us.saturating_add(whole_us(degradation.spacing)));
        if is_within_spacing || !self.has_too_many_errors(degradation, in_flight, now_us) {
            return Change::default();
        }
        self.quiet_from_us = self.quiet_from_us.max(now_us);
        self.degraded_at_us = Some(now_us);
        self.degrade(degradation, now_us)
    }

    /// Records that a request succeeded. Without an epoch it counts for the current one.
    pub(crate) fn record_success(
        &mut self,
        degradation: &Degradation,
        epoch: Option<u32>,
        now_us: u64,
    ) -> Change {
        if epoch.is_some_and(|epoch| epoch != self.epoch) {
            return Change::default();
        }
        if self.state == State::Closed {
            self.window.record(false, degradation.window_us(), now_us);
            self.failing = None;
        }
        if !self.can_recover(degradation, now_us) {
            return Change::default();
        }
        if let State::HalfOpen(probes) = &mut self.state {
            probes.passed += 1;
            if probes.passed < degradation.probes {
                return Change::default();
            }
            self.state = State::Closed;
            self.quiet_from_us = self.quiet_from_us.max(now_us);
            return Change {
                rate: None,
                circuit: Some(Circuit::Closed),
            };
        }
        let before = self.current;
        let step = degradation.step.of_tokens(self.configured);
        self.current = before.saturating_add(step).min(self.configured);
        let advanced_us = now_us.saturating_sub(degradation.step_advance_us());
        self.quiet_from_us = self.quiet_from_us.max(advanced_us);
        Change {
            rate: Some((before, self.current)),
            circuit: None,
        }
    }

    /// Returns true if more than the counts of this process differ from an earlier health.
    pub(crate) fn concerns_others(&self, earlier: &Self) -> bool {
        let shared = |health: &Self| {
            let Self {
                configured,
                current,
                state,
                quiet_from_us,
                degraded_at_us,
                ..
            } = *health;
            (configured, current, state, quiet_from_us, degraded_at_us)
        };
        shared(self) != shared(earlier)
    }

    /// When an open circuit half-opens.
    pub(crate) const fn open_until_us(&self) -> Option<u64> {
        match self.state {
            State::Open { until_us } => Some(until_us),
            _ => None,
        }
    }

    /// Requests in flight count as requests without an error. Otherwise the first error of a job that
    /// has just started would be all that is known, and lower the rate.
    fn has_too_many_errors(&self, degradation: &Degradation, in_flight: u64, now_us: u64) -> bool {
        let counts = self.window.counts(degradation.window_us(), now_us);
        let requests = counts.outcomes.saturating_add(in_flight);
        degradation.is_too_many(counts.errors, requests)
    }

    fn is_quiet(&self, degradation: &Degradation, now_us: u64) -> bool {
        now_us
            >= self
                .quiet_from_us
                .saturating_add(whole_us(degradation.recovery))
    }

    fn degrade(&mut self, degradation: &Degradation, now_us: u64) -> Change {
        let before = self.current;
        let floor = degradation.floor_of(self.configured);
        self.current = degradation.ratio.of_tokens(before).max(floor).min(before);
        let rate = (self.current < before).then_some((before, self.current));
        if self.current <= floor {
            return self.open(degradation, rate, now_us);
        }
        Change {
            rate,
            circuit: None,
        }
    }

    fn open(&mut self, degradation: &Degradation, rate: Option<(u64, u64)>, now_us: u64) -> Change {
        self.state = State::Open {
            until_us: now_us.saturating_add(whole_us(degradation.reset)),
        };
        self.epoch = self.epoch.wrapping_add(1);
        self.quiet_from_us = self.quiet_from_us.max(now_us);
        self.failing = None;
        Change {
            rate,
            circuit: Some(Circuit::Open),
        }
    }
}

#[cfg(test)]
mod tests;
