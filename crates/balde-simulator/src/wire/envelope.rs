//! The envelope of every DICT response: signature, time and correlation id.

use balde_dict::wire::{Timestamp, Writer};

/// The empty signature, which a signer replaces.
pub(crate) const EMPTY_SIGNATURE: &str = "<Signature></Signature>";

/// The time and the correlation id of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseHead {
    time: [u8; 24],
    correlation: [u8; 32],
}

impl ResponseHead {
    pub(crate) fn new(time: Timestamp, correlation: [u8; 16]) -> Self {
        let mut text = [0; 32];
        let _sizes_match = hex::encode_to_slice(correlation, &mut text);
        Self {
            time: time.to_text(),
            correlation: text,
        }
    }

    pub(crate) fn correlation_id(&self) -> &str {
        std::str::from_utf8(&self.correlation).unwrap_or_default()
    }

    fn time(&self) -> &str {
        std::str::from_utf8(&self.time).unwrap_or_default()
    }
}

/// Writes one response document.
pub(crate) struct Envelope {
    name: &'static str,
    xml: Writer,
}

impl Envelope {
    /// Starts a response. In most responses the time comes before the correlation id.
    pub(crate) fn new(name: &'static str, head: &ResponseHead, bytes: usize) -> Self {
        let mut xml = Writer::document(bytes);
        xml.open(name).raw(EMPTY_SIGNATURE);
        xml.raw("<ResponseTime>")
            .raw(head.time())
            .raw("</ResponseTime>");
        xml.raw("<CorrelationId>")
            .raw(head.correlation_id())
            .raw("</CorrelationId>");
        Self { name, xml }
    }

    /// Starts a response with the correlation id before the time, as those about policies have it.
    pub(crate) fn correlation_first(name: &'static str, head: &ResponseHead, bytes: usize) -> Self {
        let mut xml = Writer::document(bytes);
        xml.open(name).raw(EMPTY_SIGNATURE);
        xml.raw("<CorrelationId>")
            .raw(head.correlation_id())
            .raw("</CorrelationId>");
        xml.raw("<ResponseTime>")
            .raw(head.time())
            .raw("</ResponseTime>");
        Self { name, xml }
    }

    pub(crate) fn xml(&mut self) -> &mut Writer {
        &mut self.xml
    }

    pub(crate) fn finish(mut self) -> String {
        self.xml.close(self.name);
        self.xml.finish()
    }
}
