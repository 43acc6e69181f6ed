//! A header writer for limits that are known in advance.

use std::time::SystemTime;

use ::http::HeaderMap;
use balde_core::Limit;

use super::options::HeaderOptions;
#[cfg(feature = "tower")]
use super::options::ResetFormat;
use super::template::{FieldValues, HeaderTemplate};
use super::writer::HeaderWriter;
use crate::decision::Decision;

impl HeaderOptions {
    /// Prepares [`write`](HeaderOptions::write) for limits that are known in advance: what is the
    /// same for all responses is encoded once.
    pub(crate) fn writer<'a>(
        &self,
        limits: impl IntoIterator<Item = (&'a str, Limit)>,
    ) -> PreparedWriter {
        let writer = HeaderWriter::new(*self, limits);
        let template = match &*writer.limits {
            [only] if !self.is_empty() => Some(HeaderTemplate::new(*self, only, &writer.policy)),
            _ => None,
        };
        PreparedWriter { writer, template }
    }
}

/// Writes the header fields for decisions on limits that were known in advance; made by
/// [`HeaderOptions::writer`].
#[derive(Clone, Debug)]
pub(crate) struct PreparedWriter {
    writer: HeaderWriter,
    /// Present if there is exactly one limit and at least one field to write.
    template: Option<HeaderTemplate>,
}

impl PreparedWriter {
    /// Writes the same fields as [`HeaderOptions::write`], for one decision per limit and in the
    /// same order.
    pub(crate) fn write(&self, headers: &mut HeaderMap, decisions: &[Decision], now: SystemTime) {
        if let [only] = decisions
            && let Some(values) = self.values(only)
        {
            self.write_values(headers, &values, now);
        } else {
            self.writer.write(headers, decisions, now);
        }
    }

    /// The values that [`write_values`](PreparedWriter::write_values) fills in. `None` if the
    /// template cannot express the decision: a refusal, several limits, a limit that was replaced,
    /// or no bucket behind the decision.
    #[inline]
    pub(crate) fn values(&self, decision: &Decision) -> Option<FieldValues> {
        let [only] = &*self.writer.limits else {
            return None;
        };
        let fits_template = self.template.is_some()
            && decision.is_allowed()
            && decision.has_bucket()
            && only.limit == *decision.limit();
        fits_template.then(|| FieldValues::new(*decision))
    }

    /// Writes the fields of a decision that [`values`](PreparedWriter::values) accepted.
    pub(crate) fn write_values(
        &self,
        headers: &mut HeaderMap,
        values: &FieldValues,
        now: SystemTime,
    ) {
        if let Some(template) = &self.template {
            let reset_s = self.writer.reset_s(values.reset_us(), now);
            template.write(headers, values, reset_s);
        }
    }

    /// Returns true if a field depends on the time of day.
    #[cfg(feature = "tower")]
    pub(crate) fn needs_time(&self) -> bool {
        let options = self.writer.options;
        options.has_x() && options.reset_format() == ResetFormat::UnixTime
    }
}
