//! The bodies of requests.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::decisions::{Bucket, CommandError, IfExpired, Order, Tokens};

/// Parses a body. The error says where it is wrong.
pub(super) fn parse<B: DeserializeOwned>(bytes: &[u8]) -> Result<B, CommandError> {
    let parsed = serde_json::from_slice(bytes);
    parsed.map_err(|error| CommandError::Invalid(format!("the body cannot be read: {error}")))
}

const fn one() -> u64 {
    1
}

/// The bucket of a key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BucketBody {
    limit: String,
    key: String,
}

impl BucketBody {
    pub(super) fn bucket(&self) -> Bucket<'_> {
        Bucket::named(&self.limit, self.key.as_bytes())
    }
}

/// Tokens of a bucket; one, if the body does not say how many.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokensBody {
    limit: String,
    key: String,
    #[serde(default = "one")]
    tokens: u64,
}

impl TokensBody {
    pub(super) fn tokens(&self) -> Tokens<'_> {
        Tokens {
            bucket: Bucket::named(&self.limit, self.key.as_bytes()),
            tokens: self.tokens,
        }
    }
}

/// Tokens of several buckets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SeveralBody {
    requests: Vec<TokensBody>,
}

impl SeveralBody {
    pub(super) fn tokens(&self) -> Vec<Tokens<'_>> {
        self.requests.iter().map(TokensBody::tokens).collect()
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum IfExpiredWord {
    #[default]
    Charge,
    GiveBack,
}

const fn thirty_seconds() -> u64 {
    30_000
}

/// A hold on tokens of several buckets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HoldBody {
    requests: Vec<TokensBody>,
    #[serde(default = "thirty_seconds")]
    ttl_ms: u64,
    #[serde(default)]
    if_expired: IfExpiredWord,
}

impl HoldBody {
    pub(super) fn tokens(&self) -> Vec<Tokens<'_>> {
        self.requests.iter().map(TokensBody::tokens).collect()
    }

    pub(super) const fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    pub(super) const fn if_expired(&self) -> IfExpired {
        match self.if_expired {
            IfExpiredWord::Charge => IfExpired::Charge,
            IfExpiredWord::GiveBack => IfExpired::GiveBack,
        }
    }
}

/// The price of a hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SettleBody {
    pub(super) hold: String,
    pub(super) tokens: u64,
}

/// Tokens to wait for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitBody {
    limit: String,
    key: String,
    #[serde(default = "one")]
    tokens: u64,
    within_ms: u64,
}

impl WaitBody {
    pub(super) fn tokens(&self) -> Tokens<'_> {
        Tokens {
            bucket: Bucket::named(&self.limit, self.key.as_bytes()),
            tokens: self.tokens,
        }
    }

    pub(super) const fn within(&self) -> Duration {
        Duration::from_millis(self.within_ms)
    }
}

/// The level of a bucket.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LevelBody {
    limit: String,
    key: String,
    pub(super) level: i64,
}

impl LevelBody {
    pub(super) fn bucket(&self) -> Bucket<'_> {
        Bucket::named(&self.limit, self.key.as_bytes())
    }
}

/// The tier of a key; none, if it is null.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TierBody {
    limit: String,
    key: String,
    pub(super) tier: Option<String>,
}

impl TierBody {
    pub(super) fn bucket(&self) -> Bucket<'_> {
        Bucket::named(&self.limit, self.key.as_bytes())
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OrderWord {
    #[default]
    Emptiest,
    Fullest,
}

const fn twenty() -> usize {
    20
}

/// Which buckets of a limit to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListBody {
    pub(super) limit: String,
    #[serde(default)]
    order: OrderWord,
    #[serde(default = "twenty")]
    pub(super) most: usize,
}

impl ListBody {
    pub(super) const fn order(&self) -> Order {
        match self.order {
            OrderWord::Emptiest => Order::Emptiest,
            OrderWord::Fullest => Order::Fullest,
        }
    }
}

/// A key to block, for a time or until it is unblocked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BlockBody {
    limit: String,
    key: String,
    #[serde(default)]
    for_ms: Option<u64>,
}

impl BlockBody {
    pub(super) fn bucket(&self) -> Bucket<'_> {
        Bucket::named(&self.limit, self.key.as_bytes())
    }

    pub(super) fn time(&self) -> Option<Duration> {
        self.for_ms.map(Duration::from_millis)
    }
}
