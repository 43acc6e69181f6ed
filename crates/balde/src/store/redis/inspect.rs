//! Reads buckets without changing them, for tools: one by its key, or many by a bounded scan.

use std::fmt;
use std::time::Duration;

use balde_core::{Command, Decision, Limit};
use redis::{Cmd, Pipeline, Value};
use tokio::time::{Instant, timeout_at};

use super::RedisStore;
use super::error::failure_of;
use super::key::{self, BucketName, Names};
use super::link::Node;
use super::script::decode_bucket;
use crate::failure::StoreFailure;

/// Keys that the server looks at for one page of a scan. A page of the longest names fits into a
/// reply.
const SCAN_COUNT: usize = 50;

/// A call of this module may take as long as the largest timeout of a decision, or longer by this
/// factor: nobody waits for its decision.
const PATIENCE: u32 = 10;

/// A bucket as it is stored in Redis, refilled to the time at which it was read. Made by
/// [`RedisStore::bucket`] and [`BucketScan`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredBucket {
    /// The name of the limiter.
    pub limiter: String,
    /// The hash tag of the limiter, if it has one.
    pub hash_tag: Option<Vec<u8>>,
    /// The key.
    pub key: Vec<u8>,
    decision: Decision,
}

impl StoredBucket {
    /// The limit that the bucket was last written under.
    pub fn limit(&self) -> &Limit {
        self.decision.limit()
    }

    /// Whole tokens in the bucket; negative is debt.
    pub fn level(&self) -> i64 {
        self.decision.level()
    }

    /// How long until the bucket has one token to take. Zero if it has one now.
    pub fn next_after(&self) -> Duration {
        match self.decision.wait_for(1) {
            balde_core::Wait::Us(us) => Duration::from_micros(us),
            balde_core::Wait::None | balde_core::Wait::Never => Duration::ZERO,
        }
    }

    /// How long until the bucket is full, or its window ends.
    pub fn full_after(&self) -> Duration {
        self.decision.full_after()
    }

    /// The time at which it was read by the server's clock, in microseconds since the Unix epoch.
    pub fn now_us(&self) -> u64 {
        self.decision.now_us()
    }
}

impl RedisStore {
    /// Reads the bucket of `key`. Returns `None` if there is none: it has not been used since it was
    /// last full. Unlike [`RateLimiter::peek`](crate::RateLimiter::peek) this needs no limit: it
    /// shows the one that is stored.
    ///
    /// Tokens that processes hold on lease are not in the bucket, and do not show.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = balde::RedisStore::new("redis://127.0.0.1")?;
    /// match store.bucket("per-user", None, "alice").await? {
    ///     Some(bucket) => println!("{} of {}", bucket.level(), bucket.limit()),
    ///     None => println!("full"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn bucket(
        &self,
        limiter: &str,
        hash_tag: Option<&[u8]>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<StoredBucket>, StoreFailure> {
        let key = key.as_ref();
        let name = Names::new(&self.0.settings.prefix, limiter, hash_tag).bucket(key);
        let mut get = Cmd::new();
        get.arg("GET").arg(name.as_slice());
        let reply = self.ask(&get).await?;
        let now_us = self.server_time_us().await?;
        let stored = match reply {
            Value::Nil => return Ok(None),
            Value::BulkString(stored) => stored,
            _ => return Err(StoreFailure::Rejected),
        };
        let decision = peek(&stored, now_us).ok_or(StoreFailure::ForeignValue)?;
        Ok(Some(StoredBucket {
            limiter: limiter.to_owned(),
            hash_tag: hash_tag.map(<[u8]>::to_vec),
            key: key.to_vec(),
            decision,
        }))
    }

    /// Begins to read all buckets of this store's prefix, or those of one limiter, page by page.
    ///
    /// Redis has no index of buckets: a scan looks at every key of every server, whatever it belongs
    /// to. It does not block the server; the caller decides after each page whether to go on.
    pub fn scan_buckets(&self, limiter: Option<&str>) -> BucketScan {
        BucketScan {
            store: self.clone(),
            pattern: key::pattern(&self.0.settings.prefix, limiter),
            limiter: limiter.map(str::to_owned),
            nodes: None,
            cursor: 0,
            keys_seen: 0,
            foreign_seen: 0,
        }
    }

    /// Returns how many keys the server has, or all primaries of a Cluster together.
    pub async fn keys_in_server(&self) -> Result<u64, StoreFailure> {
        let mut dbsize = Pipeline::new();
        dbsize.cmd("DBSIZE");
        let mut keys = 0;
        for node in self.primaries().await? {
            match self.ask_all(&dbsize, 1, &node).await?.first() {
                Some(Value::Int(count)) => keys += u64::try_from(*count).unwrap_or(0),
                _ => return Err(StoreFailure::Rejected),
            }
        }
        Ok(keys)
    }

    async fn server_time_us(&self) -> Result<u64, StoreFailure> {
        let reply = self.ask(&redis::cmd("TIME")).await?;
        time_us(&reply).ok_or(StoreFailure::Rejected)
    }

    /// The primaries of a Cluster; else the one server.
    async fn primaries(&self) -> Result<Vec<Node>, StoreFailure> {
        if !self.0.settings.is_cluster {
            return Ok(vec![Node::Only]);
        }
        let mut slots = Cmd::new();
        slots.arg("CLUSTER").arg("SLOTS");
        let reply = self.ask(&slots).await?;
        primaries_of(&reply).ok_or(StoreFailure::Rejected)
    }

    async fn ask(&self, command: &Cmd) -> Result<Value, StoreFailure> {
        let asking = async {
            let (_link, _number, mut connection) = self.connection().await?;
            let reply = connection.send(command).await;
            reply.map_err(|error| failure_of(&error))
        };
        within(self.timeout() * PATIENCE, asking).await
    }

    async fn ask_all(
        &self,
        commands: &Pipeline,
        count: usize,
        node: &Node,
    ) -> Result<Vec<Value>, StoreFailure> {
        let asking = async {
            let (_link, _number, mut connection) = self.connection().await?;
            let replies = connection.send_all(commands, count, node).await;
            replies.map_err(|error| failure_of(&error))
        };
        within(self.timeout() * PATIENCE, asking).await
    }
}

/// A scan of buckets. Made by [`RedisStore::scan_buckets`].
pub struct BucketScan {
    store: RedisStore,
    pattern: Vec<u8>,
    limiter: Option<String>,
    /// The servers that are not finished; the last is being scanned.
    nodes: Option<Vec<Node>>,
    cursor: u64,
    keys_seen: u64,
    foreign_seen: u64,
}

impl BucketScan {
    /// Reads the next page. Returns `None` when all keys have been seen. A page may be empty, and a
    /// bucket may come twice if keys are added meanwhile.
    pub async fn next_page(&mut self) -> Result<Option<Vec<StoredBucket>>, StoreFailure> {
        let nodes = match &mut self.nodes {
            Some(nodes) => nodes,
            none => none.insert(self.store.primaries().await?),
        };
        let Some(node) = nodes.last().cloned() else {
            return Ok(None);
        };
        let mut scan = Pipeline::with_capacity(1);
        scan.cmd("SCAN")
            .arg(self.cursor)
            .arg("MATCH")
            .arg(self.pattern.as_slice());
        scan.arg("COUNT").arg(SCAN_COUNT);
        let reply = self.store.ask_all(&scan, 1, &node).await?;
        let (cursor, names) = page_of(reply).ok_or(StoreFailure::Rejected)?;
        let buckets = self.read(names, &node).await?;
        self.cursor = cursor;
        self.keys_seen += SCAN_COUNT as u64;
        if cursor == 0
            && let Some(nodes) = &mut self.nodes
        {
            nodes.pop();
        }
        Ok(Some(buckets))
    }

    /// About how many keys of the server the scan has looked at, those of other programs included.
    pub fn keys_seen(&self) -> u64 {
        self.keys_seen
    }

    /// How many keys were named like buckets but hold something else.
    pub fn foreign_seen(&self) -> u64 {
        self.foreign_seen
    }

    async fn read(
        &mut self,
        names: Vec<Vec<u8>>,
        node: &Node,
    ) -> Result<Vec<StoredBucket>, StoreFailure> {
        let prefix = &self.store.0.settings.prefix;
        let is_wanted =
            |name: &BucketName| self.limiter.as_ref().is_none_or(|one| *one == name.limiter);
        let names: Vec<_> = names
            .into_iter()
            .filter_map(|name| Some((key::parse(prefix, &name).filter(is_wanted)?, name)))
            .collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut reads = Pipeline::with_capacity(names.len() + 1);
        reads.cmd("TIME");
        for (_, name) in &names {
            reads.cmd("GET").arg(name.as_slice());
        }
        let mut replies = self
            .store
            .ask_all(&reads, names.len() + 1, node)
            .await?
            .into_iter();
        let now_us = replies.next().as_ref().and_then(time_us);
        let now_us = now_us.ok_or(StoreFailure::Rejected)?;
        let mut buckets = Vec::with_capacity(names.len());
        for ((name, _), reply) in names.into_iter().zip(replies) {
            let decision = match &reply {
                // It expired between the scan and now.
                Value::Nil => continue,
                Value::BulkString(stored) => peek(stored, now_us),
                _ => None,
            };
            match decision {
                Some(decision) => buckets.push(StoredBucket {
                    limiter: name.limiter,
                    hash_tag: name.hash_tag,
                    key: name.key,
                    decision,
                }),
                None => self.foreign_seen += 1,
            }
        }
        Ok(buckets)
    }
}

impl fmt::Debug for BucketScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketScan")
            .field("limiter", &self.limiter)
            .field("keys_seen", &self.keys_seen)
            .finish_non_exhaustive()
    }
}

async fn within<T>(
    time: Duration,
    asking: impl Future<Output = Result<T, StoreFailure>>,
) -> Result<T, StoreFailure> {
    let answer = timeout_at(Instant::now() + time, asking).await;
    answer.unwrap_or(Err(StoreFailure::Timeout))
}

/// The bucket as of `now_us`; `None` if the value is not a bucket.
fn peek(stored: &[u8], now_us: u64) -> Option<Decision> {
    let (limit, state, held) = decode_bucket(stored, now_us)?;
    let snapshot = limit.snapshot(state, now_us);
    Some(limit.decide_held(snapshot, held, Command::Peek))
}

fn time_us(reply: &Value) -> Option<u64> {
    let Value::Array(parts) = reply else {
        return None;
    };
    let number = |part: &Value| match part {
        Value::BulkString(digits) => std::str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    let [seconds, us] = parts.as_slice() else {
        return None;
    };
    number(seconds)?
        .checked_mul(1_000_000)?
        .checked_add(number(us)?)
}

fn page_of(mut replies: Vec<Value>) -> Option<(u64, Vec<Vec<u8>>)> {
    let Value::Array(parts) = replies.pop()? else {
        return None;
    };
    let [Value::BulkString(cursor), Value::Array(names)] = <[Value; 2]>::try_from(parts).ok()?
    else {
        return None;
    };
    let cursor = std::str::from_utf8(&cursor).ok()?.parse().ok()?;
    let name = |value| match value {
        Value::BulkString(name) => Some(name),
        _ => None,
    };
    Some((cursor, names.into_iter().map(name).collect::<Option<_>>()?))
}

/// The first node of each range of slots in the reply to CLUSTER SLOTS.
fn primaries_of(reply: &Value) -> Option<Vec<Node>> {
    let Value::Array(ranges) = reply else {
        return None;
    };
    let mut nodes = Vec::new();
    for range in ranges {
        let Value::Array(range) = range else {
            return None;
        };
        let Value::Array(primary) = range.get(2)? else {
            return None;
        };
        let (Value::BulkString(host), Value::Int(port)) = (primary.first()?, primary.get(1)?)
        else {
            return None;
        };
        let host = String::from_utf8(host.clone()).ok()?;
        let node = Node::At(host, u16::try_from(*port).ok()?);
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
    Some(nodes)
}
