//! The health of a partition: errors degrade its rate, successes raise it, and at the floor its
//! circuit opens.
//!
//! ```text
//!            error: rate × ratio                 reset interval over
//!   closed ───────────────────────▶ open ──────────────────────────▶ half-open
//!     ▲ ▲ │  (at the floor: opens)   ▲                                │   │
//!     │ └─┘ success, quiet: + step   └───────── a probe fails ────────┘   │
//!     └──────────────────── all probes succeed: at the floor ────────────┘
//! ```
//!
//! Pure: time is an argument, in microseconds. Rates are whole tokens per period. A degraded rate is
//! the rate times the ratio, rounded down, and never below the floor: 2000 becomes 1800, 1620, 1458,
//! 1312.

use std::time::Duration;

use balde::Share;

use crate::error::SettingsError;
use crate::micros::whole_us;

/// The most probes that can be set.
const PROBES_MAX: u32 = 1_000;

/// The longest interval that can be set.
pub(crate) const INTERVAL_MAX: Duration = Duration::from_secs(24 * 3_600);

/// How errors lower a partition's rate, when its circuit opens, and how it recovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "settings do nothing until they are passed to a builder"]
pub struct Degradation {
    pub(crate) ratio: Share,
    pub(crate) floor: Share,
    pub(crate) step: Share,
    pub(crate) recovery: Duration,
    pub(crate) reset: Duration,
    pub(crate) spacing: Duration,
    pub(crate) probes: u32,
}

impl Degradation {
    /// The defaults: an error leaves 90 % of the rate; the circuit opens at 10 % of the configured
    /// rate, stays open for 30 s and closes after 3 successful probes; then each 30 s without an error
    /// add 10 % of the configured rate.
    pub const fn new() -> Self {
        Self {
            ratio: Share::percent(90),
            floor: Share::percent(10),
            step: Share::percent(10),
            recovery: Duration::from_secs(30),
            reset: Duration::from_secs(30),
            spacing: Duration::ZERO,
            probes: 3,
        }
    }

    /// Sets the share of the current rate that remains after an error: less than 100 %.
    pub const fn ratio(self, ratio: Share) -> Self {
        Self { ratio, ..self }
    }

    /// Sets the share of the configured rate at which the circuit opens.
    pub const fn floor(self, floor: Share) -> Self {
        Self { floor, ..self }
    }

    /// Sets the share of the configured rate that one step of recovery adds.
    pub const fn step(self, step: Share) -> Self {
        Self { step, ..self }
    }

    /// Sets how long a partition must be without an error, and without another step, before a
    /// success adds a step.
    pub const fn recovery(self, interval: Duration) -> Self {
        Self {
            recovery: interval,
            ..self
        }
    }

    /// Sets how long the circuit stays open before it half-opens.
    pub const fn reset(self, interval: Duration) -> Self {
        Self {
            reset: interval,
            ..self
        }
    }

    /// Sets how many probes must succeed before a half-open circuit closes, between 1 and 1,000.
    /// Until their outcomes are reported, no more than that many requests pass.
    pub const fn probes(self, probes: u32) -> Self {
        Self { probes, ..self }
    }

    /// Sets how long after an error that lowered the rate further errors do not lower it again, so
    /// that many requests that fail together lower it only once. Zero by default: every error
    /// lowers the rate.
    pub const fn spacing(self, spacing: Duration) -> Self {
        Self { spacing, ..self }
    }

    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        let share = |which, share: Share, is_right: bool, advice| {
            if share.is_valid() && is_right {
                Ok(())
            } else {
                Err(SettingsError::Share { which, advice })
            }
        };
        let ratio_is_less = self.ratio.of_tokens(1 << 40) < 1 << 40;
        share(
            "ratio",
            self.ratio,
            ratio_is_less,
            "an error must leave less than 100 percent of the rate",
        )?;
        share("floor", self.floor, true, "it must be 1 to 100 percent")?;
        share("step", self.step, true, "it must be 1 to 100 percent")?;
        for (which, interval) in [("recovery", self.recovery), ("reset", self.reset)] {
            if !(Duration::from_millis(1)..=INTERVAL_MAX).contains(&interval) {
                return Err(SettingsError::Interval { which, interval });
            }
        }
        if self.spacing > INTERVAL_MAX {
            return Err(SettingsError::Interval {
                which: "spacing",
                interval: self.spacing,
            });
        }
        if !(1..=PROBES_MAX).contains(&self.probes) {
            return Err(SettingsError::Number {
                which: "probes",
                number: self.probes as usize,
                max: PROBES_MAX as usize,
            });
        }
        Ok(())
    }

    fn floor_of(&self, configured: u64) -> u64 {
        self.floor.of_tokens(configured)
    }
}

impl Default for Degradation {
    fn default() -> Self {
        Self::new()
    }
}

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

/// One partition's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    configured: u64,
    current: u64,
    state: State,
    /// The last error, step of recovery, opening or closing.
    quiet_from_us: u64,
    degraded_at_us: Option<u64>,
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
    pub(crate) const fn new(configured: u64) -> Self {
        Self {
            configured,
            current: configured,
            state: State::Closed,
            quiet_from_us: 0,
            degraded_at_us: None,
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
            State::Closed => self.current < self.configured && self.is_quiet(degradation, now_us),
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

    /// Records that a request failed. Without an epoch it counts for the current one.
    pub(crate) fn record_error(
        &mut self,
        degradation: &Degradation,
        epoch: Option<u32>,
        now_us: u64,
    ) -> Change {
        if epoch.is_some_and(|epoch| epoch != self.epoch) {
            return Change::default();
        }
        match self.state {
            State::Open { .. } => Change::default(),
            State::HalfOpen(_) => self.open(degradation, None, now_us),
            State::Closed => {
                self.quiet_from_us = self.quiet_from_us.max(now_us);
                let is_within_spacing = self.degraded_at_us.is_some_and(|at_us| {
                    now_us < at_us.saturating_add(whole_us(degradation.spacing))
                });
                if is_within_spacing {
                    return Change::default();
                }
                self.degraded_at_us = Some(now_us);
                self.degrade(degradation, now_us)
            }
        }
    }

    /// Records that a request succeeded. Without an epoch it counts for the current one.
    pub(crate) fn record_success(
        &mut self,
        degradation: &Degradation,
        epoch: Option<u32>,
        now_us: u64,
    ) -> Change {
        if epoch.is_some_and(|epoch| epoch != self.epoch) || !self.can_recover(degradation, now_us)
        {
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
        self.quiet_from_us = self.quiet_from_us.max(now_us);
        Change {
            rate: Some((before, self.current)),
            circuit: None,
        }
    }

    /// When an open circuit half-opens.
    pub(crate) const fn open_until_us(&self) -> Option<u64> {
        match self.state {
            State::Open { until_us } => Some(until_us),
            _ => None,
        }
    }

    /// This health with all its times shifted, to convert between the clocks of two machines.
    #[cfg(feature = "redis")]
    pub(crate) fn shifted(mut self, by_us: i64) -> Self {
        let shifted = |us: u64| us.saturating_add_signed(by_us);
        self.quiet_from_us = shifted(self.quiet_from_us);
        self.degraded_at_us = self.degraded_at_us.map(shifted);
        if let State::Open { until_us } = &mut self.state {
            *until_us = shifted(*until_us);
        }
        self
    }

    /// The numbers that are shared with other processes. Each process has its own probes, so a
    /// half-open circuit is shared as one that was open until now.
    #[cfg(feature = "redis")]
    pub(crate) fn to_words(self, now_us: u64) -> [u64; 4] {
        let until_us = match self.state {
            State::Closed => 0,
            State::Open { until_us } => until_us.max(1),
            State::HalfOpen(_) => now_us.max(1),
        };
        let degraded_at_us = self.degraded_at_us.map_or(0, |us| us.max(1));
        [self.current, until_us, self.quiet_from_us, degraded_at_us]
    }

    /// The health that another process has shared, within this process's configured rate.
    #[cfg(feature = "redis")]
    pub(crate) fn from_words(words: [u64; 4], configured: u64, degradation: &Degradation) -> Self {
        let [current, until_us, quiet_from_us, degraded_at_us] = words;
        Self {
            configured,
            current: current.clamp(degradation.floor_of(configured), configured),
            state: match until_us {
                0 => State::Closed,
                until_us => State::Open { until_us },
            },
            quiet_from_us,
            degraded_at_us: (degraded_at_us > 0).then_some(degraded_at_us),
            epoch: 0,
        }
    }

    /// Replaces this health by the one that processes share, and returns what changes. If the circuit
    /// is half open here, its probes go on unless another process has opened it again.
    #[cfg(feature = "redis")]
    pub(crate) fn merge(&self, shared: Self, now_us: u64) -> (Self, Change) {
        let is_probing = matches!(self.state, State::HalfOpen(_))
            && shared
                .open_until_us()
                .is_some_and(|until_us| until_us <= now_us);
        let state = if is_probing { self.state } else { shared.state };
        let mut merged = Self {
            state,
            epoch: self.epoch,
            ..shared
        };
        let is_circuit_changed = self.circuit() != merged.circuit();
        if is_circuit_changed {
            merged.epoch = self.epoch.wrapping_add(1);
        }
        let is_rate_changed = self.current != merged.current;
        let change = Change {
            rate: is_rate_changed.then_some((self.current, merged.current)),
            circuit: is_circuit_changed.then(|| merged.circuit()),
        };
        (merged, change)
    }

    /// Lets the next success close a half-open circuit: the other probes were counted by the process
    /// that sent them.
    #[cfg(feature = "redis")]
    pub(crate) fn count_remote_probes(&mut self, degradation: &Degradation) {
        if let State::HalfOpen(probes) = &mut self.state {
            probes.passed = degradation.probes.saturating_sub(1);
        }
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
        Change {
            rate,
            circuit: Some(Circuit::Open),
        }
    }
}

#[cfg(test)]
mod tests;
