//! The common case, made short: one limit in memory, for each caller or for everybody, and no hook.
//!
//! It decides what the long way through [`Questions`] and [`InFlight`](super::in_flight::InFlight)
//! would decide, and leaves to it whatever needs more than letting a request in and telling how its
//! caller stands. A test holds the two ways together: `tests/layer/plain.rs`.

use ::http::{Extensions, HeaderMap};

use super::question::{Decisions, Key, Questions};
use super::rule::{Rule, Usual, Whose};
use super::rules::Rules;
use crate::decision::Decision;
use crate::http::headers::Numbers;
use crate::http::identity::ClientKey;

/// What became of a request.
pub(super) enum Plainly {
    /// It is let in, and its caller is told this, if anything.
    Admitted(Option<Numbers>),
    /// It is decided, and there is more to say than numbers.
    Decided(Box<(Questions, Decisions)>),
    /// Nobody was asked: there is no key.
    Keyless,
}

/// Whose bucket [`ask`] asks, where it knows all that is to be asked.
pub(super) fn of(rules: &Rules) -> Option<Usual> {
    let [
        Rule {
            limiter,
            whose: Whose::Usual(usual),
            cost: None,
            applies: None,
            price: None,
        },
    ] = &*rules.list
    else {
        return None;
    };
    (limiter.is_in_memory() && rules.exempt.is_none()).then_some(*usual)
}

/// Asks the only limit for one token.
///
/// Not generic, so that all of it is compiled and optimised together, in this crate.
pub(super) fn request(
    rules: &Rules,
    whose: Usual,
    headers: &HeaderMap,
    extensions: &Extensions,
) -> Plainly {
    let limiter = &rules.list[0].limiter;
    if let Usual::Caller = whose
        && let Some(key) = rules.identity.short_key(extensions)
    {
        return limiter.take_one_short(&key, |decision| {
            told(rules, decision).unwrap_or_else(|| {
                decided(*decision, Key::Client(ClientKey::of_short_address(key)))
            })
        });
    }
    let Ok(key) = whose.key(rules, headers, extensions) else {
        return Plainly::Keyless;
    };
    let decision = limiter.blocking().check(key.as_bytes());
    told(rules, &decision).unwrap_or_else(|| decided(decision, key))
}

/// Lets a request in, where numbers are all that there is to say.
#[inline]
fn told(rules: &Rules, decision: &Decision) -> Option<Plainly> {
    if !decision.is_allowed() {
        return None;
    }
    if rules.headers.are_none() {
        return Some(Plainly::Admitted(None));
    }
    let numbers = rules.writer.numbers(decision)?;
    Some(Plainly::Admitted(Some(numbers)))
}

#[cold]
#[inline(never)]
fn decided(decision: Decision, key: Key) -> Plainly {
    let decided = (Questions::only(1, key), Decisions::One(decision));
    Plainly::Decided(Box::new(decided))
}
