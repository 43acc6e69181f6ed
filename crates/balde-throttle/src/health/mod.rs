//! How well a partition does: degraded by errors, raised by successes, cut off at the floor.
//!
//! ```text
//!            error: rate × ratio                 reset interval over
//!   closed ───────────────────────▶ open ──────────────────────────▶ half-open
//!     ▲ ▲ │  (at the floor: opens)   ▲                                │   │
//!     │ └─┘ success, quiet: + step   └───────── a probe fails ────────┘   │
//!     └──────────────────── all probes succeed: at the floor ────────────┘
//! ```
//!
//! Pure: time is an argument, in microseconds. Rates are whole tokens in their period. A degraded
//! rate is the rate times the ratio, rounded down, and never below the floor; so 2000 becomes 1800,
//! 1620, 1458, 1312.

use std::time::Duration;

use crate::error::SettingsError;
use balde::Share;

/// The most probes.
pub const PROBES_MAX: u32 = 1_000;

/// The longest interval that can be set.
pub(crate) const INTERVAL_MAX: Duration = Duration::from_secs(24 * 3_600);

/// What errors and successes do to a partition's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "settings do nothing until they are given to a builder"]
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
    /// An error leaves 90 %, down to a floor of 10 % of the original; steps of 10 % of the original
    /// after 30 quiet seconds each; the circuit stays open for 30 s and closes after 3 probes.
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

    /// What an error leaves of the rate: less than all of it.
    pub const fn ratio(self, ratio: Share) -> Self {
        Self { ratio, ..self }
    }

    /// The part of the original rate at which the circuit opens.
    pub const fn floor(self, floor: Share) -> Self {
        Self { floor, ..self }
    }

    /// The part of the original rate that a step of recovery adds.
    pub const fn step(self, step: Share) -> Self {
        Self { step, ..self }
    }

    /// How long there must have been no error, and no other step, before a success adds a step.
    pub const fn recovery(self, interval: Duration) -> Self {
        Self {
            recovery: interval,
            ..self
        }
    }

    /// How long the circuit stays open.
    pub const fn reset(self, interval: Duration) -> Self {
        Self {
            reset: interval,
            ..self
        }
    }

    /// How many probes have to succeed before the circuit closes. No more than that many are let
    /// through until they have answered.
    pub const fn probes(self, probes: u32) -> Self {
        Self { probes, ..self }
    }

    /// Errors within this time of one that has degraded the rate do not degrade it again: one
    /// bad moment then costs one step, however many requests were under way. None unless told
    /// otherwise: every error counts.
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
            "an error must leave less than the whole rate",
        )?;
        share("floor", self.floor, true, "1 to 100 percent")?;
        share("step", self.step, true, "1 to 100 percent")?;
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

    fn floor_of(&self, original: u64) -> u64 {
        self.floor.of_tokens(original)
    }
}

impl Default for Degradation {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a partition's calls are let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circuit {
    /// Calls pass at the current rate.
    Closed,
    /// Calls are refused.
    Open,
    /// A few calls pass, to see.
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
    /// When the last of them was let through.
    issued_at_us: u64,
}

/// One partition's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    original: u64,
    current: u64,
    state: State,
    /// The last error, step or reset: from here on it has been quiet.
    quiet_from_us: u64,
    degraded_at_us: Option<u64>,
    /// Counts openings and half-openings. What was let through in an earlier epoch says nothing
    /// about this one.
    epoch: u32,
}

/// What an event changed, to be told and applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// The tokens before and after.
    pub(crate) rate: Option<(u64, u64)>,
    pub(crate) circuit: Option<Circuit>,
}

/// Whether a request may go on to the buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Yes,
    /// When the circuit half-opens.
    Refused {
        until_us: u64,
    },
    /// All probes are out: by then they are taken for lost, unless they answer earlier.
    Wait {
        until_us: u64,
    },
}

impl Health {
    pub(crate) const fn new(original: u64) -> Self {
        Self {
            original,
            current: original,
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

    /// Closed, and at the original rate.
    pub(crate) fn is_sound(&self) -> bool {
        self.current == self.original && self.state == State::Closed
    }

    /// Whether a success would have something to raise or close.
    pub(crate) fn heeds_success(&self, how: &Degradation, now_us: u64) -> bool {
        match self.state {
            State::Closed => self.current < self.original && self.is_quiet(how, now_us),
            State::Open { .. } => false,
            State::HalfOpen(_) => true,
        }
    }

    /// Moves an open circuit on when its time is over, and says whether a request may pass. A probe
    /// counts only when [`admitted`](Health::admitted) says so.
    pub(crate) fn admit(&mut self, how: &Degradation, now_us: u64) -> (Admission, Change) {
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
            && probes.issued >= how.probes
        {
            let until_us = probes.issued_at_us.saturating_add(whole_us(how.reset));
            if now_us < until_us {
                return (Admission::Wait { until_us }, change);
            }
            probes.issued = probes.passed;
        }
        (Admission::Yes, change)
    }

    /// A request has been let through.
    pub(crate) fn admitted(&mut self, now_us: u64) {
        if let State::HalfOpen(probes) = &mut self.state {
            probes.issued += 1;
            probes.issued_at_us = now_us;
        }
    }

    /// A request that was let through will never answer.
    pub(crate) fn abandoned(&mut self, epoch: Option<u32>) {
        if let State::HalfOpen(probes) = &mut self.state
            && epoch.is_none_or(|epoch| epoch == self.epoch)
            && probes.issued > probes.passed
        {
            probes.issued -= 1;
        }
    }

    /// A request of this epoch (of any, where nobody kept count) failed.
    pub(crate) fn error(&mut self, how: &Degradation, epoch: Option<u32>, now_us: u64) -> Change {
        if epoch.is_some_and(|epoch| epoch != self.epoch) {
            return Change::default();
        }
        match self.state {
            State::Open { .. } => Change::default(),
            State::HalfOpen(_) => self.open(how, None, now_us),
            State::Closed => {
                self.quiet_from_us = self.quiet_from_us.max(now_us);
                let is_same_moment = self
                    .degraded_at_us
                    .is_some_and(|at_us| now_us < at_us.saturating_add(whole_us(how.spacing)));
                if is_same_moment {
                    return Change::default();
                }
                self.degraded_at_us = Some(now_us);
                self.degrade(how, now_us)
            }
        }
    }

    /// A request of this epoch (of any, where nobody kept count) succeeded.
    pub(crate) fn success(&mut self, how: &Degradation, epoch: Option<u32>, now_us: u64) -> Change {
        if epoch.is_some_and(|epoch| epoch != self.epoch) || !self.heeds_success(how, now_us) {
            return Change::default();
        }
        if let State::HalfOpen(probes) = &mut self.state {
            probes.passed += 1;
            if probes.passed < how.probes {
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
        let step = how.step.of_tokens(self.original);
        self.current = before.saturating_add(step).min(self.original);
        self.quiet_from_us = self.quiet_from_us.max(now_us);
        Change {
            rate: Some((before, self.current)),
            circuit: None,
        }
    }

    /// When an open circuit will be tried again.
    pub(crate) const fn open_until_us(&self) -> Option<u64> {
        match self.state {
            State::Open { until_us } => Some(until_us),
            _ => None,
        }
    }

    /// The same with all its moments moved, for a clock that shows another time.
    #[cfg(feature = "redis")]
    pub(crate) fn moved(mut self, by_us: i64) -> Self {
        let moved = |us: u64| us.saturating_add_signed(by_us);
        self.quiet_from_us = moved(self.quiet_from_us);
        self.degraded_at_us = self.degraded_at_us.map(moved);
        if let State::Open { until_us } = &mut self.state {
            *until_us = moved(*until_us);
        }
        self
    }

    /// What others are told. Probes are each process's own: to others a circuit that is half open is
    /// one that was open until just now.
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

    /// What others told, under a limit of this process's own.
    #[cfg(feature = "redis")]
    pub(crate) fn from_words(words: [u64; 4], original: u64, how: &Degradation) -> Self {
        let [current, until_us, quiet_from_us, degraded_at_us] = words;
        Self {
            original,
            current: current.clamp(how.floor_of(original), original),
            state: match until_us {
                0 => State::Closed,
                until_us => State::Open { until_us },
            },
            quiet_from_us,
            degraded_at_us: (degraded_at_us > 0).then_some(degraded_at_us),
            epoch: 0,
        }
    }

    /// This health after what others told, which goes on where it was. Probes of a circuit that is
    /// half open here go on as long as nobody has opened it again.
    #[cfg(feature = "redis")]
    pub(crate) fn learn(&self, told: Self, now_us: u64) -> (Self, Change) {
        let is_probing = matches!(self.state, State::HalfOpen(_))
            && told
                .open_until_us()
                .is_some_and(|until_us| until_us <= now_us);
        let state = if is_probing { self.state } else { told.state };
        let mut learnt = Self {
            state,
            epoch: self.epoch,
            ..told
        };
        let is_moved = self.circuit() != learnt.circuit();
        if is_moved {
            learnt.epoch = self.epoch.wrapping_add(1);
        }
        let is_other = self.current != learnt.current;
        let change = Change {
            rate: is_other.then_some((self.current, learnt.current)),
            circuit: is_moved.then(|| learnt.circuit()),
        };
        (learnt, change)
    }

    /// One probe is enough from here on: the others have been counted elsewhere.
    #[cfg(feature = "redis")]
    pub(crate) fn has_probed(&mut self, how: &Degradation) {
        if let State::HalfOpen(probes) = &mut self.state {
            probes.passed = how.probes.saturating_sub(1);
        }
    }

    fn is_quiet(&self, how: &Degradation, now_us: u64) -> bool {
        now_us >= self.quiet_from_us.saturating_add(whole_us(how.recovery))
    }

    fn degrade(&mut self, how: &Degradation, now_us: u64) -> Change {
        let before = self.current;
        let floor = how.floor_of(self.original);
        self.current = how.ratio.of_tokens(before).max(floor).min(before);
        let rate = (self.current < before).then_some((before, self.current));
        if self.current <= floor {
            return self.open(how, rate, now_us);
        }
        Change {
            rate,
            circuit: None,
        }
    }

    fn open(&mut self, how: &Degradation, rate: Option<(u64, u64)>, now_us: u64) -> Change {
        self.state = State::Open {
            until_us: now_us.saturating_add(whole_us(how.reset)),
        };
        self.epoch = self.epoch.wrapping_add(1);
        self.quiet_from_us = self.quiet_from_us.max(now_us);
        Change {
            rate,
            circuit: Some(Circuit::Open),
        }
    }
}

/// Whole microseconds, as far as 64 bits reach.
pub(crate) fn whole_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
