//! The fields of one limit, made ready once and filled in for each answer.
//!
//! Putting a field into a header map means hashing its name letter by letter, and five of them
//! cost more than the decision they tell of. So a map with all of them is made when the limit is
//! known, and each answer gets a copy of it with the values filled in; what the answer has of its
//! own, mostly little and under names that hash at once, is put into that copy.

use std::mem;

use ::http::header::Entry;
use ::http::{HeaderMap, HeaderValue};

use super::encode::{FieldBuffer, integer, push_integer, seconds_up};
use super::values::FieldValues;
use super::write::{HeaderOptions, RATE_LIMIT_POLICY, RATE_LIMIT, X_LIMIT, X_REMAINING, X_RESET, value};

/// With more fields of its own than this an answer keeps its map, and ours are put into that.
const OWN_FIELDS_MAX: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct HeaderTemplate {
    options: HeaderOptions,
    /// The fields in the order in which [`fill`](HeaderTemplate::fill) goes through them.
    template: HeaderMap,
    /// `RateLimit` up to the number that remains.
    standing: FieldBuffer,
}

impl HeaderTemplate {
    /// `name` is a structured field's string, quotes included.
    pub(super) fn new(
        options: HeaderOptions,
        name: &[u8],
        capacity: &HeaderValue,
        policy: &HeaderValue,
    ) -> Self {
        let to_come = HeaderValue::from_static("");
        // Room for what the answers have of their own.
        let mut template = HeaderMap::with_capacity(10);
        if options.has_x() {
            template.insert(X_LIMIT, capacity.clone());
            template.insert(X_REMAINING, to_come.clone());
            template.insert(X_RESET, to_come.clone());
        }
        if options.has_ietf() {
            template.insert(RATE_LIMIT_POLICY, policy.clone());
            template.insert(RATE_LIMIT, to_come);
        }
        let mut standing = FieldBuffer::new();
        standing.push(name);
        standing.push(b";r=");
        Self {
            options,
            template,
            standing,
        }
    }

    /// Fields that are there already are replaced. `reset_s` is how `X-RateLimit-Reset` tells it.
    pub(super) fn write(&self, headers: &mut HeaderMap, values: &FieldValues, reset_s: u64) {
        let ours = self.fill(values, reset_s);
        if headers.is_empty() {
            *headers = ours;
            return;
        }
        let is_one_of_each = headers.len() == headers.keys_len();
        if !is_one_of_each || headers.len() > OWN_FIELDS_MAX {
            headers.extend(ours);
            return;
        }
        let own = mem::replace(headers, ours);
        for (name, value) in own {
            // What is ours already stays.
            if let Some(name) = name
                && let Entry::Vacant(vacant) = headers.entry(name)
            {
                vacant.insert(value);
            }
        }
    }

    fn fill(&self, values: &FieldValues, reset_s: u64) -> HeaderMap {
        let mut filled = self.template.clone();
        let mut values = filled.values_mut();
        let mut put = |skipped: usize, value| {
            if let Some(place) = values.nth(skipped) {
                *place = value;
            }
        };
        if self.options.has_x() {
            put(1, integer(values.remaining));
            put(0, integer(reset_s));
        }
        if self.options.has_ietf() {
            let mut text = self.standing.clone();
            push_integer(&mut text, values.remaining);
            text.push(b";t=");
            push_integer(&mut text, seconds_up(values.effective_us));
            put(1, value(text.as_bytes()));
        }
        filled
    }
}
