//! Holds that wait to be settled, by id. Each belongs to the process that took it.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use balde::Hold;
use parking_lot::Mutex;

use super::command::IfExpired;
use super::error::CommandError;

/// The holds that are open.
#[derive(Debug)]
pub(super) struct OpenHolds {
    open: Mutex<Open>,
    holds_max: usize,
}

#[derive(Debug, Default)]
struct Open {
    holds: HashMap<String, (u64, Hold)>,
    /// When each expires, in microseconds.
    expiries: BTreeSet<(u64, String)>,
}

impl OpenHolds {
    pub(super) fn new(holds_max: usize) -> Self {
        Self {
            open: Mutex::default(),
            holds_max,
        }
    }

    /// Returns an error if there is no room for another hold.
    pub(super) fn check_room(&self) -> Result<(), CommandError> {
        if self.open.lock().holds.len() >= self.holds_max {
            return Err(CommandError::Full("so many open holds"));
        }
        Ok(())
    }

    /// Keeps a hold, and returns its id.
    pub(super) fn insert(
        &self,
        hold: Hold,
        ttl: Duration,
        if_expired: IfExpired,
        now_us: u64,
    ) -> String {
        // A hold that is dropped settles itself at the price given here.
        let hold = match if_expired {
            IfExpired::Charge => hold,
            IfExpired::GiveBack => hold.if_dropped(|_, _| 0),
        };
        let mut bytes = [0; 16];
        fill_random(&mut bytes);
        let id = format!("{:032x}", u128::from_le_bytes(bytes));
        let ttl_us = u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX);
        let expires_us = now_us.saturating_add(ttl_us);
        let mut open = self.open.lock();
        open.expiries.insert((expires_us, id.clone()));
        open.holds.insert(id.clone(), (expires_us, hold));
        id
    }

    /// Takes a hold out, to settle it. `None` if there is none, or if it has expired.
    pub(super) fn take(&self, id: &str, now_us: u64) -> Option<Hold> {
        self.expire(now_us);
        let mut open = self.open.lock();
        let (expires_us, hold) = open.holds.remove(id)?;
        open.expiries.remove(&(expires_us, id.to_owned()));
        Some(hold)
    }

    /// Ends the holds whose time is over. Returns how many.
    pub(super) fn expire(&self, now_us: u64) -> usize {
        let mut expired = Vec::new();
        {
            let mut open = self.open.lock();
            while let Some((expires_us, _)) = open.expiries.first()
                && *expires_us <= now_us
                && let Some((_, id)) = open.expiries.pop_first()
            {
                expired.extend(open.holds.remove(&id));
            }
        }
        // They settle themselves when they are dropped, outside of the lock.
        expired.len()
    }

    pub(super) fn len(&self) -> usize {
        self.open.lock().holds.len()
    }
}

/// Ids must not be guessed: whoever knows one can settle the hold.
fn fill_random(bytes: &mut [u8]) {
    use ring::rand::SecureRandom as _;
    let random = ring::rand::SystemRandom::new();
    if random.fill(bytes).is_err() {
        // The system's generator does not fail once the system runs; still, no hold without an id.
        fastrand::fill(bytes);
    }
}

#[cfg(test)]
mod tests {
    use balde::{Clock, ManualClock, RateLimiter};

    use super::*;

    #[test]
    fn an_expired_hold_keeps_its_tokens_or_gives_them_back() {
        let clock = Clock::manual(&ManualClock::new());
        let builder = RateLimiter::builder().limit("10/day").clock(clock);
        let limiter = builder.build().unwrap();
        let holds = OpenHolds::new(2);
        let ttl = Duration::from_secs(1);
        let take = || Hold::take_blocking(&[limiter.request_n("k", 2)]).unwrap();
        let kept = holds.insert(take(), ttl, IfExpired::Charge, 0);
        let given_back = holds.insert(take(), ttl, IfExpired::GiveBack, 1);
        assert_eq!(
            holds.check_room(),
            Err(CommandError::Full("so many open holds"))
        );
        assert_eq!(holds.expire(999_999), 0);
        assert!(holds.take(&kept, 1_000_000).is_none());
        assert_eq!(holds.len(), 1);
        assert_eq!(holds.expire(1_000_001), 1);
        assert!(holds.take(&given_back, 1_000_001).is_none());
        assert_eq!(limiter.blocking().peek("k").unwrap().level(), 8);
    }

    #[test]
    fn a_hold_is_taken_out_once() {
        let limiter = RateLimiter::new("10/day").unwrap();
        let holds = OpenHolds::new(2);
        let hold = Hold::take_blocking(&[limiter.request("k")]).unwrap();
        let id = holds.insert(hold, Duration::from_secs(1), IfExpired::Charge, 0);
        assert_eq!(id.len(), 32);
        assert!(holds.take(&id, 1).is_some());
        assert!(holds.take(&id, 1).is_none());
    }
}
