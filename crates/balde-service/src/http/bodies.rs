//! The bodies of requests.

use std::time::Duration;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Number;

use crate::decisions::{Bucket, CommandError, IfExpired, Order, Tokens};

/// Parses a body. The error says where it is wrong.
pub(super) fn parse<B: DeserializeOwned>(bytes: &[u8]) -> Result<B, CommandError> {
    let parsed = serde_json::from_slice(bytes);
    parsed.map_err(|error| CommandError::Invalid(format!("the body cannot be read: {error}")))
}

/// The largest whole number: the largest that every reader of JSON knows exactly.
const WHOLE_MAX: u128 = (1 << 53) - 1;

/// A whole number. In JSON `1.0` is one, too.
fn whole<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: TryFrom<i128>,
    D: Deserializer<'de>,
{
    let number = Number::deserialize(deserializer)?;
    from_number(&number)
        .ok_or_else(|| D::Error::custom(format!("{number} is no whole number in range")))
}

fn whole_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match Option::<Number>::deserialize(deserializer)? {
        None => Ok(None),
        Some(number) => match from_number(&number) {
            None => Err(D::Error::custom(format!(
                "{number} is no whole number in range"
            ))),
            whole => Ok(whole),
        },
    }
}

fn from_number<T: TryFrom<i128>>(number: &Number) -> Option<T> {
    let text = number.to_string();
    let digits = text.strip_suffix(".0").unwrap_or(&text);
    let whole: i128 = digits.parse().ok()?;
    T::try_from(whole)
        .ok()
        .filter(|_| whole.unsigned_abs() <= WHOLE_MAX)
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
    #[serde(default = "one", deserialize_with = "whole")]
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
    #[serde(default = "thirty_seconds", deserialize_with = "whole")]
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
    #[serde(deserialize_with = "whole")]
    pub(super) tokens: u64,
}

/// Tokens to wait for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitBody {
    limit: String,
    key: String,
    #[serde(default = "one", deserialize_with = "whole")]
    tokens: u64,
    #[serde(deserialize_with = "whole")]
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
    #[serde(deserialize_with = "whole")]
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
    #[serde(default = "twenty", deserialize_with = "whole")]
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
    #[serde(default, deserialize_with = "whole_or_null")]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_whole_however_they_are_written() {
        let tokens = |number: &str| {
            let body = format!(r#"{{"limit": "a", "key": "b", "tokens": {number}}}"#);
            parse::<TokensBody>(body.as_bytes()).map(|body| body.tokens)
        };
        for (number, expected) in [
            ("3", 3),
            ("3.0", 3),
            ("0", 0),
            ("9007199254740991", (1 << 53) - 1),
        ] {
            assert_eq!(tokens(number), Ok(expected), "{number}");
        }
        for number in ["-1", "1.5", "1e300", "\"3\"", "null", "9007199254740992"] {
            assert!(tokens(number).is_err(), "{number}");
        }
    }
}
