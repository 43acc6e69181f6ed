//! `balde policies --throttlers`: an options file for a bulk job, with the rates of a profile.

use std::fmt::Write as _;

use balde::Share;
use balde_core::Limit;
use balde_policy::{KeyPart, Policy, Profile};

use super::{Selection, limits};

const HOUR_US: u64 = 3_600_000_000;

/// The periods of a throttler's rates.
const UNITS: [(u64, &str); 3] = [(1_000_000, "s"), (60_000_000, "min"), (HOUR_US, "h")];

/// A throttler's rate: so many tokens in `UNITS[unit]`.
#[derive(Clone, Copy)]
struct Rate {
    tokens: u64,
    unit: usize,
}

/// Writes the section of a throttler with one partition for each policy.
pub(super) fn options_file(
    profile: &Profile,
    selection: Selection<'_>,
    share: Share,
) -> Result<String, String> {
    let (mut partitions, mut left_out) = (Vec::new(), Vec::new());
    for policy in profile.policies() {
        let mut limits = limits(policy, selection);
        let Some((value, limit)) = limits.next() else {
            continue;
        };
        let is_one_bucket = has_one_bucket(policy);
        if is_one_bucket && value.is_some() && limits.next().is_some() {
            let variant = policy.limits().variant().unwrap_or_default();
            let name = policy.name();
            return Err(format!(
                "the rate of {name} depends on the {variant}: choose one with --{variant}\n"
            ));
        }
        match Rate::new(limit, share).filter(|_| is_one_bucket) {
            Some(rate) => partitions.push((policy.name(), rate)),
            None => left_out.push(policy.name()),
        }
    }
    let rates = partitions.iter().map(|(_, rate)| *rate);
    let Some(lowest) = rates.clone().min_by_key(Rate::in_an_hour) else {
        return Err("none of these policies has a rate that a throttler can keep\n".to_owned());
    };
    // Rounded up, so that the sum does not slow the partitions down.
    let sum = rates.map(|rate| rate.in_an_hour()).sum::<u64>();
    let sum = sum.div_ceil(60);

    let mut text = format!(
        "# The rates of {}. The partition of a request is its policy.\n",
        profile.name()
    );
    if !left_out.is_empty() {
        let names = left_out.join(", ");
        let why = "each payer has a bucket of its own, or less than a token an hour";
        let _ = writeln!(text, "# Left out, because {why}: {names}.");
    }
    let name = profile.api().unwrap_or("job");
    let _ = writeln!(text, "\n[throttlers.{name}]");
    let _ = writeln!(text, "rate = \"{sum}/min\"");
    let _ = writeln!(text, "partition_rate = \"{}\"", lowest.as_text());
    let _ = writeln!(text, "\n[throttlers.{name}.partitions]");
    for (policy, rate) in partitions {
        let _ = writeln!(text, "\"{policy}\" = \"{}\"", rate.as_text());
    }
    Ok(text)
}

/// Whether a participant has one bucket of this policy, and not one for each payer or other caller.
fn has_one_bucket(policy: &Policy) -> bool {
    let mut parts = policy.scope().parts().iter();
    parts.all(|part| matches!(part, KeyPart::Participant | KeyPart::Constant(_)))
}

impl Rate {
    /// A share of the limit's rate, rounded down, in the limit's own period if a throttler has that
    /// one. `None` if it is below one token an hour.
    fn new(limit: &Limit, share: Share) -> Option<Self> {
        let period_us = limit.period_us();
        let units = UNITS.iter().enumerate();
        let mut rates = units.filter_map(|(unit, (unit_us, _))| {
            let tokens = limit.refill_tokens().checked_mul(*unit_us)?;
            let tokens = share.of_tokens(tokens) / period_us;
            let is_coarse_enough = *unit_us >= period_us.min(HOUR_US);
            (tokens > 0 && is_coarse_enough).then_some(Self { tokens, unit })
        });
        rates.next()
    }

    fn in_an_hour(&self) -> u64 {
        self.tokens.saturating_mul(HOUR_US / UNITS[self.unit].0)
    }

    fn as_text(&self) -> String {
        format!("{}/{}", self.tokens, UNITS[self.unit].1)
    }
}
