//! A header writer for limits that are known in advance.

use std::time::SystemTime;

use ::http::HeaderMap;
use balde_core::Limit;
use smallvec::SmallVec;

use super::options::HeaderOptions;
#[cfg(feature = "tower")]
use super::options::ResetFormat;
use super::template::{FieldValues, HeaderTemplate};
use super::writer::{EncodedLimit, HeaderWriter};
use crate::decision::Decision;

impl HeaderOptions {
    /// Prepares [`write`](HeaderOptions::write) for limits that are known in advance: what is the
    /// same for all responses is encoded once.
    pub(crate) fn writer<'a>(
        self,
        limits: impl IntoIterator<Item = (&'a str, Limit)>,
    ) -> PreparedWriter {
        let writer = HeaderWriter::new(self, limits);
        let all: Vec<&EncodedLimit> = writer.limits.iter().collect();
        let (mut alone, mut together) = (Vec::new(), None);
        if !self.is_empty() {
            let one = |limit: &&EncodedLimit| HeaderTemplate::new(self, &[*limit]);
            alone = all.iter().map(one).collect();
            together = (all.len() > 1).then(|| HeaderTemplate::new(self, &all));
        }
        PreparedWriter {
            writer,
            alone,
            together,
        }
    }
}

/// Writes the header fields for decisions on limits that were known in advance; made by
/// [`HeaderOptions::writer`].
#[derive(Clone, Debug)]
pub(crate) struct PreparedWriter {
    writer: HeaderWriter,
    /// For each limit, the fields of a response that only this limit applied to. Empty if there is
    /// no field to write.
    alone: Vec<HeaderTemplate>,
    /// The fields of a response that all of several limits applied to.
    together: Option<HeaderTemplate>,
}

impl PreparedWriter {
    /// Writes the same fields as [`HeaderOptions::write`], for one decision on each of some limits,
    /// which are given by their indices in ascending order.
    pub(crate) fn write(
        &self,
        headers: &mut HeaderMap,
        limits: &[usize],
        decisions: &[Decision],
        now: SystemTime,
    ) {
        if let (&[limit], [only]) = (limits, decisions) {
            if let Some(values) = self.values(limit, only) {
                return self.write_values(headers, limit, &values, now);
            }
        } else if let Some(template) = &self.together
            && limits.len() == self.writer.limits.len()
        {
            let values: Option<SmallVec<[FieldValues; 4]>> = decisions
                .iter()
                .enumerate()
                .map(|(limit, decision)| self.values(limit, decision))
                .collect();
            if let Some(values) = values {
                let shown = (0..values.len()).min_by_key(|index| values[*index].remaining());
                let shown = shown.unwrap_or(0);
                let capacity = &self.writer.limits[shown].capacity;
                let reset_s = self.writer.reset_s(values[shown].reset_us(), now);
                return template.write(headers, &values, shown, capacity, reset_s);
            }
        }
        self.writer.write(headers, limits, decisions, now);
    }

    /// The values that [`write_values`](PreparedWriter::write_values) fills in. `None` if a template
    /// cannot express the decision: a refusal, a limit that was replaced, or no bucket behind the
    /// decision; or if there is no field to write.
    #[inline]
    pub(crate) fn values(&self, limit: usize, decision: &Decision) -> Option<FieldValues> {
        let fits_template = !self.alone.is_empty()
            && decision.is_allowed()
            && decision.has_bucket()
            && self.writer.limits[limit].limit == *decision.limit();
        fits_template.then(|| FieldValues::new(*decision))
    }

    /// Writes the fields of a decision that [`values`](PreparedWriter::values) accepted, for a
    /// response that only this limit applied to.
    pub(crate) fn write_values(
        &self,
        headers: &mut HeaderMap,
        limit: usize,
        values: &FieldValues,
        now: SystemTime,
    ) {
        let reset_s = self.writer.reset_s(values.reset_us(), now);
        let capacity = &self.writer.limits[limit].capacity;
        self.alone[limit].write(headers, &[*values], 0, capacity, reset_s);
    }

    /// Returns true if a field depends on the time of day.
    #[cfg(feature = "tower")]
    pub(crate) fn needs_time(&self) -> bool {
        let options = self.writer.options;
        options.has_x() && options.reset_format() == ResetFormat::UnixTime
    }
}
