//! A request that was understood: who asks, for whom, and on which buckets it draws.

use std::borrow::Cow;
use std::fmt;

use super::{Fault, KeyType, Operation, PayerKind};

/// The most buckets one request draws on.
pub const DRAWS_MAX: usize = 8;

/// The longest key of a bucket: a participant, a slash and a payer, and room for a constant.
const KEY_BYTES_MAX: usize = 62;

/// A request that was understood, or as much of it as could be.
///
/// Where something is wrong with it there is a [`fault`](Call::fault), and the buckets are those that
/// can still be told: a list that lacks a parameter still counts for its participant.
pub struct Call<'r> {
    pub(super) operation: Operation,
    pub(super) participant: Option<Cow<'r, str>>,
    pub(super) payer: Option<(&'r str, PayerKind)>,
    pub(super) end_to_end_id: Option<&'r str>,
    pub(super) key: Option<(Cow<'r, str>, KeyType)>,
    pub(super) fault: Option<Fault>,
    pub(super) draws: Draws,
}

impl Call<'_> {
    /// The operation.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The participant that is asking.
    pub fn participant(&self) -> Option<&str> {
        self.participant.as_deref()
    }

    /// For whom a getEntry asks.
    pub fn payer(&self) -> Option<&str> {
        self.payer.map(|(payer, _)| payer)
    }

    /// Whether that is a person or a company.
    pub fn payer_kind(&self) -> Option<PayerKind> {
        self.payer.map(|(_, kind)| kind)
    }

    /// For which payment a getEntry asks.
    pub fn end_to_end_id(&self) -> Option<&str> {
        self.end_to_end_id
    }

    /// The Pix key in the path, decoded once.
    pub fn key(&self) -> Option<&str> {
        self.key.as_ref().map(|(key, _)| &**key)
    }

    /// The type of that key.
    pub fn key_type(&self) -> Option<KeyType> {
        self.key.as_ref().map(|(_, key_type)| *key_type)
    }

    /// What is wrong with the request: the first thing that DICT would find.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// The buckets it draws on, in the order of the profile's policies.
    pub fn draws(&self) -> &[Draw] {
        self.draws.as_slice()
    }
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Payer and key are persons' data, which do not belong into logs.
        f.debug_struct("Call")
            .field("operation", &self.operation.as_str())
            .field("fault", &self.fault)
            .field("draws", &self.draws())
            .finish_non_exhaustive()
    }
}

/// One bucket: a policy of the table, and a key within it.
#[derive(Clone, Copy)]
pub struct Draw {
    policy: u16,
    payer_kind: Option<PayerKind>,
    key: BucketKey,
}

impl Draw {
    pub(super) fn new(policy: usize, payer_kind: Option<PayerKind>, key: BucketKey) -> Self {
        let policy = u16::try_from(policy).expect("a profile has at most 256 policies");
        Self {
            policy,
            payer_kind,
            key,
        }
    }

    /// The policy's index in the profile.
    pub fn policy(&self) -> usize {
        usize::from(self.policy)
    }

    /// The bucket's key within the policy: `12345678`, or `12345678/11122233300`.
    pub fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    /// The payer's kind, where the bucket is a payer's.
    pub fn payer_kind(&self) -> Option<PayerKind> {
        self.payer_kind
    }
}

impl fmt::Debug for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key may have somebody's tax number in it.
        f.debug_struct("Draw")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// A bucket's key without an allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BucketKey {
    bytes: [u8; KEY_BYTES_MAX],
    len: u8,
}

impl BucketKey {
    pub(super) const EMPTY: Self = Self {
        bytes: [0; KEY_BYTES_MAX],
        len: 0,
    };

    /// The key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Appends a part, with a slash before all but the first. Nothing when there is no room.
    pub(super) fn with(mut self, part: &str) -> Option<Self> {
        let start = usize::from(self.len);
        let slash = usize::from(start > 0);
        let end = start + slash + part.len();
        let room = self.bytes.get_mut(start..end)?;
        if slash == 1 {
            room[0] = b'/';
        }
        room[slash..].copy_from_slice(part.as_bytes());
        self.len = u8::try_from(end).ok()?;
        Some(self)
    }
}

/// A few buckets without an allocation.
#[derive(Clone, Copy)]
pub(super) struct Draws {
    list: [Draw; DRAWS_MAX],
    len: usize,
}

impl Draws {
    pub(super) fn new() -> Self {
        let none = Draw {
            policy: 0,
            payer_kind: None,
            key: BucketKey::EMPTY,
        };
        Self {
            list: [none; DRAWS_MAX],
            len: 0,
        }
    }

    pub(super) fn push(&mut self, draw: Draw) {
        if let Some(place) = self.list.get_mut(self.len) {
            *place = draw;
            self.len += 1;
        }
    }

    fn as_slice(&self) -> &[Draw] {
        &self.list[..self.len]
    }
}
