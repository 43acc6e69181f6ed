//! The published API as data: builds requests from its schemas and validates answers against them.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use regex::Regex;
use serde_json::Value;

use super::xml::Node;

/// Values of a request's elements, by path below the root. An empty value leaves the element out.
pub(super) type Values = [(&'static str, String)];

pub(super) struct Api {
    json: Value,
    /// The types that were seen in a request or an answer.
    seen: RefCell<BTreeSet<String>>,
    patterns: RefCell<HashMap<String, Regex>>,
}

impl Api {
    pub(super) fn load() -> Self {
        let text = include_str!("../../data/dict-api-2.12.1.json");
        Self {
            json: serde_json::from_str(text).expect("JSON"),
            seen: RefCell::default(),
            patterns: RefCell::default(),
        }
    }

    pub(super) fn operations(&self) -> &[Value] {
        self.json["operations"].as_array().unwrap()
    }

    pub(super) fn operation(&self, id: &str) -> &Value {
        let mut operations = self.operations().iter();
        operations
            .find(|one| one["id"] == id)
            .unwrap_or_else(|| panic!("no operation {id}"))
    }

    pub(super) fn lifecycle(&self, name: &str) -> &Value {
        &self.json["lifecycles"][name]
    }

    /// Every error type, with its status.
    pub(super) fn error_types(&self) -> Vec<(&str, u64)> {
        let types = self.json["problem"]["types"].as_array().unwrap();
        let named = types.iter().map(|one| {
            let status = one["status"].as_u64().unwrap();
            (one["type"].as_str().unwrap(), status)
        });
        named.collect()
    }

    pub(super) fn title(&self, error_type: &str) -> Option<&str> {
        let types = self.json["problem"]["types"].as_array().unwrap();
        let found = types.iter().find(|one| one["type"] == error_type)?;
        found["title"].as_str()
    }

    /// The types that no request and no answer had.
    pub(super) fn unseen_types(&self) -> Vec<String> {
        let seen = self.seen.borrow();
        let types = self.json["types"].as_object().unwrap();
        types
            .keys()
            .filter(|name| !seen.contains(*name))
            .cloned()
            .collect()
    }

    /// Notes the types of the parameters of a query: those with the same enumeration.
    pub(super) fn see_query(&self, operation: &Value, query: &str) {
        for parameter in operation["query"].as_array().unwrap() {
            let name = parameter["name"].as_str().unwrap();
            let is_used = query
                .split('&')
                .any(|pair| pair.split('=').next() == Some(name));
            let types = self.json["types"].as_object().unwrap();
            for (name, own) in types.iter().filter(|_| is_used) {
                if own.get("enum").is_some() && own["enum"] == parameter["enum"] {
                    self.seen.borrow_mut().insert(name.clone());
                }
            }
        }
    }

    fn type_of(&self, name: &str) -> Option<&Value> {
        let found = self.json["types"].get(name);
        if found.is_some() {
            self.seen.borrow_mut().insert(name.to_owned());
        }
        found
    }

    /// Builds a request: what is required and what `values` names, or everything.
    pub(super) fn request(&self, operation: &Value, values: &Values, is_full: bool) -> String {
        let body = &operation["request"];
        let root = body["name"].as_str().expect("a body");
        let mut out = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?><{root}>");
        for child in children(body) {
            self.write(child, "", values, is_full, &mut out);
        }
        out + &format!("</{root}>")
    }

    fn write(&self, child: &Value, at: &str, values: &Values, is_full: bool, out: &mut String) {
        let name = child["name"].as_str().unwrap();
        let path = if at.is_empty() {
            name.to_owned()
        } else {
            format!("{at}/{name}")
        };
        let own = values.iter().find(|(own, _)| *own == path);
        let below = format!("{path}/");
        let has_below = values
            .iter()
            .any(|(own, value)| own.starts_with(&below) && !value.is_empty());
        let is_left_out = own.is_some_and(|(_, value)| value.is_empty());
        let is_wanted = child["required"] == true || is_full || own.is_some() || has_below;
        if name == "Signature" || is_left_out || !is_wanted {
            return;
        }
        let kind = child["type"].as_str().and_then(|name| self.type_of(name));
        let inner = match kind {
            Some(kind) if kind["kind"] == "choice" => {
                let of = format!("{path}/Type");
                let found = values.iter().find(|(own, _)| *own == of);
                let variant = found.map_or("NATURAL_PERSON", |(_, value)| value);
                children(&kind["variants"][variant])
            }
            Some(kind) if kind["kind"] == "object" => children(kind),
            _ => children(child),
        };
        out.extend(["<", name, ">"]);
        if inner.is_empty() {
            let value = own.map(|(_, value)| value.clone());
            let value = value.unwrap_or_else(|| default_text(child, kind));
            out.push_str(&value.replace('&', "&amp;").replace('<', "&lt;"));
        }
        for child in inner {
            self.write(child, &path, values, is_full, out);
        }
        out.extend(["</", name, ">"]);
    }

    /// What is wrong with a request or an answer, by its schema.
    pub(super) fn problems(&self, element: &Value, node: &Node) -> Vec<String> {
        let mut problems = Vec::new();
        let name = element["name"].as_str().or(element["root"].as_str());
        if name != Some(node.name.as_str()) {
            problems.push(format!("the root is {}", node.name));
        }
        self.validate(element, node, &node.name, &mut problems);
        problems
    }

    pub(super) fn problem_problems(&self, node: &Node) -> Vec<String> {
        self.problems(&self.json["problem"], node)
    }

    /// Validates the children of a node: names, order, repetition, and each by itself.
    fn validate(&self, element: &Value, node: &Node, at: &str, problems: &mut Vec<String>) {
        let specs = children(element);
        let named = |spec: &Value| spec["name"].as_str().unwrap().to_owned();
        let names: Vec<_> = node.children.iter().map(|own| own.name.clone()).collect();
        for spec in specs {
            let count = names.iter().filter(|own| **own == named(spec)).count();
            if count == 0 && spec["required"] == true {
                problems.push(format!("{at}/{} is missing", named(spec)));
            }
            if count > 1 && spec["repeated"] != true {
                problems.push(format!("{at}/{} is there {count} times", named(spec)));
            }
        }
        let by_schema: Vec<_> = specs.iter().map(named).collect();
        let by_example: Vec<_> = element["exampleOrder"]
            .as_array()
            .map(|names| {
                names
                    .iter()
                    .map(|n| n.as_str().unwrap().to_owned())
                    .collect()
            })
            .unwrap_or_default();
        let is_example = !by_example.is_empty() && is_in_order(&names, &by_example);
        if !is_in_order(&names, &by_schema) && !is_example {
            problems.push(format!("{at} has its elements in the order {names:?}"));
        }
        for child in &node.children {
            let at = format!("{at}/{}", child.name);
            match specs.iter().find(|spec| named(spec) == child.name) {
                Some(spec) => self.validate_one(spec, child, &at, problems),
                None => problems.push(format!("{at} is not in the schema")),
            }
        }
    }

    fn validate_one(&self, spec: &Value, node: &Node, at: &str, problems: &mut Vec<String>) {
        let kind = spec["type"].as_str().and_then(|name| self.type_of(name));
        match kind.map(|kind| (kind, kind["kind"].as_str().unwrap())) {
            Some((_, "element")) if spec["type"] == "Signature" => {}
            Some((kind, "element")) => {
                for attribute in kind["attributes"].as_array().unwrap() {
                    let name = attribute["name"].as_str().unwrap();
                    let found = node.attributes.iter().find(|(own, _)| own == name);
                    let is_valid =
                        found.is_some_and(|(_, value)| match attribute["type"].as_str() {
                            Some("boolean") => matches!(value.as_str(), "true" | "false"),
                            _ => value.parse::<u64>().is_ok(),
                        });
                    if !is_valid {
                        problems.push(format!("{at} has no valid {name}"));
                    }
                }
                if let Some(of) = kind["text"].as_str().and_then(|name| self.type_of(name)) {
                    self.validate_text(of, &node.text, at, problems);
                }
            }
            Some((kind, "object")) => self.validate(kind, node, at, problems),
            Some((kind, "choice")) => {
                let variant = node.at("Type").unwrap_or_default();
                match kind["variants"].get(variant) {
                    Some(variant) => self.validate(variant, node, at, problems),
                    None => problems.push(format!("{at} is of no known type")),
                }
            }
            Some((kind, _)) => {
                self.validate_text(kind, node.text.trim(), at, problems);
                self.validate_text(spec, node.text.trim(), at, problems);
            }
            None if spec.get("children").is_some() => self.validate(spec, node, at, problems),
            None => self.validate_text(spec, node.text.trim(), at, problems),
        }
    }

    fn validate_text(&self, spec: &Value, text: &str, at: &str, problems: &mut Vec<String>) {
        let mut wrong = |why: &str| problems.push(format!("{at}: {text:?} {why}"));
        // A slip of the document: its own text has more categories than its enumeration.
        let accepted = spec["accept"].as_array().or(spec["enum"].as_array());
        if accepted.is_some_and(|words| words.iter().all(|word| *word != text)) {
            wrong("is not in the enumeration");
        }
        if let Some(pattern) = spec["pattern"].as_str()
            && spec.get("accept").is_none()
            && !self.matches(pattern, text)
        {
            wrong("does not match the pattern");
        }
        if let Some(most) = spec["maxLength"].as_u64()
            && text.chars().count() as u64 > most
        {
            wrong("is too long");
        }
        let is_valid = match (spec["format"].as_str(), spec["type"].as_str()) {
            (Some("uuid"), _) => self.matches("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", text),
            (Some("date-time"), _) => text.parse::<balde_dict::wire::Timestamp>().is_ok(),
            (Some("currency"), _) => self.matches(r"^[0-9]+\.[0-9]{2}$", text),
            (Some("uri"), _) => text.starts_with("https://"),
            (Some("duration"), _) => self.matches("^PT[0-9]+[HMS]", text),
            (_, Some("integer")) => text.parse::<i64>().is_ok(),
            (_, Some("boolean")) => matches!(text, "true" | "false"),
            _ => true,
        };
        if !is_valid {
            wrong("has the wrong format");
        }
    }

    fn matches(&self, pattern: &str, text: &str) -> bool {
        // Written for Java: a flag after the anchor, and a look-ahead, which this library lacks.
        let plain = pattern.replace("^(?i)", "(?i)^").replace(r"(?!\*+$)", "");
        let mut patterns = self.patterns.borrow_mut();
        let regex = patterns
            .entry(plain.clone())
            .or_insert_with(|| Regex::new(&plain).unwrap_or_else(|error| panic!("{error}")));
        regex.is_match(text)
    }
}

fn children(element: &Value) -> &[Value] {
    element["children"].as_array().map_or(&[], Vec::as_slice)
}

/// Whether names come in an order, as far as it has them.
fn is_in_order(names: &[String], order: &[String]) -> bool {
    let positions = names
        .iter()
        .filter_map(|name| order.iter().position(|own| own == name));
    positions.is_sorted()
}

fn default_text(child: &Value, kind: Option<&Value>) -> String {
    let of = |key: &str| {
        child
            .get(key)
            .or_else(|| kind.and_then(|kind| kind.get(key)))
    };
    if let Some(words) = of("enum").and_then(Value::as_array) {
        return words[0].as_str().unwrap().to_owned();
    }
    let text = match (child["type"].as_str(), of("format").and_then(Value::as_str)) {
        (_, Some("date-time")) => "2010-01-10T03:00:00Z",
        (_, Some("currency")) => "100.00",
        (_, Some("duration")) => "PT1H",
        (Some("ISPB"), _) => crate::test_server::CALLER,
        (Some("TaxIdNumber"), _) => crate::test_server::PERSON,
        (Some("Email"), _) => "contato@example.com",
        (Some("Phone"), _) => "+5561988887777",
        (Some("integer"), _) => "1",
        (Some("boolean"), _) => "true",
        _ => match child["name"].as_str() {
            Some("Branch") => "0001",
            Some("AccountNumber") => "0007654321",
            Some("Name") => "Maria da Silva",
            Some("TradeName") => "Padaria",
            Some("TaxIdNumber") => crate::test_server::PERSON,
            _ => "texto",
        },
    };
    text.to_owned()
}
