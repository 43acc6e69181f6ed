//! What a gateway reports besides the levels of its buckets: what it refused, and whether lookups lead
//! to payments.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

/// The most payers of one report, and the most bytes of the hash of one.
const PAYERS_MAX: usize = 50;
const HASH_BYTES_MAX: usize = 128;

/// The most policies, and the most counts of refusals kept for each.
const POLICIES_MAX: usize = 500;
const COUNTS_MAX: usize = 2_000;

/// What a gateway reports besides the levels. Everything is optional: a gateway that is not in front
/// of DICT counts no lookups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct GatewayReport {
    /// When this monitor read it.
    #[serde(skip_deserializing)]
    pub read_us: u64,
    /// The minutes that the refusals cover.
    pub refusals_minutes: u64,
    /// The policies that refused requests of the participant within these minutes, those of payers
    /// and users included.
    pub refusals: Vec<PolicyRefusals>,
    /// The refusals of each policy whose bucket is listed.
    pub policies: Vec<PolicyRefusals>,
    /// The requests that wait for tokens.
    pub waiting: Option<u64>,
    /// The lookups of the participant.
    pub duties: Option<LookupCounts>,
}

/// The refusals of one policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PolicyRefusals {
    /// The policy.
    pub policy: String,
    /// What the policy's buckets belong to, as the gateway names it: a participant, a payer, a user.
    pub scope: Option<String>,
    /// The requests refused within the last minutes.
    pub refusals: u64,
    /// Whether the policy only counts, and lets everything through.
    pub is_shadow: bool,
    /// The minutes that `refusals` covers.
    #[serde(skip_serializing)]
    refusals_minutes: u64,
}

/// The lookups of a participant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LookupCounts {
    /// The hours that the counts cover.
    pub hours: u64,
    /// Lookups that DICT answered.
    pub lookups: u64,
    /// Those of keys that do not exist.
    pub not_found: u64,
    /// Further lookups, which the gateway or DICT refused.
    pub refused: u64,
    /// Payment orders.
    pub orders: u64,
    /// Those of keys that do not exist, in thousandths of all.
    pub not_found_permille: u64,
    /// Lookups for each payment order, in thousandths; `None` without an order.
    pub lookups_per_order_permille: Option<u64>,
    /// The lookups from which on a payer is reported, refused ones included; 0 if the gateway does
    /// not say.
    pub worst_payer_lookups: u64,
    /// The payers that stand out by lookups of keys that do not exist and by refused lookups.
    pub worst_payers: Vec<WorstPayer>,
}

/// A payer that stands out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WorstPayer {
    /// A salted hash of the payer.
    pub payer_hash: String,
    /// Its lookups.
    pub lookups: u64,
    /// Those of keys that do not exist.
    pub not_found: u64,
    /// Those in thousandths of all.
    pub not_found_permille: u64,
    /// Further lookups of it, which the gateway or DICT refused.
    pub refused: u64,
    /// Its payment orders.
    pub orders: u64,
}

/// The last report of a gateway, and how its refusals have changed.
#[derive(Debug, Default)]
pub(super) struct LastReport {
    report: Option<GatewayReport>,
    counts: BTreeMap<String, VecDeque<(u64, u64)>>,
}

impl LastReport {
    pub(super) fn report(&self) -> Option<&GatewayReport> {
        self.report.as_ref()
    }

    pub(super) fn refusals(&self, policy: &str) -> Vec<(u64, u64)> {
        let counts = self.counts.get(policy);
        counts.map_or_else(Vec::new, |counts| counts.iter().copied().collect())
    }

    pub(super) fn record(&mut self, mut report: GatewayReport, read_us: u64) {
        report.read_us = read_us;
        report.policies.truncate(POLICIES_MAX);
        report.refusals.truncate(POLICIES_MAX);
        if report.refusals.is_empty() {
            // A gateway that lists refusals with its buckets only.
            let minutes = report.policies.iter().map(|policy| policy.refusals_minutes);
            let minutes = minutes.max().unwrap_or(0);
            report.refusals_minutes = report.refusals_minutes.max(minutes);
            let refused = report.policies.iter().filter(|policy| policy.refusals > 0);
            report.refusals = refused.cloned().collect();
        }
        if let Some(duties) = &mut report.duties {
            duties.worst_payers.truncate(PAYERS_MAX);
            let is_short = |payer: &WorstPayer| payer.payer_hash.len() <= HASH_BYTES_MAX;
            duties.worst_payers.retain(is_short);
        }
        let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
        // A policy that no longer refuses is not in the list, and counts zero from then on.
        newest.extend(self.counts.keys().map(|policy| (policy.as_str(), 0)));
        let listed = report.policies.iter().chain(&report.refusals);
        newest.extend(listed.map(|policy| (policy.policy.as_str(), policy.refusals)));
        let newest: Vec<(String, u64)> = newest
            .into_iter()
            .map(|(policy, refusals)| (policy.to_owned(), refusals))
            .collect();
        for (policy, refusals) in &newest {
            if !self.counts.contains_key(policy) && self.counts.len() >= POLICIES_MAX {
                continue;
            }
            let counts = self.counts.entry(policy.clone()).or_default();
            if counts.back().is_none_or(|(_, last)| last != refusals) {
                if counts.len() >= COUNTS_MAX {
                    counts.pop_front();
                }
                counts.push_back((read_us, *refusals));
            }
        }
        self.report = Some(report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESPONSE: &str = r#"{"category": "F", "waiting": 2, "policies": [
        {"policy": "P", "level": 1, "refusals": 7, "refusals_minutes": 5, "is_shadow": true}],
        "duties": {"hours": 24, "lookups": 9, "not_found": 3, "orders": 0, "not_found_permille": 333,
        "lookups_per_order_permille": null,
        "worst_payers": [{"payer_hash": "ab", "lookups": 3, "not_found": 3, "orders": 0}]}}"#;

    #[test]
    fn a_report_is_kept_and_changed_refusals_are_remembered() {
        let report: GatewayReport = serde_json::from_str(RESPONSE).unwrap();
        let mut last = LastReport::default();
        last.record(report.clone(), 10);
        last.record(report.clone(), 20);
        let mut changed = report;
        changed.policies[0].refusals = 0;
        last.record(changed, 30);
        assert_eq!(last.refusals("P"), [(10, 7), (30, 0)]);
        assert!(last.refusals("other").is_empty());
        let report = last.report().unwrap();
        assert_eq!((report.read_us, report.refusals_minutes), (30, 5));
        assert!(report.policies[0].is_shadow);
        let duties = report.duties.as_ref().unwrap();
        assert_eq!(duties.lookups_per_order_permille, None);
        assert_eq!(duties.worst_payers[0].payer_hash, "ab");
    }

    #[test]
    fn what_a_gateway_sends_is_bounded() {
        let policy = |number: usize| PolicyRefusals {
            policy: number.to_string(),
            refusals: 1,
            ..PolicyRefusals::default()
        };
        let payer = |length: usize| WorstPayer {
            payer_hash: "x".repeat(length),
            ..WorstPayer::default()
        };
        let report = GatewayReport {
            policies: (0..=POLICIES_MAX).map(policy).collect(),
            duties: Some(LookupCounts {
                worst_payers: vec![payer(1), payer(HASH_BYTES_MAX + 1)],
                ..LookupCounts::default()
            }),
            ..GatewayReport::default()
        };
        let mut last = LastReport::default();
        for us in 0..=COUNTS_MAX as u64 {
            let mut report = report.clone();
            report.policies[0].refusals = us % 2;
            last.record(report, us);
        }
        assert_eq!(last.refusals("0").len(), COUNTS_MAX);
        let report = last.report().unwrap();
        assert_eq!(report.policies.len(), POLICIES_MAX);
        assert_eq!(report.duties.as_ref().unwrap().worst_payers.len(), 1);
    }

    #[test]
    fn refusals_of_payers_policies_are_reported_and_end() {
        let response = r#"{"policies": [{"policy": "P", "level": 1, "refusals": 0}],
            "refusals_minutes": 5,
            "refusals": [{"policy": "P_USER", "scope": "PF", "refusals": 75}],
            "duties": {"refused": 75, "worst_payer_lookups": 20,
                "worst_payers": [{"payer_hash": "ab", "lookups": 5, "refused": 75}]}}"#;
        let report: GatewayReport = serde_json::from_str(response).unwrap();
        let mut last = LastReport::default();
        last.record(report.clone(), 10);
        let seen = last.report().unwrap();
        assert_eq!(seen.refusals_minutes, 5);
        assert_eq!(
            (seen.refusals[0].policy.as_str(), seen.refusals[0].refusals),
            ("P_USER", 75)
        );
        assert_eq!(seen.duties.as_ref().unwrap().worst_payers[0].refused, 75);
        let calm = GatewayReport {
            refusals: Vec::new(),
            ..report
        };
        last.record(calm, 20);
        assert!(last.report().unwrap().refusals.is_empty());
        assert_eq!(last.refusals("P_USER"), [(10, 75), (20, 0)]);
    }
}
