//! The pages, their tables, and the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().unwrap()
}

pub(crate) fn read(path: &str) -> String {
    let file = repository().join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// All files below a folder whose names end like this.
pub(crate) fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The texts of a crate's sources.
pub(crate) fn sources(name: &str) -> Vec<String> {
    let folder = repository().join("crates").join(name).join("src");
    let texts = files(&folder, ".rs").into_iter();
    texts
        .map(|file| fs::read_to_string(file).unwrap())
        .collect()
}

/// Words of small letters and underscores that begin with one of these.
pub(crate) fn names<'t>(text: &'t str, prefixes: &[&str]) -> BTreeSet<&'t str> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit()));
    let is_name = |word: &&str| prefixes.iter().any(|prefix| word.starts_with(prefix));
    words.filter(is_name).collect()
}

/// String literals that are one word.
pub(crate) fn literals(text: &str) -> BTreeSet<&str> {
    let parts = text.split('"');
    let is_word = |part: &&str| {
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        !part.is_empty() && part.bytes().all(is_letter)
    };
    parts.filter(is_word).collect()
}

/// A table of a page.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) page: String,
    /// The cells of the first row.
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// The page and the first row, by which a table is named in lists.
    pub(crate) fn name(&self) -> (String, String) {
        (self.page.clone(), self.head.join(" | "))
    }

    /// What stands between backticks in a column.
    pub(crate) fn spans(&self, column: usize) -> BTreeSet<String> {
        let cells = self.rows.iter().map(|row| &row[column]);
        cells.flat_map(|cell| spans(cell)).collect()
    }
}

/// What stands between backticks.
pub(crate) fn spans(text: &str) -> Vec<String> {
    let spans = text.split('`').skip(1).step_by(2);
    spans.map(str::to_owned).collect()
}

fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|');
    let row = row.strip_suffix('|').unwrap_or(row);
    // A bar inside of a cell is written with a backslash.
    let cells = row.replace("\\|", "\u{1}");
    let cells = cells.split('|');
    cells
        .map(|cell| cell.trim().replace('\u{1}', "|"))
        .collect()
}

/// The tables of a page, in their order.
pub(crate) fn tables(page: &str) -> Vec<Table> {
    let text = read(page);
    let lines: Vec<&str> = text.lines().collect();
    let is_row = |index: usize| lines.get(index).is_some_and(|line| line.starts_with('|'));
    let mut tables = Vec::new();
    for index in 1..lines.len() {
        let is_rule = lines[index].starts_with("|--") && is_row(index - 1);
        if is_rule {
            let rows = lines[index + 1..].iter();
            let rows = rows.take_while(|line| line.starts_with('|'));
            tables.push(Table {
                page: page.to_owned(),
                head: cells(lines[index - 1]),
                rows: rows.map(|row| cells(row)).collect(),
            });
        }
    }
    tables
}

/// The only table of a page that begins with these cells.
pub(crate) fn table(page: &str, head: &str) -> Table {
    let mut tables = tables(page).into_iter();
    let is_named = |table: &Table| table.head.join(" | ").starts_with(head);
    let table = tables.find(is_named);
    table.unwrap_or_else(|| panic!("{page} has no table that begins with `{head}`"))
}

/// The variants of an enum in a source file.
pub(crate) fn variants(file: &str, name: &str) -> BTreeSet<String> {
    let text = read(file);
    let (_, from) = text
        .split_once(&format!("enum {name} {{\n"))
        .unwrap_or_else(|| panic!("{file} has no enum {name}"));
    let body = from.split("\n}").next().unwrap();
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let lines = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    let names = lines.map(|line| {
        let end = line.find(|c: char| !c.is_ascii_alphanumeric());
        line[..end.unwrap_or(line.len())].to_owned()
    });
    names.collect()
}

/// `StillStale` as `still_stale`.
pub(crate) fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

/// The numbers of a text, with what groups their digits left out.
pub(crate) fn numbers(text: &str) -> Vec<String> {
    let mut numbers = Vec::new();
    let mut digits = String::new();
    let letters: Vec<char> = text.chars().collect();
    for (index, letter) in letters.iter().enumerate() {
        let follows = letters.get(index + 1).is_some_and(char::is_ascii_digit);
        if letter.is_ascii_digit() {
            digits.push(*letter);
        } else if !(digits.is_empty() || matches!(letter, ',' | '.') && follows) {
            numbers.push(std::mem::take(&mut digits));
        }
    }
    if !digits.is_empty() {
        numbers.push(digits);
    }
    numbers
}
