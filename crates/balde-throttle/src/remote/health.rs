//! What processes tell each other about partitions.
//!
//! Each partition has a register in the store: its rate, until when its circuit is open, since when it
//! has been quiet. An event is applied here at once, and then to the register, by comparing and
//! setting: so two errors in two processes count as two, and a step of recovery that two processes
//! take at once counts as one. Every quarter of a second, whoever uses partitions reads their
//! registers. Times in a register are the server's.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::health::Health;
use crate::inner::Shared;
use crate::scheduler::{Core, Event};
use balde::StoreFailure;
use balde::{RedisStore, Registers};

/// How often others are listened to.
const LISTEN_EVERY: Duration = Duration::from_millis(250);

/// Partitions that nobody has used for so long, and that are well, are not asked about.
const USED_WITHIN_US: u64 = 10_000_000;

/// Registers that are read in one call.
const READ_MAX: usize = 256;

/// How often a change that others forestall is tried.
const ATTEMPTS_MAX: usize = 8;

/// How long a register is kept after its last change.
const LASTS: Duration = Duration::from_secs(24 * 3_600);

const VERSION: &str = "1";

pub(crate) struct Rumours(Registers);

impl Rumours {
    pub(crate) fn new(store: &RedisStore, name: &str) -> Self {
        let registers = store.registers(&format!("throttle health {name}"), name);
        Self(registers)
    }

    /// Applies events to a register. What it holds then, and when.
    async fn tell(
        &self,
        shared: &Shared,
        name: &str,
        events: &[Event],
    ) -> Result<(Health, u64), StoreFailure> {
        let how = &shared.settings.degradation;
        let original = shared.settings.rate_of(name).tokens();
        let mut held = self.0.read(&[name]).await?;
        for _ in 0..ATTEMPTS_MAX {
            let (old, now_us) = (held.values.remove(0), held.now_us);
            let mut health = decode(&old, original, shared);
            if health
                .open_until_us()
                .is_some_and(|until_us| until_us <= now_us)
            {
                // The circuit is half open, and the probes that this event ends were counted here.
                health.admit(how, now_us);
                health.has_probed(how);
            }
            let before = health;
            for event in events {
                match event {
                    Event::Error => health.error(how, None, now_us),
                    Event::Success => health.success(how, None, now_us),
                };
            }
            if health == before {
                return Ok((health, now_us));
            }
            let new = encode(&health, now_us);
            held = self.0.compare_and_set(name, &old, &new, LASTS).await?;
            if held.is_changed {
                return Ok((health, held.now_us));
            }
        }
        // So many others change it that this one makes no difference.
        Err(StoreFailure::NotReady)
    }
}

/// Listens to others for as long as the throttler is there.
pub(crate) fn listen(shared: &Arc<Shared>, store: &RedisStore) {
    let weak = Arc::downgrade(shared);
    store.spawn(async move {
        loop {
            tokio::time::sleep(LISTEN_EVERY).await;
            if listen_once(&weak).await.is_none() {
                return;
            }
        }
    });
}

/// Tells others what happened to a partition, until there is nothing more to tell. What cannot be told
/// is forgotten: others then know less, until the next time.
pub(crate) async fn spread(shared: Arc<Shared>, name: Arc<str>) {
    let Some(feed) = &shared.feed else { return };
    let mut told = None;
    loop {
        let events = shared.step(|core, now_us| {
            let index = core.by_name.get(&name).copied()?;
            let part = core.part_mut(index);
            if !part.untold.is_empty() {
                return Some(std::mem::take(&mut part.untold));
            }
            part.is_telling = false;
            // Others may have gone further than this process knew.
            if let Some((health, server_now_us)) = told {
                learn(core, index, health, server_now_us, now_us);
            }
            None
        });
        let Some(events) = events else { return };
        told = feed.rumours.tell(&shared, &name, &events).await.ok();
    }
}

/// Reads what others know of the partitions in use; nothing when the throttler is gone.
async fn listen_once(weak: &Weak<Shared>) -> Option<()> {
    let shared = weak.upgrade()?;
    let feed = shared.feed.as_ref()?;
    let mut names: Vec<Arc<str>> = shared.step(|core, now_us| {
        let is_of_interest = |index: &u32| {
            let part = core.part(*index);
            part.used_at_us.saturating_add(USED_WITHIN_US) > now_us || !part.health.is_sound()
        };
        let indices = core.by_name.values().filter(|index| is_of_interest(index));
        indices
            .map(|index| Arc::clone(&core.part(*index).name))
            .collect()
    });
    while !names.is_empty() {
        let some: Vec<_> = names.drain(..names.len().min(READ_MAX)).collect();
        let keys: Vec<&str> = some.iter().map(|name| &**name).collect();
        // Silence changes nothing.
        let Ok(held) = feed.rumours.0.read(&keys).await else {
            return Some(());
        };
        shared.step(|core, now_us| {
            for (name, value) in some.iter().zip(&held.values) {
                if let Some(index) = core.by_name.get(name).copied()
                    && !core.part(index).is_telling
                {
                    let original = core.part(index).rate.tokens();
                    let health = decode(value, original, &shared);
                    learn(core, index, health, held.now_us, now_us);
                }
            }
        });
    }
    Some(())
}

fn learn(core: &mut Core, index: u32, told: Health, server_now_us: u64, now_us: u64) {
    let ahead_us = now_us
        .cast_signed()
        .wrapping_sub(server_now_us.cast_signed());
    let told = told.moved(ahead_us);
    let part = core.part_mut(index);
    let (learnt, change) = part.health.learn(told, now_us);
    if learnt != part.health {
        part.health = learnt;
        core.apply(index, change, now_us);
        core.place(index, now_us);
    }
}

fn encode(health: &Health, now_us: u64) -> Vec<u8> {
    let [current, until_us, quiet_from_us, degraded_at_us] = health.to_words(now_us);
    format!("{VERSION} {current} {until_us} {quiet_from_us} {degraded_at_us}").into_bytes()
}

/// A register that holds nothing, or what cannot be read, says that all is well.
fn decode(value: &[u8], original: u64, shared: &Shared) -> Health {
    let sound = Health::new(original);
    let Ok(text) = std::str::from_utf8(value) else {
        return sound;
    };
    let Some(numbers) = text.strip_prefix(VERSION) else {
        return sound;
    };
    let mut words = [0; 4];
    let mut numbers = numbers.split_whitespace().map(str::parse);
    for word in &mut words {
        match numbers.next() {
            Some(Ok(number)) => *word = number,
            _ => return sound,
        }
    }
    Health::from_words(words, original, &shared.settings.degradation)
}
