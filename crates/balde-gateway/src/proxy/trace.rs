//! `traceparent` (W3C Trace Context): the trace of a request, for log lines. The field itself is passed on
//! unchanged, because the gateway exports no spans that could be a parent.

use http::header::{HeaderMap, HeaderName};

pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The trace that a request belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trace {
    id: String,
    span_id: String,
}

impl Trace {
    /// The trace of a request; `None` if it has none, or an invalid one.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let text = values.next()?.to_str().ok()?;
        if values.next().is_some() {
            return None;
        }
        let mut parts = text.trim().split('-');
        let [version, trace_id, parent, flags] =
            [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
        let is_hex = |text: &str, length: usize| {
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            text.len() == length && text.bytes().all(is_digit)
        };
        let is_zero = |text: &str| text.bytes().all(|byte| byte == b'0');
        let is_valid = is_hex(version, 2)
            && version != "ff"
            && (version != "00" || parts.next().is_none())
            && is_hex(trace_id, 32)
            && !is_zero(trace_id)
            && is_hex(parent, 16)
            && !is_zero(parent)
            && is_hex(flags, 2);
        is_valid.then(|| Self {
            id: trace_id.to_owned(),
            span_id: parent.to_owned(),
        })
    }

    pub(super) fn trace_id(&self) -> &str {
        &self.id
    }

    /// The span of the caller.
    pub(super) fn span_id(&self) -> &str {
        &self.span_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(text: &str) -> Option<Trace> {
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, text.parse().unwrap());
        Trace::of(&headers)
    }

    #[test]
    fn a_valid_trace_is_read() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let trace = trace(text).unwrap();
        assert_eq!(trace.trace_id(), &text[3..35]);
        assert_eq!(trace.span_id(), &text[36..52]);
    }

    #[test]
    fn an_invalid_one_does_not() {
        for text in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(trace(text), None, "{text}");
        }
    }
}
