//! How many tokens the calls of this gateway have cost, by participant and policy.

use std::collections::HashMap;

use parking_lot::Mutex;

/// The prices of all calls that have ended, by participant and policy. A reconciliation compares two
/// readings: what was spent in between may not be in the levels that DICT reports.
#[derive(Debug, Default)]
pub(super) struct Spent(Mutex<HashMap<String, SpentByPolicy>>);

/// The sums of one participant.
pub(super) type SpentByPolicy = HashMap<String, u64>;

impl Spent {
    /// Adds the price of a call that has ended.
    pub(super) fn add(&self, participant: &str, policy: &str, price: u64) {
        let mut spent = self.0.lock();
        // A name is allocated only where it is new.
        if !spent.contains_key(participant) {
            spent.insert(participant.to_owned(), HashMap::new());
        }
        let by_policy = spent.get_mut(participant).expect("just inserted");
        match by_policy.get_mut(policy) {
            Some(sum) => *sum += price,
            None => {
                by_policy.insert(policy.to_owned(), price);
            }
        }
    }

    pub(super) fn of(&self, participant: &str) -> SpentByPolicy {
        self.0.lock().get(participant).cloned().unwrap_or_default()
    }
}
