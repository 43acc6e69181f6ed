//! A bucket under a small limit: counted in sixths of a token, in which every rate here is whole, and
//! a microsecond at a time. The promised times are found by walking there.

use balde_core::{Command, Decision, Limit, Start, State, Strategy, Wait};

/// In sixths one microsecond brings three (1 in 2 µs) or four (2 in 3 µs).
const TOKEN: i64 = 6;

/// Longer than anything takes under a small limit.
const LONG_US: u64 = 100;

/// One bucket twice: as the implementation keeps it, and as the model does.
pub(crate) type Bucket = (Option<State>, Option<Held>);

#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallLimit {
    tokens: i64,
    period_us: u64,
    capacity: i64,
    debt_max: i64,
    strategy: Strategy,
    start: Start,
}

/// What the model remembers: sixths of a token, and up to when (a window: its end).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    level: i64,
    at_us: u64,
}

impl SmallLimit {
    pub(crate) fn all() -> Vec<Self> {
        let mut limits = Vec::new();
        for capacity in 1..=3 {
            for debt_max in [0, 2] {
                let window = Self {
                    tokens: capacity,
                    period_us: 3,
                    capacity,
                    debt_max,
                    strategy: Strategy::FixedWindow,
                    start: Start::Full,
                };
                limits.push(window);
                for (tokens, period_us) in [(1, 2), (2, 3)] {
                    for strategy in [Strategy::Continuous, Strategy::Stepwise] {
                        for start in [Start::Full, Start::Empty] {
                            limits.push(Self {
                                tokens,
                                period_us,
                                strategy,
                                start,
                                ..window
                            });
                        }
                    }
                }
            }
        }
        limits
    }

    pub(crate) fn limit(&self) -> Limit {
        let (tokens, period_us, capacity) = (self.tokens, self.period_us, self.capacity);
        let shape = match self.strategy {
            Strategy::Continuous => format!("burst {capacity}"),
            Strategy::Stepwise => format!("burst {capacity} stepwise"),
            Strategy::FixedWindow => "window".to_owned(),
        };
        let start = if self.start == Start::Empty {
            "empty"
        } else {
            ""
        };
        format!(
            "{tokens}/{period_us}us {shape} {start} debt {}",
            self.debt_max
        )
        .parse()
        .unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    fn full(&self) -> i64 {
        self.capacity * TOKEN
    }

    fn look(&self, held: Option<Held>, now_us: u64) -> Held {
        let full = self.full();
        match (self.strategy, held) {
            (Strategy::FixedWindow, Some(window)) if now_us < window.at_us => window,
            (Strategy::FixedWindow, _) => Held {
                level: full,
                at_us: now_us + self.period_us,
            },
            (_, None) => Held {
                level: if self.start == Start::Full { full } else { 0 },
                at_us: now_us,
            },
            (_, Some(Held { mut level, at_us })) => {
                for us in at_us + 1..=now_us {
                    level += match self.strategy {
                        Strategy::Continuous => TOKEN * self.tokens / self.period_us.cast_signed(),
                        _ if us % self.period_us == 0 => TOKEN * self.tokens,
                        _ => 0,
                    };
                    level = level.min(full);
                }
                Held {
                    level,
                    at_us: at_us.max(now_us),
                }
            }
        }
    }

    /// Whether it passed, the level before, and what is left.
    fn run(&self, held: Option<Held>, command: Command, now_us: u64) -> (bool, i64, Held) {
        let Held { level, at_us } = self.look(held, now_us);
        let floor = -self.debt_max * TOKEN;
        let sixths = |n: u64| n.cast_signed() * TOKEN;
        let (is_allowed, after) = match command {
            Command::Peek => (true, level),
            Command::Take { n } if level >= sixths(n) => (true, level - sixths(n)),
            Command::TakeIf { n, needed } if level >= sixths(needed) => {
                (true, (level - sixths(n)).max(floor))
            }
            Command::Take { .. } | Command::TakeIf { .. } => (false, level),
            Command::TakeUpTo { n } => {
                let mut left = level;
                for _ in 0..n {
                    left -= if left >= TOKEN { TOKEN } else { 0 };
                }
                (left < level || n == 0, left)
            }
            Command::Charge { n } => (true, (level - sixths(n)).max(floor)),
            Command::Credit { n } => (true, (level + sixths(n)).min(self.full())),
            Command::SetLevel { level } => (true, (level * TOKEN).clamp(floor, self.full())),
            Command::Hold { .. } | Command::Settle { .. } => {
                return self.run(held, command.without_holds(), now_us);
            }
        };
        (
            is_allowed,
            level,
            Held {
                level: after,
                at_us,
            },
        )
    }

    /// What is remembered of `held`: nothing, if it is as good as new.
    fn keep(&self, held: Held) -> Option<Held> {
        (held.level < self.full() || self.start == Start::Empty).then_some(held)
    }

    /// One move on both sides; asserts that they agree.
    pub(crate) fn step(
        &self,
        limit: &Limit,
        (state, held): Bucket,
        command: Command,
        now_us: u64,
    ) -> Bucket {
        let decision = limit.apply(state, command, now_us);
        let (is_allowed, before, after) = self.run(held, command, now_us);
        let kept = self.keep(after);
        let case = || format!("{self:?}\n{held:?} -> {after:?}\n{decision:?}");

        assert_eq!(decision.is_allowed(), is_allowed, "{}", case());
        assert_eq!(
            decision.level_before(),
            before.div_euclid(TOKEN),
            "{}",
            case()
        );
        assert_eq!(
            decision.level(),
            after.level.div_euclid(TOKEN),
            "{}",
            case()
        );
        let remaining = after.level.max(0) / TOKEN;
        assert_eq!(decision.remaining().cast_signed(), remaining, "{}", case());
        let moved = (before - after.level).abs() / TOKEN;
        assert_eq!(decision.moved().cast_signed(), moved, "{}", case());
        assert_eq!(decision.state().is_some(), kept.is_some(), "{}", case());
        assert_eq!(
            decision.wait(),
            self.wait(kept, is_allowed, &decision),
            "{}",
            case()
        );
        let full_us = (0..LONG_US).find(|us| self.look(kept, now_us + us).level == self.full());
        assert_eq!(Some(decision.full_after_us()), full_us, "{}", case());
        (decision.state(), kept)
    }

    fn wait(&self, kept: Option<Held>, is_allowed: bool, decision: &Decision) -> Wait {
        match decision.command() {
            _ if is_allowed => Wait::None,
            Command::Take { n: needed } | Command::TakeIf { needed, .. }
                if needed.cast_signed() > self.capacity =>
            {
                Wait::Never
            }
            command => (1..LONG_US)
                .find(|us| self.run(kept, command, decision.now_us() + us).0)
                .map_or(Wait::Never, Wait::Us),
        }
    }
}
