//! The limits of Limitador: a list in which every limit that matches a request applies.

use balde_core::Limit as Numbers;

use super::cel::{self, Comparison, Operand, Test};
use super::notes::{Notes, Place};
use super::service_file::{Limit, NEVER, Pattern, Rule, ServiceFile};
use super::yaml::Node;

/// Reads a list of limits, or a `Limitador` resource, whose list is at `spec.limits`.
pub(super) fn import(file: &str, node: &Node, notes: &mut Notes) -> Result<ServiceFile, String> {
    let list = match node.get("spec") {
        Some(spec) => spec.get("limits"),
        None => node.get("limits").or(Some(node)),
    };
    let items = list.and_then(Node::items);
    let items = items.ok_or_else(|| format!("{file}:{}: expected a list of limits", node.line))?;
    let mut imported = ServiceFile::default();
    for (position, item) in items.iter().enumerate() {
        let place = Place::new(file, item.line);
        match rule(item, position, &place, notes) {
            Ok(rule) => imported.push(rule),
            Err(reason) => notes.add(&place, format!("the limit: {reason}")),
        }
    }
    Ok(imported)
}

fn rule(node: &Node, position: usize, place: &Place, notes: &mut Notes) -> Result<Rule, String> {
    let Some(entries) = node.entries() else {
        return Err("it is no map".to_owned());
    };
    for (key, value) in entries {
        match key {
            "namespace" | "max_value" | "seconds" | "name" | "id" | "conditions" | "variables" => {}
            _ => notes.add(
                &Place::new(&place.file, value.line),
                format!("unknown key `{key}` of a limit"),
            ),
        }
    }
    let namespace = node.get("namespace").and_then(Node::text);
    let namespace = namespace.filter(|namespace| !namespace.is_empty());
    let namespace = namespace.ok_or("there is no `namespace`")?;
    let mut indices = Indices::default();
    let mut conditions = Vec::new();
    for source in texts(node, "conditions")? {
        let comparisons = cel::comparisons(source);
        let comparisons = comparisons.ok_or_else(|| {
            format!(
                "no rule has an equivalent of the condition `{source}`; comparisons with a text, joined \
                 by &&, have one"
            )
        })?;
        for comparison in comparisons {
            conditions.push(condition(&comparison)?);
            indices.add(&comparison.operand)?;
        }
    }
    let mut variables = Vec::new();
    for source in texts(node, "variables")? {
        let operand = cel::operand(source);
        let operand = operand.ok_or_else(|| {
            format!("no bucket has an equivalent of the variable `{source}`; entries of a descriptor have one")
        })?;
        indices.add(&operand)?;
        variables.push(operand.key);
    }
    // Limitador sorts them, too: their order makes no difference.
    variables.sort();
    variables.dedup();
    let names = ["name", "id"].into_iter();
    let mut names = names.filter_map(|key| node.get(key).and_then(Node::text));
    let name = names.next().map(str::to_owned);
    Ok(Rule {
        place: place.clone(),
        domain: namespace.to_owned(),
        pattern: Pattern::Contains {
            entries: conditions,
            index: indices.index(),
        },
        key: Some(variables),
        limit: Some(Limit {
            name: name.unwrap_or_else(|| format!("{namespace}_{}", position + 1)),
            text: numbers(node)?,
        }),
        is_shadow: false,
    })
}

/// A list of texts; empty if there is none.
fn texts<'n>(node: &'n Node, key: &str) -> Result<Vec<&'n str>, String> {
    let Some(list) = node.get(key) else {
        return Ok(Vec::new());
    };
    let items = list.items();
    let items = items.ok_or_else(|| format!("`{key}` must be a list"))?;
    let texts = items.iter().map(Node::text).collect::<Option<_>>();
    texts.ok_or_else(|| format!("`{key}` must be a list of texts"))
}

/// An entry of `contains`.
fn condition(comparison: &Comparison) -> Result<String, String> {
    let Comparison {
        operand,
        test,
        text,
    } = comparison;
    let key = &operand.key;
    // In a rule, these would not be part of a key or a value.
    if key.is_empty() || key.contains('=') || key.ends_with('!') {
        return Err(format!("a rule cannot have the key `{key}`"));
    }
    match test {
        Test::Is if text.ends_with('*') => Err(format!(
            "a rule cannot have the value `{text}`: its * would be a wildcard"
        )),
        Test::Is => Ok(format!("{key}={text}")),
        Test::IsNot => Ok(format!("{key}!={text}")),
        Test::StartsWith => Ok(format!("{key}={text}*")),
    }
}

type Index = Option<usize>;

/// The position of the descriptor that the expressions of a limit look at.
#[derive(Default)]
struct Indices {
    /// The index of the first expression, which may be none.
    seen: Option<Index>,
}

impl Indices {
    fn add(&mut self, operand: &Operand) -> Result<(), String> {
        let seen = *self.seen.get_or_insert(operand.index);
        if seen == operand.index {
            return Ok(());
        }
        Err("its expressions look at several descriptors, and a rule looks at one".to_owned())
    }

    /// A limit without expressions counts a request once, at its first descriptor.
    fn index(&self) -> Option<usize> {
        self.seen.unwrap_or(Some(0))
    }
}

/// The numbers of a limit: Limitador's windows begin with the first request.
fn numbers(node: &Node) -> Result<String, String> {
    let number = |key: &str| {
        let number = node.get(key).and_then(Node::number);
        number.ok_or_else(|| format!("`{key}` is missing, or no whole number"))
    };
    let (max_value, seconds) = (number("max_value")?, number("seconds")?);
    if max_value == 0 {
        return Ok(NEVER.to_owned());
    }
    let text = format!("{max_value}/{seconds} s window");
    let parsed: Result<Numbers, _> = text.parse();
    parsed.map_err(|error| format!("`{text}`: {error}"))?;
    Ok(text)
}
