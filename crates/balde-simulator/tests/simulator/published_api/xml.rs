//! XML documents as trees, read without the code under test.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) attributes: Vec<(String, String)>,
    pub(super) text: String,
    pub(super) children: Vec<Node>,
}

impl Node {
    pub(super) fn parse(document: &str) -> Self {
        let mut reader = Reader::from_str(document);
        let mut open = vec![Self::default()];
        loop {
            match reader.read_event().expect("well-formed XML") {
                Event::Start(start) => open.push(Self::of(&start)),
                Event::Empty(start) => {
                    let node = Self::of(&start);
                    open.last_mut().unwrap().children.push(node);
                }
                Event::End(_) => {
                    let node = open.pop().unwrap();
                    open.last_mut().unwrap().children.push(node);
                }
                Event::Text(text) => open.last_mut().unwrap().text += &text.xml10_content(),
                Event::GeneralRef(reference) => {
                    let text = match reference.xml10_content().as_ref() {
                        "amp" => "&",
                        "lt" => "<",
                        "gt" => ">",
                        "apos" => "'",
                        "quot" => "\"",
                        other => panic!("&{other};"),
                    };
                    open.last_mut().unwrap().text += text;
                }
                Event::Eof => return open.pop().unwrap().children.pop().expect("a root"),
                _ => {}
            }
        }
    }

    fn of(start: &BytesStart<'_>) -> Self {
        let attributes = start.attributes().map(|attribute| {
            let attribute = attribute.expect("an attribute");
            let value = attribute.normalized_value(quick_xml::XmlVersion::Explicit1_0);
            let name = attribute.key.local_name().as_ref().to_owned();
            (name, value.expect("a value").into_owned())
        });
        Self {
            name: start.local_name().as_ref().to_owned(),
            attributes: attributes.collect(),
            ..Self::default()
        }
    }

    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The text at a path such as `Claim/Id`.
    pub(super) fn at(&self, path: &str) -> Option<&str> {
        let found = path
            .split('/')
            .try_fold(self, |node, name| node.child(name));
        found.map(|node| node.text.trim())
    }

    /// The document without what differs between two answers to the same request.
    pub(super) fn without_head(mut self) -> Self {
        let head = ["Signature", "ResponseTime", "CorrelationId"];
        self.children
            .retain(|child| !head.contains(&child.name.as_str()));
        self
    }
}
