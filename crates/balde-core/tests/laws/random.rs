//! Random limits, commands and clocks: mostly the awkward ones.

use balde_core::{Command, Decision, EXACT_MAX, Limit, Start, State, Strategy};
use num_traits::ToPrimitive;
use proptest::prelude::*;
use proptest::strategy::Strategy as Random;

use crate::model::Terms;

const SECOND_US: u64 = 1_000_000;
const DAY_US: u64 = 86_400 * SECOND_US;

/// Tokens and period in microseconds.
const AWKWARD_RATES: [(u64, u64); 14] = [
    (1_000_003, SECOND_US),
    (7, SECOND_US),
    (1, 97 * DAY_US),
    (600_000_000, SECOND_US),
    (3, 7 * SECOND_US),
    // 0.333333333/s
    (333_333_333, 1_000_000_000 * SECOND_US),
    // 1.5/s
    (3, 2 * SECOND_US),
    (1_200, 60 * SECOND_US),
    (2, 60 * SECOND_US),
    (40, DAY_US),
    (1, 1),
    (7, 3),
    ((1 << 32) - 1, 1),
    (1, EXACT_MAX),
];

/// A moment relative to what came before, found when the sequence runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Forward(u64),
    /// To the moment the last decision promised, give or take a microsecond.
    Promise(i64),
    /// To the moment the bucket should be full, give or take a microsecond.
    Full(i64),
    /// To a multiple of the period, give or take a microsecond.
    Boundary(u64, i64),
    Back(u64),
}

/// A sequence that does not know its moments yet.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) terms: Terms,
    pub(crate) start_us: u64,
    pub(crate) steps: Vec<(Step, Command)>,
}

impl Scenario {
    /// Runs the scenario on the implementation, handing each state on as a store would, and shows
    /// every decision with the state it was made from.
    pub(crate) fn run(&self, mut each: impl FnMut(Option<State>, &Decision)) {
        let limit = self.terms.limit();
        let mut state = None;
        let mut last = None;
        for (step, command) in &self.steps {
            let now_us = step.moment(self.start_us, &limit, last.as_ref());
            let decision = limit.apply(state, *command, now_us);
            each(state, &decision);
            state = decision.state();
            last = Some(decision);
        }
    }
}

impl Step {
    pub(crate) fn moment(self, start_us: u64, limit: &Limit, last: Option<&Decision>) -> u64 {
        let Some(last) = last else { return start_us };
        let now_us = last.now_us();
        match self {
            Self::Forward(us) => now_us + us,
            Self::Back(us) => now_us.saturating_sub(us),
            Self::Promise(by) => {
                (now_us + last.retry_after_us().unwrap_or(1)).saturating_add_signed(by)
            }
            Self::Full(by) => (now_us + last.full_after_us()).saturating_add_signed(by),
            Self::Boundary(count, by) => {
                let period_us = limit.period_us();
                (now_us - now_us % period_us + count * period_us).saturating_add_signed(by)
            }
        }
        // Where the give-or-take of a forward step would go back, it stays.
        .max(if matches!(self, Self::Back(_)) {
            0
        } else {
            now_us
        })
    }
}

/// A scenario whose clock only goes forward.
pub(crate) fn forward_scenario() -> impl Random<Value = Scenario> {
    terms().prop_flat_map(|terms| scenario_of(terms, step(terms).boxed()))
}

/// A scenario whose clock also steps back.
pub(crate) fn any_scenario() -> impl Random<Value = Scenario> {
    terms().prop_flat_map(|terms| {
        let back = prop_oneof![1..=3_u64, 0..=3 * terms.period_us, 0..=EXACT_MAX];
        let step = prop_oneof![4 => step(terms), 1 => back.prop_map(Step::Back)];
        scenario_of(terms, step.boxed())
    })
}

fn scenario_of(terms: Terms, step: BoxedStrategy<Step>) -> impl Random<Value = Scenario> {
    let start_us = prop_oneof![Just(0), 0..=3 * terms.period_us, 0..=EXACT_MAX];
    let steps = prop::collection::vec((step, command(terms)), 1..24);
    (start_us, steps).prop_map(move |(start_us, steps)| Scenario {
        terms,
        start_us,
        steps,
    })
}

pub(crate) fn terms() -> impl Random<Value = Terms> {
    let rate = prop_oneof![
        3 => prop::sample::select(AWKWARD_RATES.to_vec()),
        1 => (1..=1_000_u64, 1..=1_000_u64),
        1 => (1..=u64::from(u32::MAX), 1..=100 * DAY_US),
    ];
    let strategy = prop::sample::select(vec![
        Strategy::Continuous,
        Strategy::Continuous,
        Strategy::Stepwise,
        Strategy::Stepwise,
        Strategy::FixedWindow,
    ]);
    let start = prop::sample::select(vec![Start::Full, Start::Full, Start::Empty]);
    let size =
        || prop_oneof![3 => 0..=5_u64, 2 => 0..=1_000_u64, 1 => 0..=EXACT_MAX, 1 => Just(u64::MAX)];
    (rate, strategy, start, size(), size()).prop_map(
        |((tokens, period_us), strategy, start, capacity, debt_max)| {
            let mut terms = Terms {
                tokens,
                period_us,
                capacity: 1,
                debt_max: 0,
                strategy,
                start,
            };
            let room = room(&terms);
            terms.capacity = capacity.clamp(1, room);
            terms.debt_max = debt_max.min(room - terms.capacity);
            if strategy == Strategy::FixedWindow {
                terms.tokens = terms.capacity;
                terms.start = Start::Full;
            }
            terms
        },
    )
}

/// What capacity and debt may come to together, in tokens.
fn room(terms: &Terms) -> u64 {
    match terms.strategy {
        Strategy::FixedWindow => {
            let bits = 60_u32.saturating_sub(64 - terms.period_us.leading_zeros());
            (1 << bits.min(52)) - 1
        }
        _ => EXACT_MAX / terms.grain().denom().to_u64().unwrap(),
    }
}

pub(crate) fn command(terms: Terms) -> impl Random<Value = Command> {
    let holdings = terms.capacity + terms.debt_max;
    let n = move || {
        prop_oneof![
            1 => Just(0),
            6 => 1..=3_u64,
            3 => 0..=terms.capacity,
            2 => Just(terms.capacity),
            1 => Just(terms.capacity + 1),
            1 => 0..=holdings,
            1 => Just(u64::MAX),
        ]
    };
    let level = prop_oneof![
        -5..=5_i64,
        -terms.debt_max.cast_signed()..=terms.capacity.cast_signed(),
        Just(i64::MIN),
        Just(i64::MAX),
    ];
    prop_oneof![
        1 => Just(Command::Peek),
        5 => n().prop_map(|n| Command::Take { n }),
        2 => (n(), n()).prop_map(|(n, needed)| Command::TakeIf { n, needed }),
        3 => (n(), n()).prop_map(|(n, needed)| Command::Hold { n, needed }),
        3 => (n(), n()).prop_map(|(held, price)| Command::Settle { held, price }),
        4 => n().prop_map(|n| Command::TakeUpTo { n }),
        2 => n().prop_map(|n| Command::Charge { n }),
        2 => n().prop_map(|n| Command::Credit { n }),
        1 => level.prop_map(|level| Command::SetLevel { level }),
    ]
}

fn step(terms: Terms) -> impl Random<Value = Step> {
    let token_us = terms.period_us.div_ceil(terms.tokens);
    let by = || -1..=1_i64;
    prop_oneof![
        2 => Just(Step::Forward(0)),
        1 => Just(Step::Forward(1)),
        2 => (0..=token_us).prop_map(Step::Forward),
        2 => (0..=3 * terms.period_us).prop_map(Step::Forward),
        1 => (0..=EXACT_MAX).prop_map(Step::Forward),
        3 => by().prop_map(Step::Promise),
        1 => by().prop_map(Step::Full),
        2 => (0..=3_u64, by()).prop_map(|(count, by)| Step::Boundary(count, by)),
    ]
}
