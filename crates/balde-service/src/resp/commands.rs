//! From the words of a command to a [`Command`].

use std::time::Duration;

use balde::Limit;
use bytes::Bytes;

use crate::decisions::{Bucket, Command, CommandError, IfExpired, LimitRef, Order, Tokens};

/// The commands of limits, with the fewest and the most words after the name.
pub(super) const COMMANDS: [(&str, usize, usize); 16] = [
    ("cl.throttle", 4, 5),
    ("balde.check", 2, 4),
    ("balde.checkall", 3, usize::MAX),
    ("balde.hold", 5, usize::MAX),
    ("balde.settle", 2, 2),
    ("balde.charge", 3, 4),
    ("balde.credit", 3, 4),
    ("balde.peek", 2, 2),
    ("balde.wait", 4, 4),
    ("balde.state", 0, 0),
    ("balde.reset", 2, 2),
    ("balde.setlevel", 3, 3),
    ("balde.tier", 2, 3),
    ("balde.block", 2, 3),
    ("balde.unblock", 2, 2),
    ("balde.buckets", 2, 3),
];

/// A command of limits, and its idempotency key.
#[derive(Debug)]
pub(super) struct Parsed<'w> {
    pub(super) command: Command<'w>,
    pub(super) idempotency_key: Option<&'w str>,
}

/// Returns whether there is a command of limits with this name, in lower case.
pub(super) fn is_known(name: &str) -> bool {
    COMMANDS.iter().any(|(known, ..)| *known == name)
}

/// The buckets of a command that names several.
pub(super) fn several<'w>(name: &str, words: &'w [Bytes]) -> Result<Vec<Tokens<'w>>, CommandError> {
    let triples = match name {
        "balde.checkall" => words,
        "balde.hold" => words.get(2..).unwrap_or_default(),
        _ => return Ok(Vec::new()),
    };
    if triples.len() % 3 != 0 {
        return Err(invalid(
            "buckets are named by three words each: limit, key, tokens",
        ));
    }
    let tokens = |triple: &'w [Bytes]| tokens(&triple[0], &triple[1], &triple[2]);
    triples.chunks_exact(3).map(tokens).collect()
}

/// Reads the words after the name of a command. `several` are its buckets, if it names several.
pub(super) fn parse<'w>(
    name: &str,
    words: &'w [Bytes],
    several: &'w [Tokens<'w>],
) -> Result<Parsed<'w>, CommandError> {
    let known = COMMANDS.iter().find(|(known, ..)| *known == name);
    let is_counted = known.is_some_and(|(_, least, most)| (*least..=*most).contains(&words.len()));
    if !is_counted {
        let message = format!("wrong number of arguments for '{name}' command");
        return Err(CommandError::Invalid(message));
    }
    let mut idempotency_key = None;
    let bucket = || bucket(&words[0], &words[1]);
    let command = match name {
        "cl.throttle" => throttle(words)?,
        "balde.check" => {
            idempotency_key = words.get(3);
            Command::Check(Tokens {
                bucket: bucket()?,
                tokens: words.get(2).map_or(Ok(1), |word| integer(word, "tokens"))?,
            })
        }
        "balde.checkall" => Command::CheckAll(several),
        "balde.hold" => Command::Hold {
            tokens: several,
            ttl: millis(&words[0], "the time of a hold")?,
            if_expired: if_expired(&words[1])?,
        },
        "balde.settle" => Command::Settle {
            hold: text(&words[0], "the id of a hold")?,
            price: integer(&words[1], "the price")?,
        },
        "balde.charge" => {
            idempotency_key = words.get(3);
            Command::Charge(tokens(&words[0], &words[1], &words[2])?)
        }
        "balde.credit" => {
            idempotency_key = words.get(3);
            Command::Credit(tokens(&words[0], &words[1], &words[2])?)
        }
        "balde.peek" => Command::Peek(bucket()?),
        "balde.wait" => Command::Wait {
            tokens: tokens(&words[0], &words[1], &words[2])?,
            within: millis(&words[3], "the longest wait")?,
        },
        "balde.reset" => Command::Reset(bucket()?),
        "balde.setlevel" => Command::SetLevel {
            bucket: bucket()?,
            level: integer(&words[2], "the level")?,
        },
        "balde.tier" => Command::MoveToTier {
            bucket: bucket()?,
            tier: words
                .get(2)
                .map(|word| text(word, "the tier"))
                .transpose()?,
        },
        "balde.block" => Command::Block {
            bucket: bucket()?,
            time: words
                .get(2)
                .map(|word| millis(word, "the time of a block"))
                .transpose()?,
        },
        "balde.unblock" => Command::Unblock(bucket()?),
        "balde.buckets" => Command::Buckets {
            limit: text(&words[0], "the name of a limit")?,
            order: order(&words[1])?,
            most: words
                .get(2)
                .map_or(Ok(20), |word| integer(word, "the number of buckets"))?,
        },
        _ => Command::State,
    };
    let idempotency_key = idempotency_key.map(|word| text(word, "the idempotency key"));
    Ok(Parsed {
        command,
        idempotency_key: idempotency_key.transpose()?,
    })
}

/// `CL.THROTTLE key max_burst count period [quantity]`: `count` tokens in each `period` of seconds,
/// in a bucket that holds one more than `max_burst`.
fn throttle(words: &[Bytes]) -> Result<Command<'_>, CommandError> {
    let max_burst: u64 = integer(&words[1], "max_burst")?;
    let count = integer(&words[2], "count")?;
    let period = integer(&words[3], "period")?;
    let tokens = words
        .get(4)
        .map_or(Ok(1), |word| integer(word, "quantity"))?;
    let capacity = max_burst.saturating_add(1);
    let limit = Limit::bucket_of(capacity, count, Duration::from_secs(period));
    let limit = limit.map_err(|error| CommandError::Invalid(error.to_string()))?;
    let bucket = Bucket {
        limit: LimitRef::Given(limit),
        key: &words[0],
    };
    Ok(match tokens {
        0 => Command::Peek(bucket),
        tokens => Command::Check(Tokens { bucket, tokens }),
    })
}

fn tokens<'w>(limit: &'w [u8], key: &'w [u8], tokens: &[u8]) -> Result<Tokens<'w>, CommandError> {
    Ok(Tokens {
        bucket: bucket(limit, key)?,
        tokens: integer(tokens, "tokens")?,
    })
}

fn bucket<'w>(limit: &'w [u8], key: &'w [u8]) -> Result<Bucket<'w>, CommandError> {
    let limit = text(limit, "the name of a limit")?;
    Ok(Bucket::named(limit, key))
}

fn if_expired(word: &[u8]) -> Result<IfExpired, CommandError> {
    match word.to_ascii_lowercase().as_slice() {
        b"charge" => Ok(IfExpired::Charge),
        b"give_back" => Ok(IfExpired::GiveBack),
        _ => Err(invalid("an expired hold is `charge` or `give_back`")),
    }
}

fn order(word: &[u8]) -> Result<Order, CommandError> {
    match word.to_ascii_lowercase().as_slice() {
        b"emptiest" => Ok(Order::Emptiest),
        b"fullest" => Ok(Order::Fullest),
        _ => Err(invalid("buckets are listed `emptiest` or `fullest` first")),
    }
}

fn millis(word: &[u8], what: &str) -> Result<Duration, CommandError> {
    integer(word, what).map(Duration::from_millis)
}

fn integer<N: std::str::FromStr>(word: &[u8], what: &str) -> Result<N, CommandError> {
    let text = std::str::from_utf8(word).ok();
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| CommandError::Invalid(format!("{what} must be an integer in its range")))
}

fn text<'w>(word: &'w [u8], what: &str) -> Result<&'w str, CommandError> {
    let text = std::str::from_utf8(word);
    text.map_err(|_| CommandError::Invalid(format!("{what} must be UTF-8")))
}

fn invalid(message: &str) -> CommandError {
    CommandError::Invalid(message.to_owned())
}
