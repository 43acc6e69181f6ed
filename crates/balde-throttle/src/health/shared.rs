//! A partition's health as several processes share it. Outcomes are counted by each process; what it
//! concludes from them is shared.

use super::{Change, Degradation, Health, State, Window};

impl Health {
    /// This health with all its times shifted, to convert between the clocks of two machines.
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
            window: Window::default(),
            failing: None,
            epoch: 0,
        }
    }

    /// Replaces this health by the one that processes share, and returns what changes. If the circuit
    /// is half open here, its probes go on unless another process has opened it again.
    pub(crate) fn merge(&self, shared: Self, now_us: u64) -> (Self, Change) {
        let is_probing = matches!(self.state, State::HalfOpen(_))
            && shared
                .open_until_us()
                .is_some_and(|until_us| until_us <= now_us);
        let state = if is_probing { self.state } else { shared.state };
        let mut merged = Self {
            state,
            epoch: self.epoch,
            window: self.window,
            failing: self.failing,
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
    pub(crate) fn count_remote_probes(&mut self, degradation: &Degradation) {
        if let State::HalfOpen(probes) = &mut self.state {
            probes.passed = degradation.probes.saturating_sub(1);
        }
    }

    /// Opens the circuit because another process found nothing but errors.
    pub(crate) fn open_by_failures(&mut self, degradation: &Degradation, now_us: u64) {
        if !matches!(self.state, State::Open { .. }) {
            self.open(degradation, None, now_us);
        }
    }
}
