//! Compares an answer with what its step expects.

use std::collections::BTreeSet;

use balde_dict::wire::{ERROR_BASE, Element, PROBLEM_XML, Problem, Timestamp};

use super::caller::Answer;
use super::step::{Expectation, Step};
use super::values::{Values, fill};

/// What is compared between the answers of two addresses: not their values, which differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Observed {
    pub(super) status: u16,
    /// The error type, or the root element.
    pub(super) kind: String,
    /// The paths of all elements, without those of signatures.
    pub(super) elements: BTreeSet<String>,
}

/// What an answer shows.
pub(super) fn observe(answer: &Answer) -> Observed {
    let mut observed = Observed {
        status: answer.status,
        ..Observed::default()
    };
    if let Some(root) = &answer.root {
        observed.kind = if root.name() == "problem" {
            error_type(root).to_owned()
        } else {
            root.name().to_owned()
        };
        collect(root, "", &mut observed.elements);
    }
    observed
}

/// Everything in which an answer differs from what its step expects.
pub(super) fn check(step: &Step, answer: &Answer, values: &Values) -> Vec<String> {
    let mut found = Vec::new();
    let Some(root) = &answer.root else {
        return vec![format!(
            "the status is {}, and the answer is not XML",
            answer.status
        )];
    };
    if answer.status != step.status {
        let detail = Problem::read(answer.body.as_bytes()).ok();
        let detail = detail.filter(|_| root.name() == "problem");
        let detail = detail.map_or_else(String::new, |problem| format!(" ({problem})"));
        return vec![format!(
            "the status is {}, not {}{detail}",
            answer.status, step.status
        )];
    }
    if step.status < 300 {
        check_success(step, answer, root, &mut found);
    } else {
        check_problem(step, answer, root, &mut found);
    }
    for expectation in &step.expectations {
        found.extend(difference(*expectation, root, values));
    }
    found
}

fn check_success(step: &Step, answer: &Answer, root: &Element, found: &mut Vec<String>) {
    if root.name() != step.answer {
        found.push(format!(
            "the document is a {}, not a {}",
            root.name(),
            step.answer
        ));
    }
    if !answer.content_type.starts_with("application/xml") {
        found.push(format!("the content type is {:?}", answer.content_type));
    }
    let text = |name: &str| root.child(name).map_or("", Element::text);
    let correlation = text("CorrelationId");
    if correlation.len() != 32 || !correlation.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        found.push(format!(
            "CorrelationId is {correlation:?}, not 32 hexadecimal digits"
        ));
    }
    if text("ResponseTime").parse::<Timestamp>().is_err() {
        found.push(format!("ResponseTime is {:?}", text("ResponseTime")));
    }
}

fn check_problem(step: &Step, answer: &Answer, root: &Element, found: &mut Vec<String>) {
    let text = |name: &str| root.child(name).map_or("", Element::text);
    if root.name() != "problem" {
        found.push(format!("the document is a {}, not a problem", root.name()));
    }
    if !answer.content_type.starts_with(PROBLEM_XML) {
        found.push(format!("the content type is {:?}", answer.content_type));
    }
    let expected = format!("{ERROR_BASE}{}", step.answer);
    if text("type") != expected {
        found.push(format!("the type is {:?}, not {expected:?}", text("type")));
    }
    if text("status") != step.status.to_string() {
        found.push(format!(
            "the status in the document is {:?}",
            text("status")
        ));
    }
    if text("title").is_empty() {
        found.push("there is no title".to_owned());
    }
}

fn difference(expectation: Expectation, root: &Element, values: &Values) -> Option<String> {
    let filled = |text: &str| fill(text, values).unwrap_or_default();
    match expectation {
        Expectation::Text(path, expected) => {
            let expected = filled(expected);
            match root.at(path).map(Element::text) {
                Some(text) if text == expected => None,
                Some(text) => Some(format!("{path} is {text:?}, not {expected:?}")),
                None => Some(format!("{path} is missing; {expected:?} is expected")),
            }
        }
        Expectation::Present(path) => {
            let is_there = root.at(path).is_some_and(has_content);
            (!is_there).then(|| format!("{path} is missing"))
        }
        Expectation::Contains(path, text) => {
            let text = filled(text);
            let is_there = root.at(path).is_some_and(|list| contains(list, &text));
            (!is_there).then(|| format!("{path} does not contain {text:?}"))
        }
        Expectation::Attribute {
            list,
            text,
            attribute: (name, expected),
        } => {
            let text = filled(text);
            let items = root.at(list).map_or(&[][..], Element::children);
            let item = items.iter().find(|item| item.text() == text);
            let value = item.and_then(|item| item.attribute(name));
            (value != Some(expected))
                .then(|| format!("{name} of {text:?} in {list} is {value:?}, not {expected:?}"))
        }
    }
}

fn has_content(element: &Element) -> bool {
    !element.text().is_empty() || !element.children().is_empty()
}

fn contains(element: &Element, text: &str) -> bool {
    element.text() == text || element.children().iter().any(|child| contains(child, text))
}

fn error_type(problem: &Element) -> &str {
    let text = problem.child("type").map_or("", Element::text);
    text.rsplit('/').next().unwrap_or_default()
}

fn collect(element: &Element, below: &str, into: &mut BTreeSet<String>) {
    if element.name() == "Signature" {
        return;
    }
    let path = if below.is_empty() {
        element.name().to_owned()
    } else {
        format!("{below}/{}", element.name())
    };
    for child in element.children() {
        collect(child, &path, into);
    }
    into.insert(path);
}
