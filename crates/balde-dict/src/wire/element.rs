//! XML documents, parsed into a tree within limits on size, depth and number of elements.

use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesRef, BytesStart, Event};
use thiserror::Error;

/// The longest document that is parsed, in bytes. A list of 200 claims has about 200 kB.
pub const XML_BYTES_MAX: usize = 1 << 20;

/// How deep elements may be nested. DICT's messages need 5 levels, a signature 8.
pub const XML_DEPTH_MAX: usize = 24;

/// The most elements in a document.
const XML_ELEMENTS_MAX: usize = 20_000;

/// The most attributes of an element.
const XML_ATTRIBUTES_MAX: usize = 32;

/// An XML element with its text and children. Namespace prefixes are dropped: clients choose theirs,
/// and no two elements of DICT differ only by namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    text: String,
    children: Vec<Self>,
    position: XmlPosition,
}

/// A position in a document. Lines and columns are counted from one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XmlPosition {
    /// The line number.
    pub line: usize,
    /// The number of the character within the line.
    pub column: usize,
}

impl Element {
    /// Parses a whole document. DOCTYPE declarations and custom entities are rejected.
    pub fn read(document: &[u8]) -> Result<Self, XmlError> {
        if document.len() > XML_BYTES_MAX {
            return Err(XmlError::new(
                XmlErrorKind::TooLong {
                    bytes: document.len(),
                },
                XmlPosition::default(),
            ));
        }
        let text = std::str::from_utf8(document).map_err(|error| {
            let position = Positions::new(document).at(error.valid_up_to());
            XmlError::new(XmlErrorKind::NotUtf8, position)
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        TreeBuilder::default().build(text)
    }

    /// The name, without its namespace prefix.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The element's own text, without surrounding white space.
    pub fn text(&self) -> &str {
        self.text.trim()
    }

    /// The value of an attribute, or `None` if the element has no such attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The child elements.
    pub fn children(&self) -> &[Self] {
        &self.children
    }

    /// The first child element with this name.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The descendant at a path such as `Entry/Account/Participant`.
    pub fn at(&self, path: &str) -> Option<&Self> {
        path.split('/')
            .try_fold(self, |element, name| element.child(name))
    }

    /// Returns true if another element has the same name, attributes, text and children, wherever the
    /// two are in their documents.
    pub fn has_content_of(&self, other: &Self) -> bool {
        self.name == other.name
            && self.attributes == other.attributes
            && self.text() == other.text()
            && self.children.len() == other.children.len()
            && self
                .children
                .iter()
                .zip(&other.children)
                .all(|(own, other)| own.has_content_of(other))
    }

    /// The position of its start tag.
    pub fn position(&self) -> XmlPosition {
        self.position
    }
}

/// Builds the tree. `open` holds the elements whose end tag has not been read, the root first.
#[derive(Default)]
struct TreeBuilder {
    open: Vec<Element>,
    root: Option<Element>,
    elements: usize,
}

impl TreeBuilder {
    fn build(mut self, text: &str) -> Result<Element, XmlError> {
        let mut reader = Reader::from_str(text);
        reader.config_mut().enable_all_checks(true);
        let mut positions = Positions::new(text.as_bytes());
        loop {
            let before = offset(reader.buffer_position());
            let event = reader.read_event().map_err(|error| {
                let at = offset(reader.error_position());
                let kind = XmlErrorKind::Malformed {
                    reason: without_content(&error),
                };
                XmlError::new(kind, positions.at(at))
            })?;
            let current = positions.at(before);
            let step = match event {
                Event::Start(start) => self.start(&start, current),
                Event::Empty(start) => self.start(&start, current).and_then(|()| self.end()),
                Event::End(_) => self.end(),
                Event::Text(text) => self.text(&text.xml10_content()),
                Event::CData(data) => self.text(&data.xml10_content()),
                Event::GeneralRef(reference) => self.reference(&reference),
                Event::DocType(_) => Err(XmlErrorKind::DocType),
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) => Ok(()),
                Event::Eof => break,
            };
            step.map_err(|kind| XmlError::new(kind, current))?;
        }
        let end = positions.at(text.len());
        match (self.open.pop(), self.root) {
            (Some(open), _) => Err(XmlError::new(
                XmlErrorKind::Unclosed { name: open.name },
                end,
            )),
            (None, None) => Err(XmlError::new(XmlErrorKind::Empty, end)),
            (None, Some(root)) => Ok(root),
        }
    }

    fn start(&mut self, start: &BytesStart<'_>, position: XmlPosition) -> Result<(), XmlErrorKind> {
        if self.root.is_some() && self.open.is_empty() {
            return Err(XmlErrorKind::SecondRoot);
        }
        if self.open.len() >= XML_DEPTH_MAX {
            return Err(XmlErrorKind::TooDeep);
        }
        self.elements += 1;
        if self.elements > XML_ELEMENTS_MAX {
            return Err(XmlErrorKind::TooManyElements);
        }
        let mut attributes = Vec::new();
        for attribute in start.attributes() {
            if attributes.len() == XML_ATTRIBUTES_MAX {
                return Err(XmlErrorKind::TooManyAttributes);
            }
            let attribute = attribute.map_err(|_| XmlErrorKind::Attribute)?;
            let value = attribute
                .normalized_value(XmlVersion::Explicit1_0)
                .map_err(|_| XmlErrorKind::Attribute)?;
            let name = attribute.key.local_name().as_ref().to_owned();
            attributes.push((name, value.into_owned()));
        }
        self.open.push(Element {
            name: start.local_name().as_ref().to_owned(),
            attributes,
            position,
            ..Element::default()
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), XmlErrorKind> {
        // The reader has checked that the end tag matches an open element.
        let Some(element) = self.open.pop() else {
            return Err(XmlErrorKind::Empty);
        };
        match self.open.last_mut() {
            Some(parent) => parent.children.push(element),
            None => self.root = Some(element),
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), XmlErrorKind> {
        match self.open.last_mut() {
            Some(element) => element.text.push_str(text),
            None if text.trim().is_empty() => {}
            None => return Err(XmlErrorKind::TextOutside),
        }
        Ok(())
    }

    /// Resolves XML's five predefined entities and character references. Others are rejected.
    fn reference(&mut self, reference: &BytesRef<'_>) -> Result<(), XmlErrorKind> {
        if let Some(character) = reference
            .resolve_char_ref()
            .map_err(|_| XmlErrorKind::Entity)?
        {
            return self.text(character.encode_utf8(&mut [0; 4]));
        }
        let text = match reference.xml10_content().as_ref() {
            "lt" => "<",
            "gt" => ">",
            "amp" => "&",
            "apos" => "'",
            "quot" => "\"",
            _ => return Err(XmlErrorKind::Entity),
        };
        self.text(text)
    }
}

/// Why a document cannot be parsed, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{kind}", prefix(*position))]
pub struct XmlError {
    kind: XmlErrorKind,
    position: XmlPosition,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
enum XmlErrorKind {
    #[error("the document has {bytes} bytes, more than {XML_BYTES_MAX}")]
    TooLong { bytes: usize },
    #[error("the document is not UTF-8")]
    NotUtf8,
    #[error("the document is not well-formed XML: {reason}")]
    Malformed { reason: String },
    #[error("a DOCTYPE is refused: DICT's messages have none, and entities are not expanded")]
    DocType,
    #[error(
        "an entity is refused: only lt, gt, amp, apos, quot and numeric character references are \
         allowed"
    )]
    Entity,
    #[error("elements are more than {XML_DEPTH_MAX} deep")]
    TooDeep,
    #[error("more than {XML_ELEMENTS_MAX} elements")]
    TooManyElements,
    #[error("more than {XML_ATTRIBUTES_MAX} attributes on one element")]
    TooManyAttributes,
    #[error("an attribute cannot be read")]
    Attribute,
    #[error("a second root element")]
    SecondRoot,
    #[error("text outside the root element")]
    TextOutside,
    #[error("the document ends inside <{name}>")]
    Unclosed { name: String },
    #[error("the document has no element")]
    Empty,
}

impl XmlError {
    fn new(kind: XmlErrorKind, position: XmlPosition) -> Self {
        Self { kind, position }
    }

    /// Returns true if the document is longer than the parser accepts.
    pub fn is_too_long(&self) -> bool {
        matches!(self.kind, XmlErrorKind::TooLong { .. })
    }

    /// Where in the document the error is.
    pub fn position(&self) -> XmlPosition {
        self.position
    }
}

/// A document that was not parsed at all has no position.
fn prefix(XmlPosition { line, column }: XmlPosition) -> String {
    match line {
        0 => String::new(),
        _ => format!("line {line}, column {column}: "),
    }
}

/// The parser's message without names and values from the document, which may be personal data.
fn without_content(error: &quick_xml::Error) -> String {
    use quick_xml::Error;
    use quick_xml::errors::IllFormedError;

    match error {
        Error::Syntax(error) => error.to_string(),
        Error::IllFormed(IllFormedError::MismatchedEndTag { .. }) => {
            "an end tag does not match its start tag".to_owned()
        }
        Error::IllFormed(IllFormedError::UnmatchedEndTag(_)) => {
            "an end tag without a start tag".to_owned()
        }
        Error::IllFormed(IllFormedError::DoubleHyphenInComment) => {
            "two hyphens in a comment".to_owned()
        }
        Error::IllFormed(_) => "it ends too early or begins wrongly".to_owned(),
        Error::InvalidAttr(_) => "an attribute cannot be read".to_owned(),
        _ => "it cannot be read".to_owned(),
    }
}

fn offset(position: u64) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

/// Line and column of offsets in a document. Offsets that grow are counted from the one before, so
/// that a whole document is scanned once, however many elements it has.
struct Positions<'d> {
    document: &'d [u8],
    offset: usize,
    position: XmlPosition,
    /// The bytes that were looked at, so that a test can compare them with the document's length.
    #[cfg(test)]
    scanned: usize,
}

impl<'d> Positions<'d> {
    const START: XmlPosition = XmlPosition { line: 1, column: 1 };

    fn new(document: &'d [u8]) -> Self {
        Self {
            document,
            offset: 0,
            position: Self::START,
            #[cfg(test)]
            scanned: 0,
        }
    }

    /// The position of a byte, counted in characters.
    fn at(&mut self, offset: usize) -> XmlPosition {
        let offset = offset.min(self.document.len());
        if offset < self.offset {
            // Only the position of a syntax error lies before what has been read, and it ends the
            // reading.
            (self.offset, self.position) = (0, Self::START);
        }
        let between = &self.document[self.offset..offset];
        #[cfg(test)]
        {
            self.scanned += between.len();
        }
        for byte in between {
            match byte {
                b'\n' => {
                    self.position.line += 1;
                    self.position.column = 1;
                }
                // Continuation bytes belong to the character before them.
                0x80..=0xbf => {}
                _ => self.position.column += 1,
            }
        }
        self.offset = offset;
        self.position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(document: &str) -> String {
        Element::read(document.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_their_position() {
        for (document, expected) in [
            ("", "line 1, column 1: the document has no element"),
            (
                "<a>\n  <b></c></a>",
                "line 2, column 6: the document is not well-formed",
            ),
            ("<a>\n<b>", "line 2, column 4: the document ends inside <b>"),
            ("<a/><b/>", "column 5: a second root element"),
            ("<a/>x", "text outside"),
            ("x<a/>", "text outside"),
            ("<a>&x;</a>", "column 4: an entity is refused"),
            ("<a x='&y;'/>", "an attribute cannot be read"),
            ("<a x=1/>", "an attribute cannot be read"),
            (
                "<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>",
                "a DOCTYPE is refused",
            ),
        ] {
            let message = error(document);
            assert!(message.contains(expected), "{document}: {message}");
        }
        assert!(Element::read(b"<a>\xff</a>").is_err());
    }

    #[test]
    fn positions_are_counted_in_one_pass() {
        let document = "<a>é</a>\n<b>漢字</b>\n\n<c/>".repeat(200);
        let mut positions = Positions::new(document.as_bytes());
        for (offset, _) in document.char_indices() {
            let before = &document[..offset];
            let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
            let expected = XmlPosition {
                line: 1 + before.matches('\n').count(),
                column: 1 + before[line_start..].chars().count(),
            };
            assert_eq!(positions.at(offset), expected, "{offset}");
        }
        positions.at(document.len());
        assert_eq!(positions.scanned, document.len());
        // Going back, as for a syntax error, gives the same answers.
        assert_eq!(positions.at(3), XmlPosition { line: 1, column: 4 });
    }

    #[test]
    fn entities_are_resolved_but_never_declared() {
        let root = Element::read(b"<a><b>1 &lt; 2</b></a>").unwrap();
        assert_eq!(root.at("b").unwrap().text(), "1 < 2");
        let declared = error("<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>");
        assert!(declared.contains("DOCTYPE"), "{declared}");
    }

    #[test]
    fn depth_breadth_and_length_have_limits() {
        let deep = "<a>".repeat(XML_DEPTH_MAX + 1);
        assert!(error(&deep).contains("24 deep"));
        let broad = format!("<a>{}</a>", "<b/>".repeat(XML_ELEMENTS_MAX));
        assert!(error(&broad).contains("20000 elements"));
        let long = format!("<a>{}</a>", " ".repeat(XML_BYTES_MAX));
        let error_of_long = Element::read(long.as_bytes()).unwrap_err();
        assert!(error_of_long.is_too_long());
        let attributes: Vec<_> = (0..33).map(|n| format!(" a{n}='x'")).collect();
        assert!(error(&format!("<a{}/>", attributes.concat())).contains("32 attributes"));
    }

    #[test]
    fn prefixes_comments_cdata_and_a_mark_at_the_beginning_do_not_matter() {
        let document = "\u{feff}<?xml version='1.0'?><!-- x --><ds:a xmlns:ds='u' ds:k='v'>\
                        <![CDATA[1<2]]>&#38;<?pi x?><b/></ds:a>";
        let root = Element::read(document.as_bytes()).unwrap();
        assert_eq!(root.name(), "a");
        assert_eq!(root.text(), "1<2&");
        assert_eq!(root.attribute("k"), Some("v"));
        assert_eq!(root.children().len(), 1);
    }
}
