//! How many tokens the calls of this gateway have cost, by participant and policy.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Sums of prices, by participant and policy. A reconciliation compares two readings: what was spent
/// in between may not be in the levels that DICT reports.
#[derive(Debug, Default)]
pub(super) struct Spent(Mutex<HashMap<String, HashMap<String, u64>>>);

/// The sums of one participant.
pub(super) type SpentByPolicy = HashMap<String, u64>;

impl Spent {
    pub(super) fn add(&self, participant: &str, policy: &str, tokens: u64) {
        let mut spent = self.0.lock();
        if !spent.contains_key(participant) {
            spent.insert(participant.to_owned(), HashMap::new());
        }
        let by_policy = spent.get_mut(participant).expect("just inserted");
        match by_policy.get_mut(policy) {
            Some(sum) => *sum += tokens,
            None => {
                by_policy.insert(policy.to_owned(), tokens);
            }
        }
    }

    pub(super) fn of(&self, participant: &str) -> SpentByPolicy {
        self.0.lock().get(participant).cloned().unwrap_or_default()
    }
}
