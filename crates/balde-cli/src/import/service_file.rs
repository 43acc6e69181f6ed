//! The file for `balde serve` that an import writes.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use super::notes::{Notes, Place};

/// The most limits of an options file, and bytes of their names.
const LIMITS_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 64;
/// The most rules of a service's file.
const RULES_MAX: usize = 10_000;

/// A bucket that never has a token in practice: it starts empty, and the first token comes after a
/// hundred years.
pub(super) const NEVER: &str = "1/36500 days empty";

/// Limits and rules, in the order of the files that were read.
#[derive(Debug, Default)]
pub(super) struct ServiceFile {
    rules: Vec<Rule>,
}

/// A rule with its limit.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) place: Place,
    pub(super) domain: String,
    pub(super) pattern: Pattern,
    /// The keys whose values name the bucket; `None` for all keys of the descriptor.
    pub(super) key: Option<Vec<String>>,
    /// `None` if requests are not limited.
    pub(super) limit: Option<Limit>,
    pub(super) is_shadow: bool,
}

/// Which descriptors match, in the notation of the file.
#[derive(Debug)]
pub(super) enum Pattern {
    Match(Vec<String>),
    Contains {
        entries: Vec<String>,
        index: Option<usize>,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Limit {
    /// The name that it would like to have.
    pub(super) name: String,
    /// Its numbers, such as `60/min stepwise`.
    pub(super) text: String,
}

impl ServiceFile {
    pub(super) fn push(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// The file as TOML. Fails if it would have no rule or too many.
    pub(super) fn to_toml(&self, notes: &mut Notes) -> Result<String, String> {
        if self.rules.is_empty() {
            return Err("there is no limit that could be imported".to_owned());
        }
        if self.rules.len() > RULES_MAX {
            let count = self.rules.len();
            return Err(format!("{count} rules; a file has at most {RULES_MAX}"));
        }
        let mut names = Names::new(self);
        let mut limits = String::new();
        let mut rules = String::new();
        for rule in &self.rules {
            let name = match &rule.limit {
                None => None,
                Some(limit) => match names.name(rule, limit) {
                    Ok((name, is_new)) => {
                        if is_new {
                            write_limit(&mut limits, &name, limit, &rule.place);
                        }
                        Some(name)
                    }
                    Err(reason) => {
                        notes.add(&rule.place, reason);
                        continue;
                    }
                },
            };
            write_rule(&mut rules, rule, name.as_deref());
        }
        Ok(format!(
            "# Written by `balde import`. `balde check` validates it, `balde serve -c` runs it.\n\n\
             {limits}[rls]\naddress = \"127.0.0.1:8081\"\n{rules}"
        ))
    }
}

/// Gives limits their names. Rules with more than 256 limits share those with the same numbers, because
/// different descriptors have different buckets in any case.
struct Names {
    is_shared: bool,
    used: HashSet<String>,
    by_text: HashMap<String, String>,
}

impl Names {
    fn new(file: &ServiceFile) -> Self {
        let limited = file.rules.iter().filter(|rule| rule.limit.is_some());
        Self {
            is_shared: limited.count() > LIMITS_MAX,
            used: HashSet::new(),
            by_text: HashMap::new(),
        }
    }

    /// The name of a rule's limit, and whether it is new.
    fn name(&mut self, rule: &Rule, limit: &Limit) -> Result<(String, bool), String> {
        // The bucket of a rule with `key` is not that of the whole descriptor, so its limit is its own.
        let can_share = self.is_shared && rule.key.is_none();
        if can_share && let Some(name) = self.by_text.get(&limit.text) {
            return Ok((name.clone(), false));
        }
        if self.used.len() == LIMITS_MAX {
            return Err(format!(
                "a file has at most {LIMITS_MAX} different limits; split it by domain"
            ));
        }
        let wish = if can_share { &limit.text } else { &limit.name };
        let name = self.free(wish);
        self.used.insert(name.clone());
        if can_share {
            self.by_text.insert(limit.text.clone(), name.clone());
        }
        Ok((name, true))
    }

    fn free(&self, wish: &str) -> String {
        let plain = wish.chars().map(|letter| match letter {
            letter if letter.is_ascii_alphanumeric() || letter == '-' => letter,
            _ => '_',
        });
        // Room for a number.
        let plain: String = plain.take(NAME_BYTES_MAX - 5).collect();
        let plain = match plain.trim_matches('_') {
            "" => "limit",
            plain => plain,
        };
        let numbered = (2..).map(|number| format!("{plain}_{number}"));
        let mut all = std::iter::once(plain.to_owned()).chain(numbered);
        let free = all.find(|name| !self.used.contains(name));
        free.unwrap_or_default()
    }
}

fn write_limit(text: &mut String, name: &str, limit: &Limit, place: &Place) {
    let numbers = quoted(&limit.text);
    let place = comment(place);
    let _infallible = writeln!(text, "# {place}\n[limits.{name}]\nlimit = {numbers}\n");
}

fn write_rule(text: &mut String, rule: &Rule, limit: Option<&str>) {
    let place = comment(&rule.place);
    let domain = quoted(&rule.domain);
    let _infallible = writeln!(text, "\n# {place}\n[[rls.rule]]\ndomain = {domain}");
    let mut line = |key: &str, value: String| {
        let _infallible = writeln!(text, "{key} = {value}");
    };
    match &rule.pattern {
        Pattern::Match(entries) => line("match", list(entries)),
        Pattern::Contains { entries, index } => {
            line("contains", list(entries));
            if let Some(index) = index {
                line("descriptor", index.to_string());
            }
        }
    }
    if let Some(key) = &rule.key {
        line("key", list(key));
    }
    match limit {
        Some(name) => line("limit", quoted(name)),
        None => line("unlimited", "true".to_owned()),
    }
    if rule.is_shadow {
        line("shadow", "true".to_owned());
    }
}

/// A file's name may have any characters; a comment must end with its line.
fn comment(place: &Place) -> String {
    place.to_string().replace(char::is_control, "?")
}

fn list(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(item)).collect();
    format!("[{}]", items.join(", "))
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => {
                let _infallible = write!(quoted, "\\u{:04X}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}
