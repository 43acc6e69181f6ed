//! Decisions over several buckets: all of them grant, or none does.
//!
//! | File | Holds |
//! |--|--|
//! | `grouped` | decisions over buckets that are not all in memory, one group per store or slot |
//! | `observer` | metrics, log lines and spans |

#[cfg(feature = "redis")]
mod grouped;
mod observer;

use std::time::Duration;

use balde_core::{Command, Wait};
use smallvec::SmallVec;
#[cfg(feature = "redis")]
use tracing::Instrument;

use self::observer::MultiObserver;
use crate::decision::{Decision, Reason};
#[cfg(feature = "redis")]
use crate::failure::StoreFailure;
use crate::key::BadKey;
use crate::limiter::TokenRequest;
use crate::store::memory::{self, MemoryStep};

/// The most requests in one decision.
pub const TOKEN_REQUESTS_MAX: usize = 64;

/// The decision on several requests at once, returned by [`check_all`].
#[derive(Clone, Debug)]
pub struct MultiDecision {
    parts: Vec<Decision>,
    refusal: Option<(usize, String)>,
}

impl MultiDecision {
    fn new(requests: &[TokenRequest<'_>], mut parts: Vec<Decision>) -> Self {
        add_up_repeats(requests, &mut parts);
        Self {
            refusal: most_restrictive(requests, &parts),
            parts,
        }
    }

    /// Returns whether all buckets granted. If not, nothing was taken from any.
    pub fn is_allowed(&self) -> bool {
        self.refusal.is_none()
    }

    /// The name of the limiter that refused. If several did, the one with the longest wait.
    pub fn refused_by(&self) -> Option<&str> {
        self.refusal.as_ref().map(|(_, name)| name.as_str())
    }

    /// The index of the request that was refused. If several were, the one with the longest wait.
    pub fn refused_index(&self) -> Option<usize> {
        self.refusal.as_ref().map(|(index, _)| *index)
    }

    /// Why the requests were allowed or denied.
    pub fn reason(&self) -> Reason {
        self.refused_index()
            .map_or(Reason::Granted, |index| self.parts[index].reason())
    }

    /// How long until the same requests would all be granted, if no other request takes from the
    /// buckets. `None` if they were granted, and `None` if they never will be.
    pub fn retry_after(&self) -> Option<Duration> {
        self.parts[self.refused_index()?].retry_after()
    }

    /// Replaces the decision on a request by what its settlement found.
    #[cfg(feature = "tower")]
    pub(crate) fn replace_part(&mut self, index: usize, settled: Decision) {
        self.parts[index] = settled;
    }

    /// The decision on each request, in the order of the requests. If any was refused, nothing was
    /// taken from any bucket: the decisions on the requests that could have been granted are peeks,
    /// which show the unchanged level.
    pub fn parts(&self) -> &[Decision] {
        &self.parts
    }
}

/// Takes tokens from several buckets: either all of them grant, or nothing is taken from any.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use balde::{RateLimiter, check_all};
///
/// let per_user = RateLimiter::builder().name("per-user").limit("100/min").build()?;
/// let overall = RateLimiter::builder().name("overall").limit("2/s").build()?;
///
/// let requests = [per_user.request("alice"), overall.request_n("everyone", 2)];
/// assert!(check_all(&requests).await.is_allowed());
///
/// let refused = check_all(&requests).await;
/// assert_eq!(refused.refused_by(), Some("overall"));
/// assert_eq!(per_user.peek("alice").await?.level(), 99);
/// # Ok(()) }) }
/// ```
///
/// Buckets in memory are decided in one step, and so are buckets on one Redis server or in one slot
/// of a Redis Cluster. If the requests form several such groups, the groups are decided in order,
/// and when one refuses, the tokens that earlier groups granted are given back; until then other
/// callers see them as taken. While Redis is unavailable, each limiter's failure policy decides for
/// its bucket.
///
/// # Panics
///
/// With more than [`TOKEN_REQUESTS_MAX`] requests.
pub async fn check_all(requests: &[TokenRequest<'_>]) -> MultiDecision {
    assert_number(requests);
    let observer = MultiObserver::begin(requests);
    let decisions = match memory_steps(requests) {
        Some(steps) => decide_in_memory(&steps),
        #[cfg(feature = "redis")]
        None => grouped::decide(requests).instrument(observer.span()).await,
        #[cfg(not(feature = "redis"))]
        None => Vec::new(),
    };
    end(requests, decisions, observer)
}

/// [`check_all`] for callers without `await`.
///
/// # Panics
///
/// With more than [`TOKEN_REQUESTS_MAX`] requests.
pub fn check_all_blocking(requests: &[TokenRequest<'_>]) -> MultiDecision {
    assert_number(requests);
    let observer = MultiObserver::begin(requests);
    let decisions = match memory_steps(requests) {
        Some(steps) => decide_in_memory(&steps),
        #[cfg(feature = "redis")]
        None => observer
            .span()
            .in_scope(|| grouped::decide_blocking(requests)),
        #[cfg(not(feature = "redis"))]
        None => Vec::new(),
    };
    end(requests, decisions, observer)
}

/// The decision on requests that did not reach their stores: by the failure policy of each limiter.
#[cfg(feature = "redis")]
pub(crate) fn failed(requests: &[TokenRequest<'_>], failure: StoreFailure) -> MultiDecision {
    MultiDecision::new(requests, grouped::failed(requests, failure))
}

fn end(
    requests: &[TokenRequest<'_>],
    decisions: Vec<Decision>,
    observer: MultiObserver,
) -> MultiDecision {
    let decision = MultiDecision::new(requests, decisions);
    observer.end(requests, &decision);
    decision
}

fn assert_number(requests: &[TokenRequest<'_>]) {
    assert!(
        requests.len() <= TOKEN_REQUESTS_MAX,
        "{} requests in one decision; the maximum is {TOKEN_REQUESTS_MAX}",
        requests.len()
    );
}

/// The requests as steps of the memory store, if all buckets are there.
fn memory_steps<'a>(requests: &[TokenRequest<'a>]) -> Option<SmallVec<[MemoryStep<'a>; 4]>> {
    let mut steps = SmallVec::new();
    for request in requests {
        steps.push(request.memory_step(request.command())?);
    }
    Some(steps)
}

fn decide_in_memory(steps: &[MemoryStep<'_>]) -> Vec<Decision> {
    let is_bad = |step: &MemoryStep<'_>| BadKey::check(step.key).is_err();
    match steps {
        _ if steps.iter().any(is_bad) => steps.iter().map(peek_or_deny).collect(),
        // Without holds, a single bucket takes no lock.
        [step] => vec![Decision::of(memory::run(step))],
        _ => memory::run_all(steps, Decision::of),
    }
}

/// Where a key is bad nothing is taken: its request is denied, and the other buckets are peeked at.
fn peek_or_deny(step: &MemoryStep<'_>) -> Decision {
    match BadKey::check(step.key) {
        Ok(_) => Decision::of(memory::run(&MemoryStep {
            command: Command::Peek,
            ..*step
        })),
        Err(bad) => Decision::of_bad_key(&step.table.limit(), bad, step.now_us),
    }
}

/// A bucket with several requests has to grant their sum, so the wait is for the sum.
fn add_up_repeats(requests: &[TokenRequest<'_>], decisions: &mut [Decision]) {
    for index in 0..decisions.len() {
        if !decisions[index].is_refused_by_bucket() {
            continue;
        }
        let is_same = |request: &&TokenRequest<'_>| request.is_same_bucket(&requests[index]);
        if requests.iter().filter(is_same).count() < 2 {
            continue;
        }
        let same = || requests.iter().filter(is_same);
        let n = same().fold(0, |sum: u64, request| sum.saturating_add(request.n));
        let reserve = same().map(|request| request.needed.saturating_sub(request.n));
        let needed = n.saturating_add(reserve.max().unwrap_or(0));
        // The first request saw the bucket unchanged.
        let first = requests.iter().position(|request| is_same(&request));
        let first = first.unwrap_or(index);
        let found = decisions[first].core();
        let sum = found.limit().decide_held(
            found.snapshot_before(),
            found.held_before(),
            Command::TakeIf { n, needed },
        );
        decisions[index] = Decision::of(sum);
    }
}

/// The refused request that has to wait longest, and the name of its limiter.
fn most_restrictive(
    requests: &[TokenRequest<'_>],
    decisions: &[Decision],
) -> Option<(usize, String)> {
    let wait_us = |decision: &Decision| match decision.wait() {
        Wait::None => None,
        Wait::Us(us) => Some(us),
        Wait::Never => Some(u64::MAX),
    };
    let mut longest: Option<(usize, u64)> = None;
    for (index, decision) in decisions.iter().enumerate() {
        if let Some(us) = wait_us(decision)
            && longest.is_none_or(|(_, longest_us)| us > longest_us)
        {
            longest = Some((index, us));
        }
    }
    let (index, _) = longest?;
    Some((index, requests[index].limiter.name().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, ManualClock, RateLimiter};

    fn limiter(limit: &str, clock: &ManualClock) -> RateLimiter {
        let builder = RateLimiter::builder().limit(limit);
        builder.clock(Clock::manual(clock)).build().unwrap()
    }

    #[test]
    fn two_requests_for_one_bucket_need_their_sum() {
        let clock = ManualClock::new();
        let limiter = limiter("10/s", &clock);
        let never = check_all_blocking(&[limiter.request_n("a", 6), limiter.request_n("a", 6)]);
        assert_eq!(never.reason(), Reason::OverCapacity);

        limiter.blocking().set_level("b", 3).unwrap();
        let requests = [limiter.request_n("b", 5), limiter.request_n("b", 4)];
        let wait = check_all_blocking(&requests).retry_after().unwrap();
        assert_eq!(wait, Duration::from_millis(600));
        clock.advance(wait.saturating_sub(Duration::from_micros(1)));
        assert!(!check_all_blocking(&requests).is_allowed());
        clock.advance(Duration::from_micros(1));
        assert!(check_all_blocking(&requests).is_allowed());
    }
}
