//! Answers in the Redis protocol, version 2 or 3.

use std::fmt::Display;
use std::io::Write as _;

use crate::decisions::{Answer, CommandError, LimitState, ListedBucket, Verdict, Why};

/// The version of the protocol that a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Two,
    Three,
}

/// Answers of a connection that wait to be written.
#[derive(Debug)]
pub(super) struct Replies {
    pub(super) bytes: Vec<u8>,
    pub(super) version: Version,
}

/// A value in a map.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field<'f> {
    Integer(i64),
    Text(&'f str),
}

impl Replies {
    pub(super) const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            version: Version::Two,
        }
    }

    pub(super) fn status(&mut self, text: &str) {
        self.line('+', text);
    }

    /// An error. It begins with a word in capitals, as those of Redis do. Line ends would break the
    /// protocol, and become spaces.
    pub(super) fn error(&mut self, text: &dyn Display) {
        let text = text.to_string().replace(['\r', '\n'], " ");
        self.line('-', text);
    }

    pub(super) fn integer(&mut self, number: i64) {
        self.line(':', number);
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.line('$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn null(&mut self) {
        match self.version {
            Version::Two => self.bytes.extend_from_slice(b"$-1\r\n"),
            Version::Three => self.bytes.extend_from_slice(b"_\r\n"),
        }
    }

    pub(super) fn array(&mut self, length: usize) {
        self.line('*', length);
    }

    /// The head of a map; in version 2 an array of keys and values.
    pub(super) fn map(&mut self, pairs: usize) {
        match self.version {
            Version::Two => self.array(2 * pairs),
            Version::Three => self.line('%', pairs),
        }
    }

    pub(super) fn fields(&mut self, fields: &[(&str, Field<'_>)]) {
        self.map(fields.len());
        for (name, field) in fields {
            self.bulk(name.as_bytes());
            match field {
                Field::Integer(number) => self.integer(*number),
                Field::Text(text) => self.bulk(text.as_bytes()),
            }
        }
    }

    pub(super) fn command_error(&mut self, error: &CommandError) {
        let word = match error {
            CommandError::Forbidden(_) => "NOPERM",
            CommandError::Overloaded | CommandError::Full(_) => "BUSY",
            CommandError::Store(_) => "TRYAGAIN",
            _ => "ERR",
        };
        self.error(&format_args!("{word} {error}"));
    }

    /// The answer to a `BALDE.` command.
    pub(super) fn answer(&mut self, answer: &Answer) {
        match answer {
            Answer::One(verdict) => self.verdict(verdict),
            Answer::All {
                is_allowed,
                refused,
                verdicts,
            } => {
                self.map(3);
                self.bulk(b"allowed");
                self.integer(i64::from(*is_allowed));
                self.bulk(b"refused");
                self.integer(refused.map_or(-1, |index| i64::try_from(index).unwrap_or(-1)));
                self.verdicts(verdicts);
            }
            Answer::Held { id, verdicts } => {
                self.map(3);
                self.bulk(b"allowed");
                self.integer(1);
                self.bulk(b"hold");
                self.bulk(id.as_bytes());
                self.verdicts(verdicts);
            }
            Answer::Settled { verdicts } => {
                self.map(1);
                self.verdicts(verdicts);
            }
            Answer::Done => self.status("OK"),
            Answer::Buckets(buckets) => {
                self.array(buckets.len());
                for bucket in buckets {
                    self.listed(bucket);
                }
            }
            Answer::State(limits) => {
                self.array(limits.len());
                for limit in limits {
                    self.limit_state(limit);
                }
            }
        }
    }

    /// The five integers of redis-cell: whether it was limited, the limit, what remains, the seconds
    /// until a retry (-1 if it was allowed or never will be), and the seconds until the bucket is full.
    pub(super) fn throttled(&mut self, verdict: &Verdict, is_peek: bool) {
        let is_allowed = verdict.is_allowed || is_peek;
        let retry_after = verdict.retry_after.filter(|_| !is_allowed);
        let seconds = |time: std::time::Duration| {
            let up = time.as_micros().div_ceil(1_000_000);
            i64::try_from(up).unwrap_or(i64::MAX)
        };
        self.array(5);
        self.integer(i64::from(!is_allowed));
        self.integer(signed(verdict.limit.capacity()));
        self.integer(signed(verdict.remaining));
        self.integer(retry_after.map_or(-1, seconds));
        self.integer(seconds(verdict.full_after));
    }

    fn verdicts(&mut self, verdicts: &[Verdict]) {
        self.bulk(b"buckets");
        self.array(verdicts.len());
        for verdict in verdicts {
            self.verdict(verdict);
        }
    }

    fn verdict(&mut self, verdict: &Verdict) {
        let micros =
            |time: std::time::Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        // -1: there is nothing to wait for. -2: no wait helps.
        let retry_us = match (verdict.retry_after, verdict.is_allowed, verdict.why) {
            (Some(time), _, _) => micros(time),
            (None, false, Why::OverCapacity | Why::BadKey) => -2,
            (None, _, _) => -1,
        };
        self.fields(&[
            ("allowed", Field::Integer(i64::from(verdict.is_allowed))),
            ("reason", Field::Text(verdict.why.as_str())),
            ("level", Field::Integer(verdict.level)),
            ("remaining", Field::Integer(signed(verdict.remaining))),
            ("capacity", Field::Integer(signed(verdict.limit.capacity()))),
            ("retry_after_us", Field::Integer(retry_us)),
            ("full_after_us", Field::Integer(micros(verdict.full_after))),
            ("fallback", Field::Integer(i64::from(verdict.is_fallback))),
        ]);
    }

    fn listed(&mut self, bucket: &ListedBucket) {
        let full_us = i64::try_from(bucket.full_after.as_micros()).unwrap_or(i64::MAX);
        self.map(4);
        self.bulk(b"key");
        self.bulk(&bucket.key);
        for (name, number) in [
            ("level", bucket.level),
            ("capacity", signed(bucket.capacity)),
            ("full_after_us", full_us),
        ] {
            self.bulk(name.as_bytes());
            self.integer(number);
        }
    }

    fn limit_state(&mut self, limit: &LimitState) {
        let storage = if limit.is_in_memory {
            "memory"
        } else {
            "redis"
        };
        self.fields(&[
            ("name", Field::Text(&limit.name)),
            ("limit", Field::Text(&limit.limit)),
            ("storage", Field::Text(storage)),
            (
                "waiting",
                Field::Integer(i64::try_from(limit.waiting).unwrap_or(i64::MAX)),
            ),
            ("keys", Field::Integer(signed(limit.keys))),
            ("leases", Field::Integer(signed(limit.leases))),
        ]);
    }

    fn line(&mut self, kind: char, text: impl Display) {
        // Writing to a vector does not fail.
        let _written = write!(self.bytes, "{kind}{text}\r\n");
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
