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

    /// Holds the highest prices of a call until the returned value is dropped.
    pub(super) fn hold(
        self: &Arc<Self>,
        participant: &str,
        prices: Vec<(Box<str>, u64)>,
    ) -> HeldTokens {
        for (policy, price) in &prices {
            self.change(participant, policy, |tokens| {
                tokens.held += price;
                tokens.held_ever += price;
            });
        }
        HeldTokens {
            spent: Arc::clone(self),
            participant: participant.to_owned(),
            prices,
        }
    }

    pub(super) fn of(&self, participant: &str) -> TokensByPolicy {
        self.0.lock().get(participant).cloned().unwrap_or_default()
    }

    fn change(&self, participant: &str, policy: &str, change: impl FnOnce(&mut Tokens)) {
        let mut spent = self.0.lock();
        if !spent.contains_key(participant) {
            spent.insert(participant.to_owned(), HashMap::new());
        }
        let by_policy = spent.get_mut(participant).expect("just inserted");
        match by_policy.get_mut(policy) {
            Some(tokens) => change(tokens),
            None => change(by_policy.entry(policy.to_owned()).or_default()),
        }
    }
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
        let hold = |price| spent.hold("1", vec![("p".into(), price)]);
        let (first, second) = (hold(3), hold(3));
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
