//! Finds buckets: one by its key, or many by a bounded scan.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use balde::telemetry::key_hash;
use balde::{BucketScan, RedisStore, StoreFailure, StoredBucket};

use super::args::{Args, Wanted};
use crate::print::write_error;

/// How long the first connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// How often progress is written.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// What was found.
#[derive(Default)]
pub(super) struct Found {
    pub(super) buckets: Vec<StoredBucket>,
    /// For a scan.
    pub(super) scanned: Option<Scanned>,
}

/// How far a scan got.
pub(super) struct Scanned {
    pub(super) keys: u64,
    pub(super) keys_in_server: u64,
    pub(super) buckets: u64,
    /// Keys that are named like buckets and hold something else.
    pub(super) foreign: u64,
    pub(super) is_complete: bool,
}

pub(super) async fn find(
    args: &Args,
    store: &RedisStore,
    wanted: &Wanted<'_>,
) -> anyhow::Result<Found> {
    let keys_in_server = connected(store).await?;
    match wanted {
        Wanted::Key {
            limiter,
            hash_tag,
            key,
        } => {
            let bucket = store.bucket(limiter, hash_tag.as_deref(), key).await;
            Ok(Found {
                buckets: bucket.map_err(explained)?.into_iter().collect(),
                scanned: None,
            })
        }
        Wanted::Hash {
            limiter,
            digits,
            salt,
        } => {
            let has_hash =
                |bucket: &StoredBucket| key_hash(salt.as_bytes(), &bucket.key).starts_with(digits);
            let mut walk = Walk::new(args, store.scan_buckets(*limiter), keys_in_server);
            let mut buckets = Vec::new();
            // The first key is enough, but its buckets under other limiters may follow.
            while let Some(page) = walk.next_page().await? {
                buckets.extend(page.into_iter().filter(has_hash));
                if limiter.is_some() && !buckets.is_empty() {
                    break;
                }
            }
            buckets.dedup();
            let scanned = walk.end();
            if buckets.is_empty() {
                let (keys, of) = (scanned.keys, scanned.buckets);
                let advice = if scanned.is_complete {
                    "a bucket that is full is not stored; is RL_LOG_SALT that of the service?"
                } else {
                    "not all keys were seen: raise --scan-max"
                };
                return Err(anyhow!(
                    "no key with this hash among {of} buckets in {keys} keys; {advice}"
                ));
            }
            Ok(Found {
                buckets,
                scanned: Some(scanned),
            })
        }
        Wanted::Lowest { limiter, count } => {
            let mut walk = Walk::new(args, store.scan_buckets(*limiter), keys_in_server);
            let mut lowest = Vec::new();
            while let Some(page) = walk.next_page().await? {
                lowest.extend(page);
                if lowest.len() > 2 * count + 1_000 {
                    keep_lowest(&mut lowest, *count);
                }
            }
            keep_lowest(&mut lowest, *count);
            Ok(Found {
                buckets: lowest,
                scanned: Some(walk.end()),
            })
        }
    }
}

/// Sorts by the share of the capacity that is left, and keeps the first.
fn keep_lowest(buckets: &mut Vec<StoredBucket>, count: usize) {
    let name = |bucket: &StoredBucket| (bucket.limiter.clone(), bucket.key.clone());
    buckets.sort_by(|one, other| {
        let scaled = |bucket: &StoredBucket, by: &StoredBucket| {
            i128::from(bucket.level()) * i128::from(by.limit().capacity())
        };
        let by_share = scaled(one, other).cmp(&scaled(other, one));
        by_share.then_with(|| name(one).cmp(&name(other)))
    });
    // A scan may return a bucket twice.
    buckets.dedup_by(|one, other| {
        (&one.limiter, &one.hash_tag, &one.key) == (&other.limiter, &other.hash_tag, &other.key)
    });
    buckets.truncate(count);
}

/// A scan that stops at its bound and reports its progress.
struct Walk {
    scan: BucketScan,
    keys_max: u64,
    keys_in_server: u64,
    buckets: u64,
    is_complete: bool,
    reports: bool,
    reported: Instant,
}

impl Walk {
    fn new(args: &Args, scan: BucketScan, keys_in_server: u64) -> Self {
        Self {
            scan,
            keys_max: args.scan_max,
            keys_in_server,
            buckets: 0,
            is_complete: false,
            // Not into files, and not over the table of --watch.
            reports: std::io::stderr().is_terminal() && !args.watch,
            reported: Instant::now(),
        }
    }

    async fn next_page(&mut self) -> anyhow::Result<Option<Vec<StoredBucket>>> {
        if self.scan.keys_seen() >= self.keys_max {
            return Ok(None);
        }
        let page = self.scan.next_page().await.map_err(explained)?;
        match &page {
            Some(page) => self.buckets += page.len() as u64,
            None => self.is_complete = true,
        }
        if self.reports && self.reported.elapsed() > PROGRESS_EVERY {
            self.reported = Instant::now();
            let (seen, all) = (self.scan.keys_seen(), self.keys_in_server);
            let buckets = self.buckets;
            write_error(&format!("\r{seen} of about {all} keys, {buckets} buckets "));
        }
        Ok(page)
    }

    fn end(&self) -> Scanned {
        if self.reports {
            // The line of the progress.
            write_error("\r\x1b[K");
        }
        Scanned {
            keys: self.scan.keys_seen().min(self.keys_in_server),
            keys_in_server: self.keys_in_server,
            buckets: self.buckets,
            foreign: self.scan.foreign_seen(),
            is_complete: self.is_complete,
        }
    }
}

/// Waits for the connection, and returns how many keys the server has.
async fn connected(store: &RedisStore) -> anyhow::Result<u64> {
    let started = Instant::now();
    loop {
        match store.keys_in_server().await {
            Ok(keys) => return Ok(keys),
            Err(StoreFailure::Timeout) if started.elapsed() < CONNECT_WITHIN => {}
            Err(failure) => return Err(explained(failure)),
        }
    }
}

/// The failure, and what to do about it.
fn explained(failure: StoreFailure) -> anyhow::Error {
    let advice = match failure {
        StoreFailure::Disconnected => {
            "the connection was refused or lost; is the server running, and is this its address? \
             (rediss:// if it speaks TLS)"
        }
        StoreFailure::Timeout => "is there a firewall in between?",
        StoreFailure::Unauthorized => {
            "set REDIS_PASSWORD and --user; the user needs the commands get, scan, time, dbsize, and \
             cluster|slots in a Cluster"
        }
        StoreFailure::NotReady => "it is loading its data, or the Cluster lacks a primary",
        StoreFailure::ForeignValue => {
            "this is not a bucket: is --prefix right, and does the limiter have a --hash-tag?"
        }
        StoreFailure::Rejected => "is a Cluster given without --cluster, or the other way round?",
        _ => return anyhow!("{failure}"),
    };
    anyhow!("{failure}; {advice}")
}
