//! A header writer that remembers the limits it has written.

use std::time::SystemTime;

use ::http::HeaderMap;
use balde_core::Limit;
use parking_lot::RwLock;
use smallvec::SmallVec;

use super::options::HeaderOptions;
use super::writer::HeaderWriter;
use crate::decision::Decision;

/// The most combinations of limits that are remembered. Others are encoded each time.
const REMEMBERED_MAX: usize = 64;

/// Writes the same fields as [`HeaderOptions::write`], faster: what is the same for all decisions on a
/// limit is encoded once and remembered. For servers that write many responses under few limits.
///
/// ```
/// use balde::RateLimiter;
/// use balde::http::{CachedHeaders, HeaderOptions};
/// use http::HeaderMap;
/// use std::time::SystemTime;
///
/// let limiter = RateLimiter::builder().name("per-user").limit("10/s burst 20").build()?;
/// let fields = CachedHeaders::new(HeaderOptions::default());
/// for remaining in ["19", "18"] {
///     let decision = limiter.blocking().check("alice");
///     let mut headers = HeaderMap::new();
///     fields.write(&mut headers, &[("per-user", &decision)], SystemTime::now());
///     assert_eq!(headers["x-ratelimit-remaining"], remaining);
/// }
/// # Ok::<(), balde::BuildError>(())
/// ```
#[derive(Debug)]
pub struct CachedHeaders {
    options: HeaderOptions,
    remembered: RwLock<Vec<Remembered>>,
}

#[derive(Debug)]
struct Remembered {
    limits: SmallVec<[(Box<str>, Limit); 2]>,
    writer: HeaderWriter,
}

impl CachedHeaders {
    /// Writes the fields that `options` select.
    pub fn new(options: HeaderOptions) -> Self {
        Self {
            options,
            remembered: RwLock::default(),
        }
    }

    /// Which fields are written.
    pub fn options(&self) -> HeaderOptions {
        self.options
    }

    /// Writes the header fields for these decisions, each with the name of its policy. See
    /// [`HeaderOptions::write`].
    pub fn write(&self, headers: &mut HeaderMap, decisions: &[(&str, &Decision)], now: SystemTime) {
        if self.options.is_empty() || decisions.is_empty() {
            return self.options.write(headers, decisions, now);
        }
        let remembered = self.remembered.read();
        let Some(found) = remembered.iter().find(|one| one.is_for(decisions)) else {
            let has_room = remembered.len() < REMEMBERED_MAX;
            drop(remembered);
            if has_room {
                self.remember(decisions);
            }
            return self.options.write(headers, decisions, now);
        };
        if let [(_, only)] = decisions {
            found.writer.write(headers, &[0], &[**only], now);
        } else {
            let all: SmallVec<[Decision; 4]> = decisions.iter().map(|(_, one)| **one).collect();
            let indices: SmallVec<[usize; 4]> = (0..all.len()).collect();
            found.writer.write(headers, &indices, &all, now);
        }
    }

    fn remember(&self, decisions: &[(&str, &Decision)]) {
        let mut remembered = self.remembered.write();
        let is_new = !remembered.iter().any(|one| one.is_for(decisions));
        if is_new && remembered.len() < REMEMBERED_MAX {
            let limits = || decisions.iter().map(|(name, one)| (*name, *one.limit()));
            remembered.push(Remembered {
                limits: limits().map(|(name, limit)| (name.into(), limit)).collect(),
                writer: HeaderWriter::new(self.options, limits()),
            });
        }
    }
}

impl Remembered {
    fn is_for(&self, decisions: &[(&str, &Decision)]) -> bool {
        self.limits.len() == decisions.len()
            && self
                .limits
                .iter()
                .zip(decisions)
                .all(|((own, limit), (name, one))| **own == **name && limit == one.limit())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::{Clock, ManualClock, RateLimiter};

    /// Whatever is remembered, the fields are those of `HeaderOptions::write`.
    #[test]
    fn cached_and_uncached_fields_are_the_same() {
        let clock = ManualClock::at_us(1_000_000);
        let limiter = |index: usize| {
            let limit = format!("{}/s burst {}", index % 7 + 1, index % 11 + 2);
            let builder = RateLimiter::builder().limit(limit.as_str());
            builder.clock(Clock::manual(&clock)).build().unwrap()
        };
        let limiters: Vec<RateLimiter> = (0..REMEMBERED_MAX + 20).map(limiter).collect();
        let mut random = fastrand::Rng::with_seed(17);
        for options in [
            HeaderOptions::default(),
            HeaderOptions::default().without_ietf_fields(),
            HeaderOptions::default().without_x_fields(),
            HeaderOptions::default()
                .without_x_fields()
                .without_ietf_fields(),
        ] {
            let cached = CachedHeaders::new(options);
            for _ in 0..3_000 {
                clock.advance(Duration::from_millis(random.u64(..40)));
                let count = random.usize(..4);
                let chosen: Vec<(String, Decision)> = (0..count)
                    .map(|_| {
                        let index = random.usize(..limiters.len());
                        // Two limits may have the same name.
                        let name = format!("policy {}", index % 40);
                        (name, limiters[index].blocking().check("somebody"))
                    })
                    .collect();
                let decisions: Vec<(&str, &Decision)> =
                    chosen.iter().map(|(name, one)| (&**name, one)).collect();
                let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
                let (mut one, mut other) = (HeaderMap::new(), HeaderMap::new());
                for headers in [&mut one, &mut other] {
                    headers.insert("content-type", "text/plain".parse().unwrap());
                    headers.insert("x-ratelimit-limit", "of the upstream".parse().unwrap());
                }
                cached.write(&mut one, &decisions, now);
                options.write(&mut other, &decisions, now);
                assert_eq!(one, other);
            }
            assert!(cached.remembered.read().len() <= REMEMBERED_MAX);
        }
    }
}
