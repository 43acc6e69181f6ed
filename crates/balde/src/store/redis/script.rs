//! Encodes calls of the script and decodes its replies. Pure: nothing here does I/O.
//!
//! The header of `decide.lua` documents the protocol. Numbers are sent as doubles, because Lua counts
//! with them: each is whole and at most 2^53, so nothing is lost, and others are refused here.

use core::fmt;
use core::time::Duration;

use balde_core::{
    Command, Decision, DecisionParts, EXACT_MAX, Held, Limit, OnExpiry, Start, State, Strategy,
};
use smallvec::SmallVec;

/// The text of the script, for `EVALSHA` and `SCRIPT LOAD`.
pub const DECIDE: &str = include_str!("decide.lua");

/// The latest time that a call may be made at, in microseconds: 142 years after its epoch. A window
/// that opens then ends by 2^53.
pub const NOW_MAX_US: u64 = EXACT_MAX;

/// The number up to which every whole number is a double.
const WHOLE_MAX: u64 = 1 << 53;

const MAGIC: &[u8; 4] = b"bld1";
const LIMIT_BYTES: usize = 45;
/// The longest command: a hold.
const COMMAND_BYTES: usize = 34;
const HEADER_BYTES: usize = 16;
const STATE_BYTES: usize = LIMIT_BYTES + 16;
const NOW_BYTES: usize = 8;
const DECISION_BYTES: usize = 25;
const HELD_BYTES: usize = 8;
const HOLDER_BYTES: usize = 25;

/// A limit in the encoding of the script. It is the same for every call under one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitBlob([u8; LIMIT_BYTES]);

impl LimitBlob {
    /// Encodes `limit`.
    pub fn new(limit: &Limit) -> Self {
        let strategy = match limit.strategy() {
            Strategy::Continuous => 0,
            Strategy::Stepwise => 1,
            Strategy::FixedWindow => 2,
        };
        let start = match limit.start() {
            Start::Full => 0,
            Start::Empty => 4,
        };
        let mut bytes = [0; LIMIT_BYTES];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4] = strategy + start;
        let numbers = [
            limit.refill_units(),
            limit.capacity_units(),
            limit.owed_max(),
            limit.token_units(),
            limit.period_us(),
        ];
        write_doubles(&mut bytes[5..], &numbers);
        Self(bytes)
    }

    /// The argument of the script.
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The limit that is encoded; `None` if no limit has these numbers.
    pub fn limit(&self) -> Option<Limit> {
        let bytes = self.0.strip_prefix(MAGIC)?;
        let (kind, numbers) = bytes.split_first()?;
        let number = |index: usize| whole(double_at(numbers, 8 * index)).ok();
        let [
            refill_units,
            capacity_units,
            owed_max,
            token_units,
            period_us,
        ] = [number(0)?, number(1)?, number(2)?, number(3)?, number(4)?];
        let capacity = capacity_units.checked_div(token_units)?;
        let debt = owed_max.checked_sub(capacity_units)? / token_units;
        // A token costs p units and a microsecond restores q: period / tokens, reduced.
        let tokens = u128::from(refill_units) * u128::from(period_us) / u128::from(token_units);
        let tokens = u64::try_from(tokens).ok()?;
        let period = Duration::from_micros(period_us);
        let limit = match kind % 4 {
            0 => Limit::bucket_of(capacity, tokens, period),
            1 => Limit::bucket_of(capacity, tokens, period).map(Limit::stepwise),
            2 => Limit::window(capacity, period),
            _ => return None,
        };
        let limit = limit.ok()?.with_debt_max(debt).ok()?;
        let limit = match kind / 4 {
            0 => limit,
            _ => limit.starting_empty().ok()?,
        };
        (Self::new(&limit) == *self).then_some(limit)
    }
}

/// Who holds tokens, and what becomes of them if it is not heard of in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Unique among all processes.
    pub id: [u8; 8],
    /// How long the tokens are held after the holder's last command on them, in microseconds.
    pub ttl_us: u64,
    /// What happens to them then.
    pub on_expiry: OnExpiry,
}

/// A command in the encoding of the script, in the units of its limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CommandBlob(SmallVec<[u8; COMMAND_BYTES]>);

impl CommandBlob {
    /// Encodes `command` for a bucket under `limit`. Without a holder, tokens are taken instead of held.
    pub fn new(limit: &Limit, command: Command, holder: Option<&Holder>) -> Self {
        let command = match holder {
            Some(_) => command,
            None => command.without_holds(),
        };
        let token = limit.token_units();
        // More tokens than a bucket can move have the same effect as exactly that many.
        let units = |n: u64| n.min(limit.capacity() + limit.debt_max()) * token;
        // More than the capacity must not be clamped to an amount that passes.
        let needed_units = |n: u64| {
            if n > limit.capacity() {
                WHOLE_MAX
            } else {
                n * token
            }
        };
        let (operation, amount, second) = match command {
            Command::Peek => (0, 0, None),
            Command::Take { n } => (1, needed_units(n), None),
            Command::TakeUpTo { n } => (2, n.min(limit.capacity()), None),
            Command::Charge { n } => (3, units(n), None),
            Command::Credit { n } => (4, units(n), None),
            Command::SetLevel { .. } => (5, limit.decide(limit.fresh(0), command).owed(), None),
            Command::TakeIf { n, needed } => (6, units(n), Some(needed_units(needed))),
            Command::Hold { n, needed } => (7, n.min(EXACT_MAX), Some(needed_units(needed))),
            Command::Settle { held, price } => (8, held.min(EXACT_MAX), Some(price.min(EXACT_MAX))),
        };
        let mut bytes = SmallVec::new();
        bytes.push(operation);
        bytes.extend_from_slice(&double(amount));
        if let Some(second) = second {
            bytes.extend_from_slice(&double(second));
        }
        if let (7 | 8, Some(holder)) = (operation, holder) {
            bytes.extend_from_slice(&holder.id);
            bytes.push(on_expiry_byte(holder.on_expiry));
            bytes.extend_from_slice(&double(holder.ttl_us.min(EXACT_MAX)));
        }
        Self(bytes)
    }

    /// The argument of the script.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

const fn on_expiry_byte(on_expiry: OnExpiry) -> u8 {
    match on_expiry {
        OnExpiry::Charge => 0,
        OnExpiry::GiveBack => 1,
    }
}

/// One command on one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    limit: Limit,
    limit_blob: LimitBlob,
    command: Command,
    holder: Option<Holder>,
    is_renewal: bool,
}

impl Step {
    /// Creates a step: `command` on a bucket under `limit`, whose encoding is `limit_blob`.
    pub const fn new(limit: Limit, limit_blob: LimitBlob, command: Command) -> Self {
        Self {
            limit,
            limit_blob,
            command,
            holder: None,
            is_renewal: false,
        }
    }

    /// Creates a step that renews what a holder holds of a bucket. It leaves the bucket under the limit
    /// that it was written under, so the reply cannot be decoded under another one.
    pub const fn renewal(limit: Limit, limit_blob: LimitBlob, holder: Holder) -> Self {
        Self {
            limit,
            limit_blob,
            command: Command::Hold { n: 0, needed: 0 },
            holder: Some(holder),
            is_renewal: true,
        }
    }

    /// The same step with another command.
    pub const fn with_command(mut self, command: Command) -> Self {
        self.command = command;
        self
    }

    /// Sets who holds tokens. Without it, they are taken instead of held.
    pub const fn held_by(mut self, holder: Option<Holder>) -> Self {
        self.holder = holder;
        self
    }

    /// The command in the encoding of the script.
    pub fn command_blob(&self) -> CommandBlob {
        let mut blob = CommandBlob::new(&self.limit, self.command, self.holder.as_ref());
        if self.is_renewal {
            blob.0[0] = 9;
        }
        blob
    }

    /// The command as the script runs it.
    fn command_run(&self) -> Command {
        match self.holder {
            Some(_) => self.command,
            None => self.command.without_holds(),
        }
    }

    /// The limit of the bucket.
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The limit in the encoding of the script.
    pub const fn limit_blob(&self) -> &LimitBlob {
        &self.limit_blob
    }

    /// The command to run on the bucket.
    pub const fn command(&self) -> Command {
        self.command
    }
}

/// The settings of a call. By default the server's clock, and no operation id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    now_us: Option<u64>,
    reply_ttl_ms: Option<u64>,
}

impl Header {
    /// Makes the call at `now_us` instead of the server's time, for manual clocks. `None` beyond
    /// [`NOW_MAX_US`].
    pub fn at(self, now_us: u64) -> Option<Self> {
        (now_us <= NOW_MAX_US).then_some(Self {
            now_us: Some(now_us),
            ..self
        })
    }

    /// Makes the call idempotent. The caller adds one Redis key after those of the buckets; the reply
    /// of a call that passed is stored there for `reply_ttl_ms`. A repeated call returns that reply
    /// and changes nothing.
    pub fn with_operation(self, reply_ttl_ms: u64) -> Self {
        Self {
            reply_ttl_ms: Some(reply_ttl_ms.clamp(1, EXACT_MAX)),
            ..self
        }
    }

    /// Returns whether the call is idempotent. If so, the last of its Redis keys, after those of the
    /// buckets, must be the key under which the reply is stored.
    pub const fn has_operation(&self) -> bool {
        self.reply_ttl_ms.is_some()
    }

    /// The last argument of the call; `None` if all settings have their default.
    pub fn encode(&self) -> Option<[u8; HEADER_BYTES]> {
        if self.now_us.is_none() && self.reply_ttl_ms.is_none() {
            return None;
        }
        let mut bytes = [0; HEADER_BYTES];
        write_doubles(&mut bytes[8..], &[self.reply_ttl_ms.unwrap_or(0)]);
        match self.now_us {
            Some(now_us) => write_doubles(&mut bytes, &[now_us]),
            None => bytes[..8].copy_from_slice(&(-1.0_f64).to_le_bytes()),
        }
        Some(bytes)
    }
}

/// The arguments of a call, in the script's order.
pub fn encode(steps: &[Step], header: Header) -> Vec<Vec<u8>> {
    let mut args = Vec::with_capacity(steps.len() * 2 + 1);
    for step in steps {
        args.push(step.limit_blob.as_bytes().to_vec());
        args.push(step.command_blob().as_bytes().to_vec());
    }
    args.extend(header.encode().map(Vec::from));
    args
}

/// The reply of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The time of the call, by the server's clock or the one that was sent.
    pub now_us: u64,
    /// One decision for each step, in their order. If one of them did not pass, none was applied, and
    /// the others are what would have happened.
    pub decisions: Vec<Decision>,
}

/// Decodes the reply to a call of these steps.
pub fn decode(steps: &[Step], reply: &[u8]) -> Result<Reply, ReplyError> {
    let Some((now, mut rest)) = reply.split_first_chunk::<NOW_BYTES>() else {
        return Err(ReplyError::length(steps.len(), reply));
    };
    let now_us = whole(*now)?;
    let mut decisions = Vec::with_capacity(steps.len());
    for step in steps {
        let decision;
        (decision, rest) = decode_decision(&step.limit, step.command_run(), now_us, rest)
            .ok_or_else(|| ReplyError::length(steps.len(), reply))?;
        decisions.push(decision?);
    }
    if !rest.is_empty() {
        return Err(ReplyError::length(steps.len(), reply));
    }
    Ok(Reply { now_us, decisions })
}

/// [`decode`] for a call of one step, without a list.
pub fn decode_one(step: &Step, reply: &[u8]) -> Result<Decision, ReplyError> {
    let decoded = reply.split_first_chunk::<NOW_BYTES>().map(|(now, rest)| {
        let now_us = whole(*now)?;
        match decode_decision(&step.limit, step.command_run(), now_us, rest) {
            Some((decision, [])) => decision,
            _ => Err(ReplyError::length(1, reply)),
        }
    });
    decoded.unwrap_or_else(|| Err(ReplyError::length(1, reply)))
}

/// What the script stores for a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The limit that the bucket was written under.
    pub limit: LimitBlob,
    /// Its state; `None` if it equals a bucket that was never used, and something is held of it.
    pub state: Option<State>,
    /// What is held of it, by holder. Some of it may have expired.
    pub held: Vec<([u8; 8], Held)>,
}

/// Decodes the value that the script stores for a bucket.
pub fn decode_stored(stored: &[u8]) -> Result<Stored, ReplyError> {
    let Some((bytes, records)) = stored.split_first_chunk::<STATE_BYTES>() else {
        return Err(ReplyError::Length {
            expected: STATE_BYTES,
            found: stored.len(),
        });
    };
    let (limit, numbers) = bytes.split_at(LIMIT_BYTES);
    let mut blob = [0; LIMIT_BYTES];
    blob.copy_from_slice(limit);
    let owed = whole(double_at(numbers, 0))?;
    let at_us = whole(double_at(numbers, 8))?;
    if records.len() % HOLDER_BYTES != 0 {
        return Err(ReplyError::Length {
            expected: STATE_BYTES + records.len().next_multiple_of(HOLDER_BYTES),
            found: stored.len(),
        });
    }
    let held = records.chunks_exact(HOLDER_BYTES).map(decode_holder);
    let held: Vec<_> = held.collect::<Result<_, _>>()?;
    let starts_full = blob[MAGIC.len()] < 4;
    let is_unused = !held.is_empty() && owed == 0 && starts_full;
    Ok(Stored {
        limit: LimitBlob(blob),
        state: (!is_unused).then(|| State::new(owed, at_us)),
        held,
    })
}

fn decode_holder(record: &[u8]) -> Result<([u8; 8], Held), ReplyError> {
    let on_expiry = match record[8] {
        0 => OnExpiry::Charge,
        1 => OnExpiry::GiveBack,
        found => return Err(ReplyError::NotVerdict { found }),
    };
    let held = Held {
        tokens: whole(double_at(record, 9))?,
        expires_us: whole(double_at(record, 17))?,
        on_expiry,
    };
    Ok((double_at(record, 0), held))
}

/// Decodes the value that the script stores for a bucket, with its limit; `None` if it is not a bucket.
/// What has been held until `now_us` is charged; what is held after it is in the second part.
pub fn decode_bucket(stored: &[u8], now_us: u64) -> Option<(Limit, Option<State>, u64)> {
    let Stored {
        limit,
        mut state,
        mut held,
    } = decode_stored(stored).ok()?;
    let limit = limit.limit()?;
    if state.is_some_and(|state| state.owed() > limit.owed_max()) {
        return None;
    }
    held.sort_by_key(|(_, held)| held.expires_us);
    let mut tokens = 0_u64;
    for (_, held) in &held {
        if held.expires_us <= now_us {
            state = limit.expire(state, held);
        } else {
            tokens = tokens.saturating_add(held.tokens).min(EXACT_MAX);
        }
    }
    Some((limit, state, tokens))
}

/// A reply that the script cannot have sent: the server is not Redis, or runs another version of the
/// script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyError {
    /// Not as long as the call's reply must be.
    Length {
        /// Bytes there should be.
        expected: usize,
        /// Bytes there are.
        found: usize,
    },
    /// Something that is not a whole number from 0 to 2^53.
    NotWhole,
    /// Neither passed nor refused.
    NotVerdict {
        /// The byte found.
        found: u8,
    },
    /// Numbers that no decision on this command under this limit could have.
    Impossible,
}

impl ReplyError {
    const fn length(steps: usize, reply: &[u8]) -> Self {
        Self::Length {
            expected: NOW_BYTES + steps * DECISION_BYTES,
            found: reply.len(),
        }
    }
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { expected, found } => {
                write!(f, "expected {expected} bytes and got {found}")
            }
            Self::NotWhole => f.write_str("a number is not a whole one from 0 to 2^53"),
            Self::NotVerdict { found } => write!(f, "{found} is neither passed nor refused"),
            Self::Impossible => f.write_str("no decision on this command reads like that"),
        }
    }
}

impl core::error::Error for ReplyError {}

/// Decodes one decision, and returns the bytes after it; `None` if there are too few.
fn decode_decision<'b>(
    limit: &Limit,
    command: Command,
    now_us: u64,
    bytes: &'b [u8],
) -> Option<(Result<Decision, ReplyError>, &'b [u8])> {
    let (decided, rest) = bytes.split_first_chunk::<DECISION_BYTES>()?;
    let verdict = decided[0];
    let (held, rest) = if verdict & 2 == 0 {
        ([0; HELD_BYTES], rest)
    } else {
        let (held, rest) = rest.split_first_chunk::<HELD_BYTES>()?;
        (*held, rest)
    };
    let decision = || {
        let parts = DecisionParts {
            is_allowed: match verdict {
                0 | 2 => false,
                1 | 3 => true,
                found => return Err(ReplyError::NotVerdict { found }),
            },
            before: whole(double_at(decided, 1))?,
            after: whole(double_at(decided, 9))?,
            at_us: whole(double_at(decided, 17))?,
            now_us,
            held: whole(held)?,
        };
        Decision::from_parts(limit, command, parts).ok_or(ReplyError::Impossible)
    };
    Some((decision(), rest))
}

fn double_at(bytes: &[u8], at: usize) -> [u8; 8] {
    let mut double = [0; 8];
    double.copy_from_slice(&bytes[at..at + 8]);
    double
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "checked to be whole and within 2^53"
)]
fn whole(double: [u8; 8]) -> Result<u64, ReplyError> {
    let number = f64::from_le_bytes(double);
    if (0.0..=WHOLE_MAX as f64).contains(&number) && number.fract() == 0.0 {
        Ok(number as u64)
    } else {
        Err(ReplyError::NotWhole)
    }
}

fn write_doubles(bytes: &mut [u8], numbers: &[u64]) {
    for (bytes, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        bytes.copy_from_slice(&double(*number));
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "limits, amounts and moments are at most 2^53"
)]
const fn double(number: u64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit() -> Limit {
        "10/s burst 100 debt 20".parse().unwrap()
    }

    fn step(command: Command) -> Step {
        Step::new(limit(), LimitBlob::new(&limit()), command)
    }

    fn doubles(numbers: &[f64]) -> Vec<u8> {
        numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    fn reply(now: f64, passed: u8, numbers: &[f64]) -> Vec<u8> {
        [doubles(&[now]), vec![passed], doubles(numbers)].concat()
    }

    #[test]
    fn a_limit_is_written_once_and_says_all_that_makes_it_different() {
        let blob = LimitBlob::new(&limit());
        let expected = [
            b"bld1\0".to_vec(),
            doubles(&[1.0, 10_000_000.0, 12_000_000.0, 100_000.0, 1_000_000.0]),
        ]
        .concat();
        assert_eq!(blob.as_bytes(), expected);

        let others = [
            "10/s burst 100 debt 21",
            "10/s burst 101 debt 20",
            "20/2s burst 100 debt 20",
            "10/s burst 100 debt 20 stepwise",
            "10/s burst 100 debt 20 empty",
            "100/10s window debt 20",
        ];
        let mut blobs: Vec<_> = others
            .iter()
            .map(|text| LimitBlob::new(&text.parse().unwrap()))
            .collect();
        blobs.push(blob);
        for (text, blob) in others.iter().zip(&blobs) {
            assert_eq!(blob.limit(), Some(text.parse().unwrap()), "{text}");
        }
        for (i, one) in blobs.iter().enumerate() {
            assert!(blobs[..i].iter().all(|other| other != one), "{i}");
        }
    }

    #[test]
    fn amounts_are_cut_to_what_a_bucket_can_move_except_a_take() {
        for (command, operation, amount) in [
            (Command::Peek, 0, 0.0),
            (Command::Take { n: 0 }, 1, 0.0),
            (Command::Take { n: 100 }, 1, 1e7),
            (Command::Take { n: 101 }, 1, 9_007_199_254_740_992.0),
            (Command::Take { n: u64::MAX }, 1, 9_007_199_254_740_992.0),
            (Command::TakeUpTo { n: 7 }, 2, 7.0),
            (Command::TakeUpTo { n: u64::MAX }, 2, 100.0),
            (Command::Charge { n: 3 }, 3, 3e5),
            (Command::Charge { n: u64::MAX }, 3, 1.2e7),
            (Command::Credit { n: u64::MAX }, 4, 1.2e7),
            (Command::SetLevel { level: 30 }, 5, 7e6),
            (Command::SetLevel { level: i64::MIN }, 5, 1.2e7),
            (Command::SetLevel { level: i64::MAX }, 5, 0.0),
        ] {
            let expected = [vec![operation], doubles(&[amount])].concat();
            assert_eq!(
                CommandBlob::new(&limit(), command, None).as_bytes(),
                expected,
                "{command:?}"
            );
        }
    }

    #[test]
    fn a_header_is_sent_only_where_there_is_something_to_say() {
        let step = Step::new(limit(), LimitBlob::new(&limit()), Command::Peek);
        assert_eq!(encode(&[step, step], Header::default()).len(), 4);
        assert_eq!(Header::default().at(NOW_MAX_US + 1), None);

        let at = Header::default().at(5).unwrap();
        assert_eq!(encode(&[step], at)[2], doubles(&[5.0, 0.0]));
        let operation = Header::default().with_operation(250);
        assert!(operation.has_operation() && !at.has_operation());
        assert_eq!(encode(&[step], operation)[2], doubles(&[-1.0, 250.0]));
        assert_eq!(
            Header::default().with_operation(0).encode().unwrap()[..],
            doubles(&[-1.0, 1.0])
        );
    }

    #[test]
    fn a_reply_becomes_the_decision_that_the_core_would_have_made() {
        let command = Command::Take { n: 30 };
        let expected = limit().apply(None, command, 77);
        let bytes = reply(77.0, 1, &[0.0, 3e6, 77.0]);
        let step = Step::new(limit(), LimitBlob::new(&limit()), command);
        assert_eq!(decode_one(&step, &bytes), Ok(expected));

        let decoded = decode(&[step], &bytes).unwrap();
        assert_eq!(decoded.now_us, 77);
        assert_eq!(decoded.decisions, [expected]);
    }

    #[test]
    fn a_reply_that_cannot_be_is_an_error() {
        let take = Command::Take { n: 30 };
        let decode = |command, bytes: &[u8]| decode_one(&step(command), bytes);

        let good = reply(77.0, 1, &[0.0, 3e6, 77.0]);
        for cut in 0..good.len() {
            assert!(matches!(
                decode(take, &good[..cut]),
                Err(ReplyError::Length { expected: 33, .. })
            ));
        }
        let long = [good.clone(), vec![0]].concat();
        assert!(matches!(
            decode(take, &long),
            Err(ReplyError::Length { .. })
        ));

        for bad in [f64::NAN, f64::INFINITY, -1.0, 0.5, 9_007_199_254_740_994.0] {
            for place in 0..4 {
                let mut numbers = [77.0, 0.0, 3e6, 77.0];
                numbers[place] = bad;
                let bytes = reply(numbers[0], 1, &numbers[1..]);
                assert_eq!(decode(take, &bytes), Err(ReplyError::NotWhole), "{bad}");
            }
        }
        for (verdict, numbers) in [(4, &[0.0, 3e6, 77.0][..]), (6, &[0.0, 3e6, 77.0, 1.0])] {
            assert_eq!(
                decode(take, &reply(77.0, verdict, numbers)),
                Err(ReplyError::NotVerdict { found: verdict })
            );
        }
        // More is held than the script counts.
        assert_eq!(
            decode(take, &reply(77.0, 3, &[0.0, 3e6, 77.0, 9e15])),
            Err(ReplyError::Impossible)
        );
        for (command, passed, before, after) in [
            (take, 1, 1.3e7, 0.0),
            (take, 1, 0.0, 1.3e7),
            // Refused, although there was enough.
            (take, 0, 7e6, 7e6),
            (Command::TakeUpTo { n: 5 }, 0, 9.9e6, 9.9e6),
            (Command::TakeUpTo { n: 0 }, 0, 1e7, 1e7),
            // Refused, but changed.
            (take, 0, 9e6, 9.1e6),
            // Never refused.
            (Command::Peek, 0, 1e7, 1e7),
            (Command::Charge { n: 1 }, 0, 1e7, 1e7),
        ] {
            let bytes = reply(77.0, passed, &[before, after, 77.0]);
            assert_eq!(
                decode(command, &bytes),
                Err(ReplyError::Impossible),
                "{command:?} {passed} {before} {after}"
            );
        }
    }

    #[test]
    fn whatever_answers_nothing_panics() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..33).map(|_| random.u8(..)).collect();
            bytes[8] %= 2;
            for place in [0, 9, 17, 25] {
                if random.u8(..8) > 0 {
                    let number = f64::from(random.u32(..)) * f64::from(random.u32(..1 << 21));
                    bytes[place..place + 8].copy_from_slice(&number.to_le_bytes());
                }
            }
            let command = Command::Take { n: random.u64(..) };
            if let Ok(decision) = decode_one(&step(command), &bytes) {
                let _ = (decision.wait(), decision.full_after_us(), decision.level());
                let _ = (decision.level_before(), decision.moved(), decision.state());
            }
            let _ = decode_stored(&bytes);
            let _ = decode_bucket(&bytes, 0);
        }
    }

    #[test]
    fn a_stored_bucket_is_its_limit_and_its_state() {
        let blob = LimitBlob::new(&limit());
        let stored = [blob.as_bytes().to_vec(), doubles(&[3e6, 77.0])].concat();
        let state = State::new(3_000_000, 77);
        let expected = Stored {
            limit: blob,
            state: Some(state),
            held: Vec::new(),
        };
        assert_eq!(decode_stored(&stored), Ok(expected));
        assert_eq!(decode_bucket(&stored, 77), Some((limit(), Some(state), 0)));
        assert_eq!(
            decode_bucket(&[&stored[..13], &stored[5..]].concat(), 77),
            None
        );
        for (at, bad) in [(0, b'x'), (4, 3), (4, 9), (5, 7)] {
            let mut bytes = stored.clone();
            bytes[at] = bad;
            assert_eq!(decode_bucket(&bytes, 77), None, "byte {at}");
        }
        assert!(decode_stored(&stored[1..]).is_err());
        assert!(decode_stored(b"").is_err());
    }

    #[test]
    fn what_is_held_follows_the_state_and_is_charged_when_it_expires() {
        let blob = LimitBlob::new(&limit());
        let record = |id: u8, on_expiry: u8, tokens: f64, expires: f64| {
            [vec![id; 8], vec![on_expiry], doubles(&[tokens, expires])].concat()
        };
        let records = [record(1, 0, 5.0, 1e6), record(2, 1, 7.0, 1e6)].concat();
        let stored = [blob.as_bytes().to_vec(), doubles(&[0.0, 0.0]), records].concat();
        let decoded = decode_stored(&stored).unwrap();
        assert_eq!(decoded.state, None, "the bucket is full");
        assert_eq!(decoded.held.len(), 2);
        assert_eq!(decode_bucket(&stored, 999_999), Some((limit(), None, 12)));
        let (_, state, held) = decode_bucket(&stored, 1_000_000).unwrap();
        assert_eq!((state, held), (Some(State::new(500_000, 1_000_000)), 0));
        assert!(decode_stored(&stored[..stored.len() - 1]).is_err());
    }
}
