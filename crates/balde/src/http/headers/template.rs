//! The header fields of one or several limits, encoded once and filled in for each response.
//!
//! Inserting a field into a header map hashes its name byte by byte, and five insertions cost more
//! than the decision. So the template is a map that already contains all fields. Each response gets a
//! copy of it with the values filled in, and the response's own fields, usually few and with standard
//! names that hash quickly, are moved into that copy.

use std::mem;

use ::http::header::Entry;
use ::http::{HeaderMap, HeaderValue};

use super::encode::{FieldBuffer, header_value, integer, push_integer, seconds_up};
use super::options::HeaderOptions;
use super::times::{effective_us, reset_us};
use super::writer::{
    EncodedLimit, RATE_LIMIT, RATE_LIMIT_POLICY, X_LIMIT, X_REMAINING, X_RESET, policy_value,
};
use crate::decision::Decision;

/// A response with more fields than this keeps its map, and ours are inserted into it.
const OWN_FIELDS_MAX: usize = 8;

/// The values that differ between responses. Small, because the response future carries them until
/// the inner service has answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldValues {
    remaining: u64,
    reset_us: u64,
    effective_us: u64,
}

impl FieldValues {
    /// Takes the decision by value, so that callers which do not get here need not keep it in
    /// memory.
    pub(super) fn new(decision: Decision) -> Self {
        Self {
            remaining: decision.remaining(),
            reset_us: reset_us(&decision),
            effective_us: effective_us(&decision),
        }
    }

    pub(super) fn remaining(&self) -> u64 {
        self.remaining
    }

    pub(super) fn reset_us(&self) -> u64 {
        self.reset_us
    }
}

#[derive(Clone, Debug)]
pub(super) struct HeaderTemplate {
    options: HeaderOptions,
    /// The fields in the order in which [`fill`](HeaderTemplate::fill) visits them.
    fields: HeaderMap,
    /// For each limit, what precedes its remaining tokens in the value of `RateLimit`.
    members: Vec<Box<[u8]>>,
}

impl HeaderTemplate {
    pub(super) fn new(options: HeaderOptions, limits: &[&EncodedLimit]) -> Self {
        let placeholder = HeaderValue::from_static("");
        // With capacity for the response's own fields.
        let mut fields = HeaderMap::with_capacity(10);
        if options.has_x() {
            let capacity = match limits {
                [only] => only.capacity.clone(),
                _ => placeholder.clone(),
            };
            fields.insert(X_LIMIT, capacity);
            fields.insert(X_REMAINING, placeholder.clone());
            fields.insert(X_RESET, placeholder.clone());
        }
        if options.has_ietf() {
            let policy = policy_value(limits.iter().map(|one| (&*one.name, &one.limit)));
            fields.insert(RATE_LIMIT_POLICY, policy);
            fields.insert(RATE_LIMIT, placeholder);
        }
        let member = |(index, limit): (usize, &&EncodedLimit)| {
            let separator = if index == 0 { "" } else { ", " };
            let parts: [&[u8]; 3] = [separator.as_bytes(), &limit.name, b";r="];
            parts.concat().into_boxed_slice()
        };
        Self {
            options,
            fields,
            members: limits.iter().enumerate().map(member).collect(),
        }
    }

    /// Writes the fields for one value of each limit, and replaces those that `headers` already
    /// contains. `X-RateLimit-*` report the limit with this index and capacity, and `reset_s`.
    pub(super) fn write(
        &self,
        headers: &mut HeaderMap,
        values: &[FieldValues],
        shown: usize,
        capacity: &HeaderValue,
        reset_s: u64,
    ) {
        let filled = self.fill(values, shown, capacity, reset_s);
        if headers.is_empty() {
            *headers = filled;
            return;
        }
        let has_repeated_names = headers.len() != headers.keys_len();
        if has_repeated_names || headers.len() > OWN_FIELDS_MAX {
            headers.extend(filled);
            return;
        }
        let own = mem::replace(headers, filled);
        for (name, value) in own {
            // A field that the template has written wins.
            if let Some(name) = name
                && let Entry::Vacant(vacant) = headers.entry(name)
            {
                vacant.insert(value);
            }
        }
    }

    fn fill(
        &self,
        values: &[FieldValues],
        shown: usize,
        capacity: &HeaderValue,
        reset_s: u64,
    ) -> HeaderMap {
        let mut filled = self.fields.clone();
        let mut slots = filled.values_mut();
        let mut fill = |skipped: usize, value| {
            if let Some(slot) = slots.nth(skipped) {
                *slot = value;
            }
        };
        if self.options.has_x() {
            let mut skipped = 1;
            if self.members.len() > 1 {
                fill(0, capacity.clone());
                skipped = 0;
            }
            fill(skipped, integer(values[shown].remaining));
            fill(0, integer(reset_s));
        }
        if self.options.has_ietf() {
            let mut text = FieldBuffer::new();
            for (member, values) in self.members.iter().zip(values) {
                text.push(member);
                push_integer(&mut text, values.remaining);
                text.push(b";t=");
                push_integer(&mut text, seconds_up(values.effective_us));
            }
            fill(1, header_value(text.as_bytes()));
        }
        filled
    }
}
