//! What participants must watch themselves: lookups per payment order, and lookups of keys that do not
//! exist. Per participant, and for the payers that stand out.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use parking_lot::Mutex;
use ring::digest::{Context, SHA256};
use serde::Serialize;

/// The counts of participants cover so many hours.
const HOURS: usize = 24;
const HOUR_US: u64 = 3_600_000_000;

/// The most payers that are counted at a time. Further ones are not.
const PAYERS_MAX: usize = 100_000;

/// How many payers are reported.
const WORST_MAX: usize = 10;

/// Counts of lookups and orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    /// Lookups that DICT answered with 200 or 404.
    pub(crate) lookups: u64,
    /// Those of a key that does not exist.
    pub(crate) not_found: u64,
    /// Lookups that the gateway or DICT refused with 429, which are not among `lookups`: nobody
    /// knows whether their keys exist.
    pub(crate) refused: u64,
    /// Payment orders.
    pub(crate) orders: u64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.lookups += other.lookups;
        self.not_found += other.not_found;
        self.refused += other.refused;
        self.orders += other.orders;
    }

    /// All lookups, refused ones included.
    fn attempts(&self) -> u64 {
        self.lookups + self.refused
    }

    /// How much a payer stands out: its lookups that found nothing or were refused, times their
    /// share in all. A payer with many lookups of which few fail counts less than one that scans,
    /// and one that scans a lot counts more than one that scans a little.
    fn conspicuousness(&self) -> u64 {
        let failed = self.not_found + self.refused;
        let product = u128::from(failed) * u128::from(failed) * 1_000;
        let weighted = product / u128::from(self.attempts().max(1));
        u64::try_from(weighted).unwrap_or(u64::MAX)
    }

    /// Lookups for each payment order, in thousandths; `None` without an order.
    pub(crate) fn lookups_per_order_permille(&self) -> Option<u64> {
        (self.lookups * 1_000).checked_div(self.orders)
    }

    /// Lookups of keys that do not exist, in thousandths of all.
    pub(crate) fn not_found_permille(&self) -> u64 {
        (self.not_found * 1_000)
            .checked_div(self.lookups)
            .unwrap_or(0)
    }
}

/// A payer that stands out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct WorstPayer {
    /// A salted hash of the payer.
    pub(crate) payer_hash: String,
    #[serde(flatten)]
    pub(crate) counts: Counts,
    pub(crate) not_found_permille: u64,
}

/// The counts of all participants and their payers.
pub(crate) struct Duties {
    participants: Mutex<HashMap<String, Hours>>,
    payers: Mutex<Payers>,
    salt: Vec<u8>,
    hashing: RandomState,
}

type Hours = [(u64, Counts); HOURS];

/// Two halves of a day: what is reported covers the last 12 to 24 hours.
#[derive(Default)]
struct Payers {
    half: u64,
    now: HashMap<(String, u64), (String, Counts)>,
    before: HashMap<(String, u64), (String, Counts)>,
}

impl Duties {
    pub(crate) fn new(salt: Option<&str>) -> Self {
        let salt = match salt {
            Some(salt) => salt.as_bytes().to_vec(),
            None => fastrand::u128(..).to_be_bytes().to_vec(),
        };
        Self {
            participants: Mutex::default(),
            payers: Mutex::default(),
            salt,
            hashing: RandomState::new(),
        }
    }

    /// Counts a lookup that was answered with 200 or 404.
    pub(crate) fn count_lookup(
        &self,
        participant: &str,
        payer: Option<&str>,
        is_found: bool,
        now_us: u64,
    ) {
        let counts = Counts {
            lookups: 1,
            not_found: u64::from(!is_found),
            ..Counts::default()
        };
        self.count(participant, payer, counts, now_us);
    }

    /// Counts a lookup that was refused with 429.
    pub(crate) fn count_refused(&self, participant: &str, payer: Option<&str>, now_us: u64) {
        let counts = Counts {
            refused: 1,
            ..Counts::default()
        };
        self.count(participant, payer, counts, now_us);
    }

    /// Counts a payment order.
    pub(crate) fn count_order(&self, participant: &str, payer: &str, now_us: u64) {
        let counts = Counts {
            orders: 1,
            ..Counts::default()
        };
        self.count(participant, Some(payer), counts, now_us);
    }

    fn count(&self, participant: &str, payer: Option<&str>, counts: Counts, now_us: u64) {
        let hour = now_us / HOUR_US;
        {
            let mut participants = self.participants.lock();
            if !participants.contains_key(participant) {
                participants.insert(participant.to_owned(), Hours::default());
            }
            let hours = participants.get_mut(participant).expect("just inserted");
            let (of, counted) = &mut hours[usize::try_from(hour).unwrap_or(0) % HOURS];
            if *of != hour {
                (*of, *counted) = (hour, Counts::default());
            }
            counted.add(counts);
        }
        let Some(payer) = payer else { return };
        let name = (participant.to_owned(), self.hashing.hash_one(payer));
        let mut payers = self.payers.lock();
        payers.turn(hour / 12);
        let is_known = payers.now.contains_key(&name);
        if !is_known && payers.now.len() >= PAYERS_MAX {
            return;
        }
        let counted = payers
            .now
            .entry(name)
            .or_insert_with(|| (self.hash(payer), Counts::default()));
        counted.1.add(counts);
    }

    /// The counts of a participant within the last 24 hours.
    pub(crate) fn of(&self, participant: &str, now_us: u64) -> Counts {
        let hour = now_us / HOUR_US;
        let oldest = hour.saturating_sub(HOURS as u64 - 1);
        let participants = self.participants.lock();
        let mut sum = Counts::default();
        for (of, counts) in participants.get(participant).into_iter().flatten() {
            if (oldest..=hour).contains(of) {
                sum.add(*counts);
            }
        }
        sum
    }

    /// The payers of a participant that stand out by lookups of keys that do not exist and by refused
    /// lookups. Those with fewer than `lookups_min` lookups, refused ones included, are left out.
    pub(crate) fn worst(
        &self,
        participant: &str,
        lookups_min: u64,
        now_us: u64,
    ) -> Vec<WorstPayer> {
        let mut payers = self.payers.lock();
        payers.turn(now_us / HOUR_US / 12);
        let mut sums: HashMap<u64, (String, Counts)> = HashMap::new();
        for ((of, payer), (hash, counts)) in payers.now.iter().chain(&payers.before) {
            if of == participant {
                let sum = sums
                    .entry(*payer)
                    .or_insert_with(|| (hash.clone(), Counts::default()));
                sum.1.add(*counts);
            }
        }
        drop(payers);
        let mut worst: Vec<WorstPayer> = sums
            .into_values()
            .filter(|(_, counts)| {
                counts.attempts() >= lookups_min && counts.not_found + counts.refused > 0
            })
            .map(|(payer_hash, counts)| WorstPayer {
                payer_hash,
                not_found_permille: counts.not_found_permille(),
                counts,
            })
            .collect();
        worst.sort_by_key(|payer| {
            std::cmp::Reverse((payer.counts.conspicuousness(), payer.counts.attempts()))
        });
        worst.truncate(WORST_MAX);
        worst
    }

    /// The participants that were counted.
    pub(crate) fn participants(&self) -> Vec<String> {
        self.participants.lock().keys().cloned().collect()
    }

    /// The salted hash of a payer, as it is reported.
    fn hash(&self, payer: &str) -> String {
        let mut context = Context::new(&SHA256);
        context.update(&self.salt);
        context.update(payer.as_bytes());
        hex::encode(&context.finish().as_ref()[..16])
    }
}

impl Payers {
    fn turn(&mut self, half: u64) {
        if half == self.half {
            return;
        }
        self.before = if half == self.half + 1 {
            std::mem::take(&mut self.now)
        } else {
            HashMap::new()
        };
        self.now.clear();
        self.half = half;
    }
}

impl std::fmt::Debug for Duties {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Duties").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_cover_a_day_and_name_the_worst_payers_by_hash() {
        let duties = Duties::new(Some("salt"));
        let start = 1_000 * 24 * HOUR_US;
        for number in 0..100 {
            duties.count_lookup("P", Some("11122233300"), number % 4 > 0, start);
            duties.count_lookup("P", Some("99988877700"), true, start);
        }
        for _ in 0..50 {
            duties.count_order("P", "11122233300", start);
        }
        let counts = duties.of("P", start);
        assert_eq!(
            (counts.lookups, counts.not_found, counts.orders),
            (200, 25, 50)
        );
        assert_eq!(counts.lookups_per_order_permille(), Some(4_000));
        assert_eq!(counts.not_found_permille(), 125);
        let worst = duties.worst("P", 20, start);
        assert_eq!(worst.len(), 1);
        assert_eq!(worst[0].not_found_permille, 250);
        assert!(!worst[0].payer_hash.contains("111222"));
        assert_eq!(duties.of("P", start + 23 * HOUR_US).lookups, 200);
        assert_eq!(duties.of("P", start + 24 * HOUR_US), Counts::default());
        assert!(duties.worst("P", 20, start + 24 * HOUR_US).is_empty());
        assert_eq!(duties.of("Q", start), Counts::default());
    }

    #[test]
    fn refused_lookups_make_a_payer_stand_out() {
        let duties = Duties::new(Some("salt"));
        let start = 1_000 * 24 * HOUR_US;
        // A person who scans is refused after five lookups.
        for _ in 0..5 {
            duties.count_lookup("P", Some("11122233300"), false, start);
        }
        for _ in 0..295 {
            duties.count_refused("P", Some("11122233300"), start);
        }
        // A shop with many customers, some of whom mistype their key.
        for number in 0..2_000 {
            duties.count_lookup("P", Some("99988877700166"), number % 20 > 0, start);
        }
        let worst = duties.worst("P", 20, start);
        assert_eq!(worst.len(), 2);
        assert_eq!((worst[0].counts.lookups, worst[0].counts.refused), (5, 295));
        assert_eq!(worst[0].not_found_permille, 1_000);
        assert_eq!(worst[1].counts.not_found, 100);
        assert_eq!(duties.worst("P", 301, start).len(), 1);
        assert_eq!(duties.of("P", start).refused, 295);
        assert_eq!(
            duties.of("P", start).lookups,
            2_005,
            "those that were answered"
        );
    }
}
