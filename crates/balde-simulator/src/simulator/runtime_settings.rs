//! Settings that can be changed while the simulator runs: categories, limits and faults. Over Redis,
//! simulators with the same namespace share them.

use std::collections::BTreeMap;

use balde::Limit;
use serde::{Deserialize, Serialize};

use crate::wire::canonical_key;

/// The most participants with an assigned category.
pub(crate) const CATEGORIES_MAX: usize = 10_000;

/// The longest latency that a fault can add, in milliseconds.
pub(crate) const FAULT_LATENCY_MAX_MS: u64 = 60_000;

/// The most keys and persons with a restriction.
pub(crate) const RESTRICTIONS_MAX: usize = 10_000;

/// Settings that can be changed while the simulator runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RuntimeSettings {
    /// Assigned categories, by participant.
    pub(crate) categories: BTreeMap<String, String>,
    /// Limits that replace those of the profile.
    pub(crate) limits: Vec<LimitChange>,
    /// Faults by operation. `*` applies to all operations without a fault.
    pub(crate) faults: BTreeMap<String, Fault>,
    /// Restricted keys (`key:…`) and tax numbers (`tax:…`).
    #[serde(default)]
    pub(crate) restrictions: BTreeMap<String, Restriction>,
}

/// Why a key or a person cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Restriction {
    /// A court has blocked it.
    Blocked,
    /// It was used for fraud.
    Fraud,
}

/// A limit that replaces a policy's limit, or the limit of one value of its variant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitChange {
    pub(crate) policy: String,
    pub(crate) value: Option<String>,
    pub(crate) limit: String,
}

/// An injected failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    /// The status to respond with instead of carrying out the operation.
    pub(crate) status: Option<u16>,
    /// The error type to respond with, one of DICT's. By default, the general one of the status.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub(crate) error_type: Option<String>,
    /// The latency to add.
    #[serde(default)]
    pub(crate) latency_ms: u64,
    /// The percentage of requests that fail. By default, 100.
    #[serde(default = "always")]
    pub(crate) percent: u8,
}

fn always() -> u8 {
    100
}

impl RuntimeSettings {
    /// Returns the fault to inject into a request, if any.
    pub(crate) fn fault(&self, operation: &str) -> Option<Fault> {
        if self.faults.is_empty() {
            return None;
        }
        let fault = self
            .faults
            .get(operation)
            .or_else(|| self.faults.get("*"))?;
        (fault.percent >= 100 || fastrand::u8(0..100) < fault.percent).then(|| fault.clone())
    }

    /// The restriction of a key.
    pub(crate) fn key_restriction(&self, key: &str) -> Option<Restriction> {
        self.restriction("key", &canonical_key(key))
    }

    /// The restriction of a person or company.
    pub(crate) fn person_restriction(&self, tax_id: &str) -> Option<Restriction> {
        self.restriction("tax", tax_id)
    }

    fn restriction(&self, kind: &str, name: &str) -> Option<Restriction> {
        if self.restrictions.is_empty() {
            return None;
        }
        self.restrictions.get(&format!("{kind}:{name}")).copied()
    }

    /// Replaces the limit of a policy.
    pub(crate) fn set_limit(&mut self, policy: &str, value: Option<&str>, limit: &Limit) {
        self.limits
            .retain(|change| change.policy != policy || change.value.as_deref() != value);
        self.limits.push(LimitChange {
            policy: policy.to_owned(),
            value: value.map(str::to_owned),
            limit: limit.to_string(),
        });
    }
}
