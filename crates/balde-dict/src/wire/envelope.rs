//! What every answer of DICT has around it: a signature, the time and a correlation id.

use super::time::Moment;
use super::writer::Writer;

/// Where a signer puts the signature.
pub(crate) const SIGNATURE_PLACE: &str = "<Signature></Signature>";

/// The time and the correlation id of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    time: [u8; 24],
    correlation: [u8; 32],
}

impl Head {
    pub(crate) fn new(time: Moment, correlation: [u8; 16]) -> Self {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        for (pair, byte) in text.chunks_exact_mut(2).zip(correlation) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
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

/// An answer being written.
pub(crate) struct Envelope {
    name: &'static str,
    xml: Writer,
}

impl Envelope {
    /// Most answers have the time before the correlation id.
    pub(crate) fn new(name: &'static str, head: &Head, bytes: usize) -> Self {
        let mut xml = Writer::document(bytes);
        xml.open(name).raw(SIGNATURE_PLACE);
        xml.raw("<ResponseTime>")
            .raw(head.time())
            .raw("</ResponseTime>");
        xml.raw("<CorrelationId>")
            .raw(head.correlation_id())
            .raw("</CorrelationId>");
        Self { name, xml }
    }

    /// Those about policies have it after.
    pub(crate) fn correlation_first(name: &'static str, head: &Head, bytes: usize) -> Self {
        let mut xml = Writer::document(bytes);
        xml.open(name).raw(SIGNATURE_PLACE);
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
