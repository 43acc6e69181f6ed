//! The health of partitions in Redis.
//!
//! Each partition has a register: its rate, until when its circuit is open, since when it has had no
//! error. An event is applied to the register by compare-and-set. So two errors in two processes count
//! as two, and a step of recovery that two processes take at once counts as one. Times in a register
//! are the server's.

use std::sync::Arc;
use std::time::Duration;

use balde::{RedisStore, Registers, StoreFailure};

use crate::health::Health;
use crate::scheduler::HealthEvent;
use crate::settings::Settings;

/// How many registers are read in one call.
const READ_MAX: usize = 256;

/// How often a compare-and-set is tried while other processes change the register.
const ATTEMPTS_MAX: usize = 8;

/// How long a register is kept after its last change.
const TTL: Duration = Duration::from_secs(24 * 3_600);

/// The version of the encoding, first in every register.
const VERSION: &str = "1";

pub(crate) struct SharedHealth(Registers);

/// A health as a register holds it, with the server's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteHealth {
    health: Health,
    server_now_us: u64,
}

impl RemoteHealth {
    /// The health with its times converted to the clock of this process.
    pub(crate) fn at(self, now_us: u64) -> Health {
        let ahead_us = now_us
            .cast_signed()
            .wrapping_sub(self.server_now_us.cast_signed());
        self.health.shifted(ahead_us)
    }
}

impl SharedHealth {
    pub(super) fn new(store: &RedisStore, throttler: &str) -> Self {
        Self(store.registers(&format!("throttle health {throttler}"), throttler))
    }

    /// Applies events to a partition's register, and returns what it holds then.
    pub(crate) async fn publish(
        &self,
        settings: &Settings,
        partition: &str,
        events: &[HealthEvent],
    ) -> Result<RemoteHealth, StoreFailure> {
        let degradation = &settings.degradation;
        let mut values = self.0.read(&[partition]).await?;
        for _ in 0..ATTEMPTS_MAX {
            let (old, now_us) = (values.values.remove(0), values.now_us);
            let mut health = decode(&old, partition, settings);
            if health
                .open_until_us()
                .is_some_and(|until_us| until_us <= now_us)
            {
                // The circuit is half open, and this process has counted its probes.
                health.admit(degradation, now_us);
                health.count_remote_probes(degradation);
            }
            let before = health;
            for event in events {
                match event {
                    HealthEvent::Error => {
                        health.record_error(degradation, None, 0, now_us);
                    }
                    HealthEvent::Success => {
                        health.record_success(degradation, None, now_us);
                    }
                    HealthEvent::Down => health.open_by_failures(degradation, now_us),
                }
            }
            let is_changed = health.concerns_others(&before);
            if is_changed {
                let new = encode(&health, now_us);
                values = self.0.compare_and_set(partition, &old, &new, TTL).await?;
            }
            if !is_changed || values.is_changed {
                return Ok(RemoteHealth {
                    health,
                    server_now_us: values.now_us,
                });
            }
        }
        // So many processes change it that this one makes no difference.
        Err(StoreFailure::NotReady)
    }

    /// Reads the registers of partitions, in calls of at most 256. Passes each result to `apply`.
    pub(crate) async fn read(
        &self,
        settings: &Settings,
        partitions: &[Arc<str>],
        mut apply: impl FnMut(&[(Arc<str>, RemoteHealth)]),
    ) -> Result<(), StoreFailure> {
        for some in partitions.chunks(READ_MAX) {
            let keys: Vec<&str> = some.iter().map(|name| &**name).collect();
            let values = self.0.read(&keys).await?;
            let healths: Vec<_> = some
                .iter()
                .zip(&values.values)
                .map(|(name, value)| {
                    let remote = RemoteHealth {
                        health: decode(value, name, settings),
                        server_now_us: values.now_us,
                    };
                    (Arc::clone(name), remote)
                })
                .collect();
            apply(&healths);
        }
        Ok(())
    }
}

fn encode(health: &Health, now_us: u64) -> Vec<u8> {
    let [current, until_us, quiet_from_us, degraded_at_us] = health.to_words(now_us);
    format!("{VERSION} {current} {until_us} {quiet_from_us} {degraded_at_us}").into_bytes()
}

/// A register that is empty or cannot be decoded means a healthy partition.
fn decode(value: &[u8], partition: &str, settings: &Settings) -> Health {
    let configured = settings.rate_of(partition).tokens();
    let healthy = Health::new(configured);
    let Ok(text) = std::str::from_utf8(value) else {
        return healthy;
    };
    let Some(numbers) = text.strip_prefix(VERSION) else {
        return healthy;
    };
    let mut words = [0; 4];
    let mut numbers = numbers.split_whitespace().map(str::parse);
    for word in &mut words {
        match numbers.next() {
            Some(Ok(number)) => *word = number,
            _ => return healthy,
        }
    }
    Health::from_words(words, configured, &settings.degradation)
}
