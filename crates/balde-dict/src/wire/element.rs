//! A document, read into a tree within limits.

use std::fmt;

use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesRef, BytesStart, Event};

/// The longest document that is read, in bytes. A list of 200 claims has some 200 kB.
pub const XML_BYTES_MAX: usize = 1 << 20;

/// How deep elements may be inside each other. DICT's own messages need 5, a signature 8.
pub const XML_DEPTH_MAX: usize = 24;

/// The most elements of a document.
pub const XML_ELEMENTS_MAX: usize = 20_000;

/// The most attributes of an element.
pub const XML_ATTRIBUTES_MAX: usize = 32;

/// An element with what is in it. Prefixes of names are left out: DICT has no two elements that
/// only differ there, and clients choose theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    text: String,
    children: Vec<Self>,
    position: Position,
}

/// Where something is in a document, counted from one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

impl Element {
    /// Reads a whole document.
    ///
    /// ```
    /// use balde_dict::wire::Element;
    ///
    /// let root = Element::read(b"<a><b>1 &lt; 2</b></a>")?;
    /// assert_eq!(root.at("b").unwrap().text(), "1 < 2");
    ///
    /// let error = Element::read(b"<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>").unwrap_err();
    /// assert!(error.to_string().contains("DOCTYPE"));
    /// # Ok::<(), balde_dict::wire::XmlError>(())
    /// ```
    pub fn read(document: &[u8]) -> Result<Self, XmlError> {
        if document.len() > XML_BYTES_MAX {
            return Err(XmlError::new(
                Fault::TooLong {
                    bytes: document.len(),
                },
                Position::default(),
            ));
        }
        let text = std::str::from_utf8(document).map_err(|error| {
            let position = position(document, error.valid_up_to());
            XmlError::new(Fault::NotUtf8, position)
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Tree::default().build(text)
    }

    /// The name, without a prefix.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text directly inside, without white space around it.
    pub fn text(&self) -> &str {
        self.text.trim()
    }

    /// An attribute's value.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The elements directly inside.
    pub fn children(&self) -> &[Self] {
        &self.children
    }

    /// The first element directly inside with this name.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The element at a path such as `Entry/Account/Participant`.
    pub fn at(&self, path: &str) -> Option<&Self> {
        path.split('/')
            .try_fold(self, |element, name| element.child(name))
    }

    /// Where it begins.
    pub fn position(&self) -> Position {
        self.position
    }
}

/// The elements that are open, the root first.
#[derive(Default)]
struct Tree {
    open: Vec<Element>,
    root: Option<Element>,
    elements: usize,
}

impl Tree {
    fn build(mut self, text: &str) -> Result<Element, XmlError> {
        let mut reader = Reader::from_str(text);
        reader.config_mut().enable_all_checks(true);
        loop {
            let before = offset(reader.buffer_position());
            let event = reader.read_event().map_err(|error| {
                let at = offset(reader.error_position());
                let fault = Fault::Malformed {
                    what: without_content(&error),
                };
                XmlError::new(fault, position(text.as_bytes(), at))
            })?;
            let here = || position(text.as_bytes(), before);
            let step = match event {
                Event::Start(start) => self.start(&start, here()),
                Event::Empty(start) => self.start(&start, here()).and_then(|()| self.end()),
                Event::End(_) => self.end(),
                Event::Text(text) => self.text(&text.xml10_content()),
                Event::CData(data) => self.text(&data.xml10_content()),
                Event::GeneralRef(reference) => self.reference(&reference),
                Event::DocType(_) => Err(Fault::DocType),
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) => Ok(()),
                Event::Eof => break,
            };
            step.map_err(|fault| XmlError::new(fault, here()))?;
        }
        let end = position(text.as_bytes(), text.len());
        match (self.open.pop(), self.root) {
            (Some(open), _) => Err(XmlError::new(Fault::Unclosed { name: open.name }, end)),
            (None, None) => Err(XmlError::new(Fault::Empty, end)),
            (None, Some(root)) => Ok(root),
        }
    }

    fn start(&mut self, start: &BytesStart<'_>, position: Position) -> Result<(), Fault> {
        if self.root.is_some() && self.open.is_empty() {
            return Err(Fault::SecondRoot);
        }
        if self.open.len() >= XML_DEPTH_MAX {
            return Err(Fault::TooDeep);
        }
        self.elements += 1;
        if self.elements > XML_ELEMENTS_MAX {
            return Err(Fault::TooManyElements);
        }
        let mut attributes = Vec::new();
        for attribute in start.attributes() {
            if attributes.len() == XML_ATTRIBUTES_MAX {
                return Err(Fault::TooManyAttributes);
            }
            let attribute = attribute.map_err(|_| Fault::Attribute)?;
            let value = attribute
                .normalized_value(XmlVersion::Explicit1_0)
                .map_err(|_| Fault::Attribute)?;
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

    fn end(&mut self) -> Result<(), Fault> {
        // The reader has checked that there is one and what it is called.
        let Some(element) = self.open.pop() else {
            return Err(Fault::Empty);
        };
        match self.open.last_mut() {
            Some(parent) => parent.children.push(element),
            None => self.root = Some(element),
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), Fault> {
        match self.open.last_mut() {
            Some(element) => element.text.push_str(text),
            None if text.trim().is_empty() => {}
            None => return Err(Fault::TextOutside),
        }
        Ok(())
    }

    /// The five names that XML itself has, and characters by number. Nothing is ever expanded.
    fn reference(&mut self, reference: &BytesRef<'_>) -> Result<(), Fault> {
        if let Some(character) = reference.resolve_char_ref().map_err(|_| Fault::Entity)? {
            return self.text(character.encode_utf8(&mut [0; 4]));
        }
        let text = match reference.xml10_content().as_ref() {
            "lt" => "<",
            "gt" => ">",
            "amp" => "&",
            "apos" => "'",
            "quot" => "\"",
            _ => return Err(Fault::Entity),
        };
        self.text(text)
    }
}

/// Why a document cannot be read, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XmlError {
    fault: Fault,
    position: Position,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    TooLong { bytes: usize },
    NotUtf8,
    Malformed { what: String },
    DocType,
    Entity,
    TooDeep,
    TooManyElements,
    TooManyAttributes,
    Attribute,
    SecondRoot,
    TextOutside,
    Unclosed { name: String },
    Empty,
}

impl XmlError {
    fn new(fault: Fault, position: Position) -> Self {
        Self { fault, position }
    }

    /// Whether the document is not even read, because of its length.
    pub fn is_too_long(&self) -> bool {
        matches!(self.fault, Fault::TooLong { .. })
    }

    /// Where it went wrong.
    pub fn position(&self) -> Position {
        self.position
    }
}

impl fmt::Display for XmlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.position;
        if line > 0 {
            write!(f, "line {line}, column {column}: ")?;
        }
        match &self.fault {
            Fault::TooLong { bytes } => {
                write!(f, "the document has {bytes} bytes, more than {XML_BYTES_MAX}")
            }
            Fault::NotUtf8 => f.write_str("the document is not UTF-8"),
            Fault::Malformed { what } => write!(f, "the document is not well-formed XML: {what}"),
            Fault::DocType => f.write_str(
                "a DOCTYPE is refused: DICT's messages have none, and entities are not expanded",
            ),
            Fault::Entity => f.write_str(
                "an entity is refused: only lt, gt, amp, apos, quot and characters by number are known",
            ),
            Fault::TooDeep => write!(f, "elements are more than {XML_DEPTH_MAX} deep"),
            Fault::TooManyElements => write!(f, "more than {XML_ELEMENTS_MAX} elements"),
            Fault::TooManyAttributes => {
                write!(f, "more than {XML_ATTRIBUTES_MAX} attributes on one element")
            }
            Fault::Attribute => f.write_str("an attribute cannot be read"),
            Fault::SecondRoot => f.write_str("a second root element"),
            Fault::TextOutside => f.write_str("text outside the root element"),
            Fault::Unclosed { name } => write!(f, "the document ends inside <{name}>"),
            Fault::Empty => f.write_str("the document has no element"),
        }
    }
}

impl std::error::Error for XmlError {}

/// What the reader says, without what it read: names and values may be a caller's data.
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

fn position(document: &[u8], offset: usize) -> Position {
    let before = &document[..offset.min(document.len())];
    let line_start = before.iter().rposition(|byte| *byte == b'\n');
    let line_start = line_start.map_or(0, |newline| newline + 1);
    Position {
        line: before.split(|byte| *byte == b'\n').count(),
        column: 1 + String::from_utf8_lossy(&before[line_start..])
            .chars()
            .count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(document: &str) -> String {
        Element::read(document.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
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
            let told = error(document);
            assert!(told.contains(expected), "{document}: {told}");
        }
        assert!(Element::read(b"<a>\xff</a>").is_err());
    }

    #[test]
    fn depth_breadth_and_length_have_limits() {
        let deep = "<a>".repeat(XML_DEPTH_MAX + 1);
        assert!(error(&deep).contains("24 deep"));
        let broad = format!("<a>{}</a>", "<b/>".repeat(XML_ELEMENTS_MAX));
        assert!(error(&broad).contains("20000 elements"));
        let long = format!("<a>{}</a>", " ".repeat(XML_BYTES_MAX));
        let told = Element::read(long.as_bytes()).unwrap_err();
        assert!(told.is_too_long());
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
