//! A YAML document as a tree with line numbers. Scalars stay text, as they are written: `value: 010` is
//! the text `010` in a descriptor, whatever type YAML gives it.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle};

/// The most nodes of a document, counting what aliases repeat, and the deepest nesting.
const NODES_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 64;

/// A node and the line where it begins.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) line: usize,
    data: Data,
}

#[derive(Clone, Debug)]
enum Data {
    /// A scalar. Only a plain one can be null.
    Text {
        text: String,
        is_plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

/// A collection that is not complete yet.
struct Open {
    node: Node,
    anchor: usize,
    /// The key of a map whose value follows.
    key: Option<Node>,
}

impl Node {
    /// Parses the first document of a text. The error has its line.
    pub(super) fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut open: Vec<Open> = Vec::new();
        let mut anchors: HashMap<usize, (Node, usize)> = HashMap::new();
        let mut nodes = 0;
        for event in Parser::new_from_str(text) {
            let (event, span) =
                event.map_err(|error| (error.marker().line(), error.info().to_owned()))?;
            let line = span.start.line();
            let begun = |data, anchor| Open {
                node: Self { line, data },
                anchor,
                key: None,
            };
            nodes += 1;
            let (node, anchor) = match event {
                Event::SequenceStart(anchor, _) => {
                    open.push(begun(Data::List(Vec::new()), anchor));
                    Self::check(nodes, open.len(), line)?;
                    continue;
                }
                Event::MappingStart(anchor, _) => {
                    open.push(begun(Data::Map(Vec::new()), anchor));
                    Self::check(nodes, open.len(), line)?;
                    continue;
                }
                Event::Scalar(text, style, anchor, _) => {
                    let text = text.into_owned();
                    let is_plain = style == ScalarStyle::Plain;
                    let data = Data::Text { text, is_plain };
                    (Self { line, data }, anchor)
                }
                Event::Alias(anchor) => {
                    let Some((node, count)) = anchors.get(&anchor) else {
                        return Err((line, "an alias of a node that contains it".to_owned()));
                    };
                    nodes += count;
                    Self::check(nodes, open.len(), line)?;
                    (node.clone(), 0)
                }
                Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                    Some(Open { node, anchor, .. }) => (node, anchor),
                    None => continue,
                },
                Event::DocumentEnd => break,
                Event::Nothing
                | Event::StreamStart
                | Event::StreamEnd
                | Event::DocumentStart(_) => continue,
            };
            if anchor > 0 {
                let count = node.count();
                anchors.insert(anchor, (node.clone(), count));
            }
            match open.last_mut() {
                Some(parent) => parent.push(node),
                None => return Ok(node),
            }
        }
        Err((1, "the file is empty".to_owned()))
    }

    /// Keeps aliases of aliases from filling the memory, and deep nesting from filling the stack.
    fn check(nodes: usize, depth: usize, line: usize) -> Result<(), (usize, String)> {
        if nodes > NODES_MAX || depth > DEPTH_MAX {
            return Err((line, "the file has too many or too deep nodes".to_owned()));
        }
        Ok(())
    }

    fn count(&self) -> usize {
        1 + match &self.data {
            Data::Text { .. } => 0,
            Data::List(items) => items.iter().map(Self::count).sum(),
            Data::Map(pairs) => pairs.iter().map(|(_, value)| 1 + value.count()).sum(),
        }
    }

    /// The text of a scalar; `None` for null, lists and maps.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.data {
            Data::Text { text, is_plain } => {
                let is_null = *is_plain && matches!(text.as_str(), "" | "~" | "null");
                (!is_null).then_some(text)
            }
            _ => None,
        }
    }

    /// A whole number that is not negative.
    pub(super) fn number(&self) -> Option<u64> {
        self.text()?.parse().ok()
    }

    pub(super) fn is_true(&self) -> bool {
        self.text()
            .is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    /// The items of a list; none for null and an empty list, `None` if this is something else.
    pub(super) fn items(&self) -> Option<&[Self]> {
        match &self.data {
            Data::List(items) => Some(items),
            Data::Text { .. } if self.text().is_none() => Some(&[]),
            _ => None,
        }
    }

    /// The entries of a map, by the text of their keys; `None` if this is no map.
    pub(super) fn entries(&self) -> Option<impl Iterator<Item = (&str, &Self)>> {
        let Data::Map(pairs) = &self.data else {
            return None;
        };
        let entries = pairs.iter();
        Some(entries.map(|(key, value)| (key.text().unwrap_or_default(), value)))
    }

    /// A value of a map.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let mut entries = self.entries()?;
        let (_, value) = entries.find(|(name, _)| *name == key)?;
        Some(value)
    }
}

impl Open {
    fn push(&mut self, node: Node) {
        match &mut self.node.data {
            Data::List(items) => items.push(node),
            Data::Map(pairs) => match self.key.take() {
                Some(key) => pairs.push((key, node)),
                None => self.key = Some(node),
            },
            Data::Text { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_their_lines_and_scalars_stay_text() {
        let text = "# a comment\na: &a [x, 010]\nb:\n  c: ~\n  d: 'null'\n  e: *a\n";
        let node = Node::parse(text).unwrap();
        let (a, b) = (node.get("a").unwrap(), node.get("b").unwrap());
        assert_eq!((node.line, a.line, b.line), (2, 2, 4));
        assert_eq!(a.items().unwrap()[1].text(), Some("010"));
        assert_eq!(b.get("c").unwrap().text(), None);
        assert_eq!(b.get("d").unwrap().text(), Some("null"));
        assert_eq!(b.get("e").unwrap().items().unwrap().len(), 2);
        assert_eq!(b.get("f").map(|node| node.line), None);
    }

    #[test]
    fn broken_deep_and_exploding_files_are_errors_with_a_line() {
        assert_eq!(Node::parse("a: 1\nb: [\n").unwrap_err().0, 3);
        assert!(Node::parse("").is_err());
        assert!(Node::parse(&"[".repeat(100_000)).is_err());
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let alias = format!("*a{}, ", level - 1).repeat(9);
            bomb.extend(["a", &level.to_string(), ": &a", &level.to_string()]);
            bomb.extend([" [", &alias, "x]\n"]);
        }
        assert!(Node::parse(&bomb).is_err());
    }
}
