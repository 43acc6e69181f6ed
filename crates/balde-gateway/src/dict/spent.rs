//! How many tokens the calls of this gateway have cost and may still cost, by participant and policy.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Sums of tokens, by participant and policy. A reconciliation compares two readings: what was spent
/// or held in between may not be in the levels that DICT reports.
#[derive(Debug, Default)]
pub(super) struct Spent(Mutex<HashMap<String, TokensByPolicy>>);

/// The sums of one participant.
pub(super) type TokensByPolicy = HashMap<String, Tokens>;

/// The tokens of the calls that count for one bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tokens {
    /// The prices of all calls that have ended.
    pub(super) spent: u64,
    /// The highest prices of calls that have not ended.
    pub(super) held: u64,
    /// The highest prices of all calls, ended or not.
    pub(super) held_ever: u64,
}

impl Tokens {
    /// The most that the calls cost that were in flight at an earlier reading, or began since.
    pub(super) fn held_since(&self, earlier: &Self) -> u64 {
        let begun = self.held_ever.saturating_sub(earlier.held_ever);
        earlier.held.saturating_add(begun)
    }
}

impl Spent {
    /// Adds the price of a call that has ended.
    pub(super) fn add(&self, participant: &str, policy: &str, price: u64) {
        self.change(participant, policy, |tokens| tokens.spent += price);
    }

    /// Holds the highest prices of a call until the returned value is dropped. If calls in flight
    /// would then hold more than `most` on a bucket, nothing is held, and the policy is returned.
    pub(super) fn hold(
        self: &Arc<Self>,
        participant: &str,
        prices: Vec<(Box<str>, u64)>,
        most: impl Fn(&str) -> Option<u64>,
    ) -> Result<HeldTokens, Box<str>> {
        let most: Vec<Option<u64>> = prices.iter().map(|(policy, _)| most(policy)).collect();
        let mut spent = self.0.lock();
        let by_policy = of_participant(&mut spent, participant);
        for ((policy, price), most) in prices.iter().zip(most) {
            let held = by_policy.get(&**policy).map_or(0, |tokens| tokens.held);
            if most.is_some_and(|most| held + price > most) {
                return Err(policy.clone());
            }
        }
        for (policy, price) in &prices {
            let tokens = of_policy(by_policy, policy);
            tokens.held += price;
            tokens.held_ever += price;
        }
        drop(spent);
        Ok(HeldTokens {
            spent: Arc::clone(self),
            participant: participant.to_owned(),
            prices,
        })
    }

    pub(super) fn of(&self, participant: &str) -> TokensByPolicy {
        self.0.lock().get(participant).cloned().unwrap_or_default()
    }

    fn change(&self, participant: &str, policy: &str, change: impl FnOnce(&mut Tokens)) {
        let mut spent = self.0.lock();
        change(of_policy(of_participant(&mut spent, participant), policy));
    }
}

// Both allocate a name only where it is new.

fn of_participant<'s>(
    spent: &'s mut HashMap<String, TokensByPolicy>,
    participant: &str,
) -> &'s mut TokensByPolicy {
    if !spent.contains_key(participant) {
        spent.insert(participant.to_owned(), HashMap::new());
    }
    spent.get_mut(participant).expect("just inserted")
}

fn of_policy<'s>(by_policy: &'s mut TokensByPolicy, policy: &str) -> &'s mut Tokens {
    if !by_policy.contains_key(policy) {
        by_policy.insert(policy.to_owned(), Tokens::default());
    }
    by_policy.get_mut(policy).expect("just inserted")
}

/// The highest prices of a call in flight.
#[derive(Debug)]
pub(super) struct HeldTokens {
    spent: Arc<Spent>,
    participant: String,
    prices: Vec<(Box<str>, u64)>,
}

impl Drop for HeldTokens {
    fn drop(&mut self) {
        for (policy, price) in &self.prices {
            self.spent
                .change(&self.participant, policy, |tokens| tokens.held -= price);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_in_flight_and_calls_since_are_held() {
        let spent = Arc::new(Spent::default());
        let hold = |price| {
            let held = spent.hold("1", vec![("p".into(), price)], |_| Some(6));
            held.expect("there is room")
        };
        let (first, second) = (hold(3), hold(3));
        let third = spent.hold("1", vec![("q".into(), 1), ("p".into(), 1)], |_| Some(6));
        assert_eq!(third.unwrap_err().as_ref(), "p", "six are held already");
        assert!(!spent.of("1").contains_key("q"), "all or nothing");
        drop(first);
        let earlier = spent.of("1")["p"];
        assert_eq!((earlier.held, earlier.held_ever), (3, 6));
        drop(second);
        drop(hold(5));
        let now = spent.of("1")["p"];
        assert_eq!(now.held, 0);
        assert_eq!(now.held_since(&earlier), 8);
    }
}
