//! Writes XML documents in DICT's format.

/// The XML declaration of every document.
const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\" ?>\n";

/// Appends elements to a document and escapes their text.
#[derive(Clone, Debug, Default)]
pub struct Writer(String);

impl Writer {
    /// Starts a document. `bytes` is the capacity to reserve.
    pub fn document(bytes: usize) -> Self {
        let mut text = String::with_capacity(bytes);
        text.push_str(DECLARATION);
        Self(text)
    }

    /// Starts a fragment of a document.
    pub fn fragment() -> Self {
        Self::default()
    }

    /// Appends a start tag.
    pub fn open(&mut self, name: &str) -> &mut Self {
        self.0.push('<');
        self.0.push_str(name);
        self.0.push('>');
        self
    }

    /// Appends an end tag.
    pub fn close(&mut self, name: &str) -> &mut Self {
        self.0.push_str("</");
        self.0.push_str(name);
        self.0.push('>');
        self
    }

    /// Appends an element with its text, which is escaped.
    pub fn element(&mut self, name: &str, text: &str) -> &mut Self {
        self.open(name).text(text).close(name)
    }

    /// Appends an element if there is a text for it.
    pub fn optional(&mut self, name: &str, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.element(name, text),
            None => self,
        }
    }

    /// Appends an element whose content `inside` writes.
    pub fn within(&mut self, name: &str, inside: impl FnOnce(&mut Self)) -> &mut Self {
        self.open(name);
        inside(self);
        self.close(name)
    }

    /// Appends escaped text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        escape(text, &mut self.0);
        self
    }

    /// Appends text that is XML already.
    pub fn raw(&mut self, xml: &str) -> &mut Self {
        self.0.push_str(xml);
        self
    }

    /// Returns what was written.
    pub fn finish(self) -> String {
        self.0
    }
}

fn escape(text: &str, out: &mut String) {
    let mut plain = 0;
    for (at, character) in text.char_indices() {
        let replacement = match character {
            '<' => "&lt;",
            '>' => "&gt;",
            '&' => "&amp;",
            '"' => "&quot;",
            '\'' => "&apos;",
            // XML 1.0 cannot represent other control characters.
            '\t' | '\n' | '\r' => continue,
            '\u{fffe}' | '\u{ffff}' => "\u{fffd}",
            character if character.is_control() && character < ' ' => "\u{fffd}",
            _ => continue,
        };
        out.push_str(&text[plain..at]);
        out.push_str(replacement);
        plain = at + character.len_utf8();
    }
    out.push_str(&text[plain..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Element;

    #[test]
    fn written_text_parses_back_unchanged() {
        for text in ["", "João & Maria <\"'>", "a\tb", "]]>", "&lt;"] {
            let mut writer = Writer::document(0);
            writer.element("a", text);
            let document = writer.finish();
            let read = Element::read(document.as_bytes()).unwrap();
            assert_eq!(read.text(), text, "{document}");
        }
    }

    #[test]
    fn characters_that_xml_cannot_represent_are_replaced() {
        let mut writer = Writer::fragment();
        writer.element("a", "x\u{0}\u{1b}y");
        assert_eq!(writer.finish(), "<a>x\u{fffd}\u{fffd}y</a>");
    }
}
