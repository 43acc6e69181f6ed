//! A bucket as one would explain it on paper: a level in tokens, kept as an exact fraction.
//!
//! Nothing here knows the implementation's units. It adds elapsed × tokens / period, counts period
//! boundaries, or counts a window; it is slow, and meant to be obviously right.

use balde_core::{Command, Decision, Limit, Start, Strategy, Wait};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Signed, ToPrimitive, Zero};

pub(crate) type Tokens = BigRational;

/// The numbers of a limit, as the tests chose them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) tokens: u64,
    pub(crate) period_us: u64,
    pub(crate) capacity: u64,
    pub(crate) debt_max: u64,
    pub(crate) strategy: Strategy,
    pub(crate) start: Start,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) terms: Terms,
    pub(crate) held: Option<Held>,
}

/// What is remembered of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) level: Tokens,
    /// The moment up to which the refill is in the level; for a window, its end.
    pub(crate) at_us: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) is_allowed: bool,
    pub(crate) before: Tokens,
    pub(crate) after: Tokens,
}

pub(crate) fn tokens(n: impl Into<BigInt>) -> Tokens {
    Tokens::from_integer(n.into())
}

impl Terms {
    pub(crate) fn limit(&self) -> Limit {
        self.to_text()
            .parse()
            .unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    fn to_text(self) -> String {
        let rate = format!("{}/{}us", self.tokens, self.period_us);
        let debt = self.debt_max;
        let start = match self.start {
            Start::Full => "full",
            Start::Empty => "empty",
        };
        match self.strategy {
            Strategy::FixedWindow => format!("{rate} window debt {debt}"),
            Strategy::Continuous => format!("{rate} burst {} {start} debt {debt}", self.capacity),
            Strategy::Stepwise => {
                format!(
                    "{rate} burst {} stepwise {start} debt {debt}",
                    self.capacity
                )
            }
        }
    }

    /// What comes back between two moments, were there room for it. Nothing, in a window.
    pub(crate) fn refill(&self, from_us: u64, to_us: u64) -> Tokens {
        match self.strategy {
            Strategy::Continuous => {
                let elapsed = BigInt::from(to_us) - from_us;
                Tokens::new(elapsed * self.tokens, self.period_us.into())
            }
            Strategy::Stepwise => {
                let boundaries = to_us / self.period_us - from_us / self.period_us;
                tokens(boundaries) * tokens(self.tokens)
            }
            Strategy::FixedWindow => Tokens::zero(),
        }
    }

    /// The least part of a token that matters: what one microsecond brings, and one token, are
    /// both whole multiples of it.
    pub(crate) fn grain(&self) -> Tokens {
        match self.strategy {
            Strategy::FixedWindow => tokens(1),
            _ => Tokens::new(
                1.into(),
                Tokens::new(self.period_us.into(), self.tokens.into())
                    .numer()
                    .clone(),
            ),
        }
    }
}

impl Bucket {
    pub(crate) fn new(terms: Terms) -> Self {
        Self { terms, held: None }
    }

    /// The bucket as of now. A clock behind what the bucket has seen changes nothing.
    pub(crate) fn refilled(&self, now_us: u64) -> Held {
        let full = tokens(self.terms.capacity);
        let is_window = self.terms.strategy == Strategy::FixedWindow;
        match &self.held {
            Some(held) if !is_window => {
                let at_us = now_us.max(held.at_us);
                let level = &held.level + self.terms.refill(held.at_us, at_us);
                Held {
                    level: level.min(full),
                    at_us: self.terms.remembered(at_us),
                }
            }
            Some(window) if now_us < window.at_us => window.clone(),
            // A closed window, or none: one that opened now would end a period from now.
            _ if is_window => Held {
                level: full,
                at_us: now_us + self.terms.period_us,
            },
            _ => Held {
                level: match self.terms.start {
                    Start::Full => full,
                    Start::Empty => Tokens::zero(),
                },
                at_us: self.terms.remembered(now_us),
            },
        }
    }

    pub(crate) fn run(&mut self, command: Command, now_us: u64) -> Answer {
        let Held {
            level: before,
            at_us,
        } = self.refilled(now_us);
        let capacity = tokens(self.terms.capacity);
        let floor = -tokens(self.terms.debt_max);
        let (is_allowed, after) = match command.without_holds() {
            Command::Peek => (true, before.clone()),
            Command::Take { n } if before >= tokens(n) => (true, &before - tokens(n)),
            Command::TakeIf { n, needed } if before >= tokens(needed) => {
                (true, (&before - tokens(n)).max(floor))
            }
            Command::Take { .. } | Command::TakeIf { .. } => (false, before.clone()),
            Command::TakeUpTo { n } => {
                let granted = before.floor().min(tokens(n)).max(Tokens::zero());
                (n == 0 || !granted.is_zero(), &before - granted)
            }
            Command::Charge { n } => (true, (&before - tokens(n)).max(floor)),
            Command::Credit { n } => (true, (&before + tokens(n)).min(capacity)),
            Command::SetLevel { level } => (true, tokens(level).clamp(floor, capacity)),
            Command::Hold { .. } | Command::Settle { .. } => unreachable!("mapped above"),
        };
        self.hold(after.clone(), at_us);
        Answer {
            is_allowed,
            before,
            after,
        }
    }

    /// Another limit takes over: what is missing stays missing, in tokens. Who had no debt gets
    /// none, and no debt grows. What the new grain cannot express is rounded against the
    /// bucket.
    pub(crate) fn change_to(&mut self, new: Terms, now_us: u64) {
        let old = std::mem::replace(&mut self.terms, new);
        if self.held.is_none() || old == new {
            return;
        }
        let held = Self {
            terms: old,
            held: self.held.take(),
        }
        .refilled(now_us);
        let missing = tokens(old.capacity) - &held.level;
        let debt = (-held.level).max(Tokens::zero());
        let missing_max = tokens(new.capacity) + debt.min(tokens(new.debt_max));
        let missing = (missing.min(missing_max) / new.grain()).ceil() * new.grain();

        let window_end_us = now_us + new.period_us;
        let at_us = match (old.strategy, new.strategy) {
            (Strategy::FixedWindow, Strategy::FixedWindow) => held.at_us.min(window_end_us),
            (_, Strategy::FixedWindow) => window_end_us,
            (Strategy::FixedWindow, _) => new.remembered(now_us),
            _ => new.remembered(held.at_us.max(now_us)),
        };
        self.hold(tokens(new.capacity) - missing, at_us);
    }

    /// Asserts that the implementation answered what this bucket did, and that both times it
    /// promises are right to the microsecond. To be called after [`run`](Bucket::run).
    pub(crate) fn agrees(&self, answer: &Answer, decision: &Decision) {
        let case = || format!("\nmodel {self:?}\n{answer:?}\nimplementation {decision:?}");
        let floor = |level: &Tokens| level.floor().to_integer().to_i64().unwrap();
        let limit = decision.limit();
        let level_of = |owed: u64| {
            tokens(self.terms.capacity) - Tokens::new(owed.into(), limit.token_units().into())
        };
        let now_us = decision.now_us();

        assert_eq!(decision.is_allowed(), answer.is_allowed, "{}", case());
        assert_eq!(
            level_of(decision.owed_before()),
            answer.before,
            "{}",
            case()
        );
        assert_eq!(level_of(decision.owed()), answer.after, "{}", case());
        assert_eq!(decision.level_before(), floor(&answer.before), "{}", case());
        assert_eq!(decision.level(), floor(&answer.after), "{}", case());
        let remaining = u64::try_from(floor(&answer.after)).unwrap_or(0);
        assert_eq!(decision.remaining(), remaining, "{}", case());
        let moved = floor(&(&answer.before - &answer.after).abs());
        assert_eq!(decision.moved().cast_signed(), moved, "{}", case());
        assert_eq!(
            decision.state().is_some(),
            self.held.is_some(),
            "{}",
            case()
        );

        let passes = |us: u64| self.clone().run(decision.command(), us).is_allowed;
        match (decision.wait(), decision.command()) {
            (Wait::None, _) => assert!(answer.is_allowed, "{}", case()),
            (
                Wait::Never,
                Command::Take { n: needed }
                | Command::TakeIf { needed, .. }
                | Command::Hold { needed, .. },
            ) => assert!(needed > self.terms.capacity, "{}", case()),
            (Wait::Never, _) => panic!("only a take can be too large{}", case()),
            (Wait::Us(us), _) => {
                assert!(passes(now_us + us), "too soon{}", case());
                assert!(!passes(now_us + us - 1), "too late{}", case());
            }
        }
        let is_full = |us: u64| self.refilled(us).level == tokens(self.terms.capacity);
        let full_us = decision.full_after_us();
        assert!(is_full(now_us + full_us), "not yet full{}", case());
        assert!(
            full_us == 0 || !is_full(now_us + full_us - 1),
            "full before{}",
            case()
        );
    }

    /// Remembers the bucket, unless it is as good as one that was never touched.
    fn hold(&mut self, level: Tokens, at_us: u64) {
        let is_new = level == tokens(self.terms.capacity) && self.terms.start == Start::Full;
        self.held = (!is_new).then_some(Held { level, at_us });
    }
}

impl Terms {
    /// A stepwise bucket knows which period it has seen, and not how much of it.
    fn remembered(&self, at_us: u64) -> u64 {
        match self.strategy {
            Strategy::Stepwise => at_us / self.period_us * self.period_us,
            _ => at_us,
        }
    }
}
