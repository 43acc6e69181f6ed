//! DICT's limits as the gateway mirrors them: never more tokens than are certainly there.
//!
//! A bucket that refills `r` tokens in steps of `P`, at moments that are not known, grants in any
//! interval `T` at least what a bucket with continuous refill and `r` tokens less capacity grants:
//! in `T` there are at least `T/P - 1` steps. So with `refill = "unknown"` the mirror refills
//! continuously and withholds one step. Where one step is nearly the whole capacity, a tenth of the
//! capacity is left as burst, and the rate is lowered instead: a bucket with capacity `b` and `R`
//! tokens per period is safe as long as `b + R` is at most DICT's capacity.

use std::collections::BTreeMap;
use std::time::Duration;

use balde_core::Limit;
use balde_policy::{ByVariant, Profile};

use crate::config::Refill;

/// How limits are mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mirroring {
    pub(crate) refill: Refill,
}

/// A limit of DICT, and what the gateway mirrors of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MirroredLimit {
    pub(crate) of_dict: Limit,
    pub(crate) mirrored: Limit,
}

impl MirroredLimit {
    /// The tokens that the mirror leaves out because it is not certain that DICT has refilled them: its
    /// level is DICT's less these, at most.
    pub(crate) fn uncertain_refill(&self) -> u64 {
        self.of_dict
            .capacity()
            .saturating_sub(self.mirrored.capacity())
    }
}

impl Mirroring {
    pub(crate) fn limit(self, of_dict: Limit) -> MirroredLimit {
        let mirrored = match self.refill {
            Refill::Profile => Some(of_dict),
            Refill::Unknown => certain(&of_dict),
        };
        MirroredLimit {
            of_dict,
            mirrored: mirrored.unwrap_or(of_dict),
        }
    }

    /// The mirrored profile, and each limit by its policy and its variant's value. `announced` has
    /// the limits that DICT states, where they differ from the profile.
    pub(crate) fn profile(self, profile: &Profile, announced: &Announced) -> (Profile, LimitMap) {
        let mut mirrored = profile.clone();
        let mut limits = LimitMap::new();
        for policy in profile.policies() {
            let mut mirror = |value: Option<&str>, own: &Limit| {
                let name = (policy.name().to_owned(), value.map(str::to_owned));
                let limit = self.limit(*announced.get(&name).unwrap_or(own));
                limits.insert(name, limit);
                limit.mirrored
            };
            let by_value = match policy.limits() {
                ByVariant::One(own) => ByVariant::One(mirror(None, own)),
                ByVariant::By { variant, values } => ByVariant::By {
                    variant: variant.clone(),
                    values: values
                        .iter()
                        .map(|(value, own)| (value.clone(), mirror(Some(value), own)))
                        .collect(),
                },
            };
            mirrored = mirrored.with_policy(policy.clone().with_limits(by_value));
        }
        (mirrored, limits)
    }
}

/// Limits that DICT states, by policy and value of the variant.
pub(crate) type Announced = BTreeMap<(String, Option<String>), Limit>;

/// All limits, by policy and value of the variant.
pub(crate) type LimitMap = BTreeMap<(String, Option<String>), MirroredLimit>;

/// A limit under which no token counts that may not be there yet.
fn certain(limit: &Limit) -> Option<Limit> {
    let (capacity, step) = (limit.capacity(), limit.refill_tokens());
    let period = Duration::from_micros(limit.period_us());
    let burst = capacity
        .saturating_sub(step)
        .max(capacity.div_ceil(10))
        .max(1);
    let certain = match capacity - burst {
        // A single token: it is certainly back after two steps.
        0 => Limit::bucket_of(burst, 1, period.checked_mul(2)?),
        rate => Limit::bucket_of(burst, rate, period),
    };
    certain.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirrored(limit: &str) -> MirroredLimit {
        let mirroring = Mirroring {
            refill: Refill::Unknown,
        };
        mirroring.limit(limit.parse().unwrap())
    }

    #[test]
    fn an_unknown_refill_withholds_one_step() {
        let limit = mirrored("1200/min burst 36000");
        assert_eq!(limit.mirrored, "1200/min burst 34800".parse().unwrap());
        assert_eq!(limit.uncertain_refill(), 1_200);
        // One step is everything: a tenth is left as burst.
        let limit = mirrored("70/min burst 70");
        assert_eq!(limit.mirrored, "63/min burst 7".parse().unwrap());
        assert_eq!(limit.uncertain_refill(), 63);
        let limit = mirrored("1/min burst 1 stepwise");
        assert_eq!(
            (limit.mirrored.capacity(), limit.uncertain_refill()),
            (1, 0)
        );
    }

    proptest::proptest! {
        /// Whatever is taken from the mirror, whenever: a bucket that refills in steps of any phase,
        /// or evenly, has it.
        #[test]
        fn a_certain_limit_never_grants_what_a_step_has_not_brought(
            capacity in 1_u64..400,
            step in 1_u64..400,
            phase in 0_u64..60_000_000,
            gaps in proptest::collection::vec(0_u64..40_000_000, 1..60),
            greed in 1_u64..50,
        ) {
            let limit = Limit::bucket_of(capacity, step, Duration::from_secs(60)).unwrap();
            for of_dict in [limit, limit.stepwise()] {
                let mirrored = certain(&of_dict).unwrap();
                let (mut real, mut mirror) = (None, None);
                let mut now_us = 0;
                for gap in &gaps {
                    now_us += gap;
                    for _ in 0..greed {
                        let command = balde_core::Command::Take { n: 1 };
                        let taken = mirrored.apply(mirror, command, now_us);
                        mirror = taken.state();
                        if !taken.is_allowed() {
                            break;
                        }
                        let seen = of_dict.apply(real, command, now_us + phase);
                        real = seen.state();
                        proptest::prop_assert!(seen.is_allowed(), "{of_dict} at {now_us}");
                    }
                }
            }
        }
    }
}
