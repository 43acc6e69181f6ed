//! Several buckets in one decision.

use std::time::Duration;

use balde_core::{Command, Wait};
#[cfg(feature = "redis")]
use tracing::Instrument;

use crate::decision::{Decision, Reason};
use crate::error::BadKey;
use crate::limiter::{Place, RateLimiter};
#[cfg(feature = "redis")]
use crate::mixed;
use crate::store::memory::{Part, run_all};
use crate::telemetry::JointWatch;

/// The most questions that one decision may hang on.
pub const TOKEN_REQUESTS_MAX: usize = 64;

/// One question of several: some tokens from one limiter, for one key.
#[derive(Clone, Copy, Debug)]
pub struct TokenRequest<'a> {
    pub(crate) limiter: &'a RateLimiter,
    pub(crate) key: &'a [u8],
    pub(crate) n: u64,
}

impl<'a> TokenRequest<'a> {
    pub(crate) fn new(limiter: &'a RateLimiter, key: &'a [u8], n: u64) -> Self {
        Self { limiter, key, n }
    }

    fn is_same_bucket(&self, other: &Self) -> bool {
        std::ptr::eq(self.limiter.place(), other.limiter.place()) && self.key == other.key
    }
}

/// The answer to several questions at once.
#[derive(Clone, Debug)]
pub struct MultiDecision {
    parts: Vec<Decision>,
    refusal: Option<(usize, String)>,
}

impl MultiDecision {
    fn of(asks: &[TokenRequest<'_>], mut parts: Vec<Decision>) -> Self {
        add_up_repeats(asks, &mut parts);
        Self {
            refusal: refusal(asks, &parts),
            parts,
        }
    }

    /// Whether all buckets gave. If not, none did.
    pub fn is_allowed(&self) -> bool {
        self.refusal.is_none()
    }

    /// The name of the limiter that refused; where several did, of the one that will refuse
    /// longest.
    pub fn refused_by(&self) -> Option<&str> {
        self.refusal.as_ref().map(|(_, name)| name.as_str())
    }

    /// Which question was refused, counted from zero in the order of asking; where several were,
    /// the one that will be refused longest.
    pub fn refused_index(&self) -> Option<usize> {
        self.refusal.as_ref().map(|(index, _)| *index)
    }

    /// Why.
    pub fn reason(&self) -> Reason {
        self.refused_index()
            .map_or(Reason::Granted, |index| self.parts[index].reason())
    }

    /// How long until the same questions would all be granted, if nobody else takes from the
    /// buckets. Nothing when they were, and nothing when they never will be.
    pub fn retry_after(&self) -> Option<Duration> {
        self.parts[self.refused_index()?].retry_after()
    }

    /// The decision on each question, in the order of asking. Where one was refused, the others
    /// say how their buckets stand.
    pub fn parts(&self) -> &[Decision] {
        &self.parts
    }
}

/// Asks several limiters at once: either all of them give, or nothing is taken anywhere.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use balde::{RateLimiter, check_all};
///
/// let per_user = RateLimiter::builder().name("per-user").limit("100/min").build()?;
/// let overall = RateLimiter::builder().name("overall").limit("2/s").build()?;
///
/// let asks = [per_user.request("alice"), overall.request_n("everyone", 2)];
/// assert!(check_all(&asks).await.is_allowed());
///
/// let refused = check_all(&asks).await;
/// assert_eq!(refused.refused_by(), Some("overall"));
/// assert_eq!(per_user.peek("alice").await?.level(), 99);
/// # Ok(()) }) }
/// ```
///
/// Where some buckets are in Redis, those of one server, or in one slot of a Cluster, are decided in
/// one call. What cannot be decided together is asked in order, and whatever was taken is given back
/// when a later one refuses; in between others may find it taken. Each limiter's failure policy
/// answers for its part.
///
/// # Panics
///
/// With more than [`TOKEN_REQUESTS_MAX`] questions: their number is written in the program, not sent by a
/// caller.
pub async fn check_all(asks: &[TokenRequest<'_>]) -> MultiDecision {
    assert_number(asks);
    let watched = JointWatch::begin(asks);
    let decisions = match parts_in_memory(asks) {
        Some(parts) => decide_here(&parts),
        #[cfg(feature = "redis")]
        None => mixed::decide(asks).instrument(watched.span()).await,
        #[cfg(not(feature = "redis"))]
        None => Vec::new(),
    };
    let joint = MultiDecision::of(asks, decisions);
    watched.end(asks, &joint);
    joint
}

/// [`check_all`] for callers who have no `await`.
///
/// # Panics
///
/// As [`check_all`] does.
pub fn check_all_blocking(asks: &[TokenRequest<'_>]) -> MultiDecision {
    assert_number(asks);
    let watched = JointWatch::begin(asks);
    let decisions = match parts_in_memory(asks) {
        Some(parts) => decide_here(&parts),
        #[cfg(feature = "redis")]
        None => watched.span().in_scope(|| mixed::decide_blocking(asks)),
        #[cfg(not(feature = "redis"))]
        None => Vec::new(),
    };
    let joint = MultiDecision::of(asks, decisions);
    watched.end(asks, &joint);
    joint
}

fn assert_number(asks: &[TokenRequest<'_>]) {
    assert!(
        asks.len() <= TOKEN_REQUESTS_MAX,
        "{} questions in one decision; at most {TOKEN_REQUESTS_MAX} are possible",
        asks.len()
    );
}

/// The questions, if all of them are about buckets in memory.
fn parts_in_memory<'a>(asks: &[TokenRequest<'a>]) -> Option<Vec<Part<'a>>> {
    asks.iter()
        .map(|ask| match ask.limiter.place() {
            Place::Memory(table, _) => Some(Part {
                table,
                key: ask.key,
                command: Command::Take { n: ask.n },
                now_us: ask.limiter.now_us(),
            }),
            #[cfg(feature = "redis")]
            Place::Redis(_) => None,
        })
        .collect()
}

fn decide_here(parts: &[Part<'_>]) -> Vec<Decision> {
    let is_bad = |part: &Part<'_>| BadKey::check(part.key).is_err();
    if parts.iter().any(is_bad) {
        parts.iter().map(without_touching).collect()
    } else {
        run_all(parts).into_iter().map(Decision::of).collect()
    }
}

/// One key is bad, so nothing is taken: that part is refused and the others only looked at.
fn without_touching(part: &Part<'_>) -> Decision {
    match BadKey::check(part.key) {
        Ok(key) => Decision::of(part.table.run(key, Command::Peek, part.now_us)),
        Err(bad) => Decision::of_bad_key(&part.table.limit(), bad, part.now_us),
    }
}

/// A bucket that is asked more than once has to give the sum, so the sum is what to wait for.
fn add_up_repeats(asks: &[TokenRequest<'_>], decisions: &mut [Decision]) {
    for index in 0..decisions.len() {
        if !decisions[index].is_refused_by_bucket() {
            continue;
        }
        let is_same = |ask: &&TokenRequest<'_>| ask.is_same_bucket(&asks[index]);
        if asks.iter().filter(is_same).count() < 2 {
            continue;
        }
        let sum = asks.iter().filter(is_same);
        let n = sum.fold(0, |sum: u64, ask| sum.saturating_add(ask.n));
        // The first of them found the bucket as it was.
        let first = asks.iter().position(|ask| is_same(&ask)).unwrap_or(index);
        let found = decisions[first].core();
        let together = found
            .limit()
            .decide(found.snapshot_before(), Command::Take { n });
        decisions[index] = Decision::of(together);
    }
}

fn refusal(asks: &[TokenRequest<'_>], decisions: &[Decision]) -> Option<(usize, String)> {
    let patience = |decision: &Decision| match decision.wait() {
        Wait::None => None,
        Wait::Us(us) => Some(us),
        Wait::Never => Some(u64::MAX),
    };
    let mut worst: Option<(usize, u64)> = None;
    for (index, decision) in decisions.iter().enumerate() {
        if let Some(us) = patience(decision)
            && worst.is_none_or(|(_, most)| us > most)
        {
            worst = Some((index, us));
        }
    }
    let (index, _) = worst?;
    Some((index, asks[index].limiter.name().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, ManualClock};

    fn limiter(limit: &str, clock: &ManualClock) -> RateLimiter {
        let builder = RateLimiter::builder().limit(limit);
        builder.clock(Clock::manual(clock)).build().unwrap()
    }

    #[test]
    fn a_bucket_asked_twice_has_to_give_the_sum() {
        let clock = ManualClock::new();
        let limiter = limiter("10/s", &clock);
        let never = check_all_blocking(&[limiter.request_n("a", 6), limiter.request_n("a", 6)]);
        assert_eq!(never.reason(), Reason::OverCapacity);

        limiter.blocking().set_level("b", 3).unwrap();
        let asks = [limiter.request_n("b", 5), limiter.request_n("b", 4)];
        let wait = check_all_blocking(&asks).retry_after().unwrap();
        assert_eq!(wait, Duration::from_millis(600));
        clock.advance(wait.saturating_sub(Duration::from_micros(1)));
        assert!(!check_all_blocking(&asks).is_allowed());
        clock.advance(Duration::from_micros(1));
        assert!(check_all_blocking(&asks).is_allowed());
    }
}
