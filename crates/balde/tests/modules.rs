//! The modules of every crate depend on each other one way. The graph is computed from the paths in
//! the sources (`crate::…` and `super::…`), without code under `#[cfg(test)]`, comments and strings.
//!
//! A module is what stands directly below the root of a crate, and below the folders in
//! [`INNER_FOLDERS`] what stands directly below them. An item that the root re-exports belongs to
//! the module that defines it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Folders whose own modules are checked too, by crate.
const INNER_FOLDERS: [(&str, &str); 8] = [
    ("balde", "options"),
    ("balde", "telemetry"),
    ("balde-config", "document"),
    ("balde-dict", "operations"),
    ("balde-gateway", "config"),
    ("balde-monitor", "history"),
    ("balde-policy", "engine"),
    ("balde-simulator", "directory"),
];

/// The text of each source file, by its path below `src`.
type Sources = BTreeMap<String, String>;

/// Each module's dependencies, each with a line that shows it.
type Graph = BTreeMap<String, BTreeMap<String, String>>;

#[test]
fn the_modules_of_every_crate_depend_on_each_other_one_way() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut wrong = Vec::new();
    let mut checked = 0;
    for entry in fs::read_dir(crates).expect("the folder of the crates") {
        let folder = entry.expect("an entry").path();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let mut sources = Sources::new();
        read(&folder.join("src"), "", &mut sources);
        if sources.is_empty() {
            continue;
        }
        checked += 1;
        let inner = INNER_FOLDERS.iter().filter(|(known, _)| *known == name);
        let folders = std::iter::once("").chain(inner.map(|(_, folder)| *folder));
        let circles = folders.filter_map(|folder| circle(&graph(&sources, folder)));
        wrong.extend(circles.map(|circle| format!("{name}:{circle}")));
    }
    assert!(checked > 5, "the crates are beside this one");
    assert!(
        wrong.is_empty(),
        "circles between modules\n{}",
        wrong.join("\n")
    );
}

#[test]
fn a_planted_circle_is_found_and_shown() {
    let sources = sources(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::Thing;"),
        ("a.rs", "use crate::b::{self, Other as _};"),
        ("b/mod.rs", "mod deep;"),
        ("b/deep.rs", "fn f() { super::super::c::g(); }"),
        ("c.rs", "/// See [`crate::a::A`].\npub struct Thing;"),
    ]);
    assert_eq!(circle(&graph(&sources, "")), None);

    let mut planted = sources.clone();
    planted.insert("c.rs".into(), "fn f() -> crate::a::A { todo!() }".into());
    let found = circle(&graph(&planted, "")).expect("the circle");
    assert!(found.contains("a -> b (a.rs: crate::b)"), "{found}");
    assert!(found.contains("b -> c (b/deep.rs: crate::c::g)"), "{found}");
    assert!(found.contains("c -> a (c.rs: crate::a::A)"), "{found}");

    // Through a name that the root re-exports.
    let mut planted = sources.clone();
    planted.insert("d.rs".into(), "use crate::Thing;".into());
    planted.insert("c.rs".into(), "use crate::d::D;".into());
    assert!(circle(&graph(&planted, "")).is_some());

    // Tests, comments and strings do not count.
    let mut clean = sources;
    let text = "/* crate::a */ const S: &str = \"crate::a::A\"; // crate::a::A
        #[cfg(test)]
        mod tests { use crate::a::A; }
        #[cfg(all(test, feature = \"x\"))]
        mod more;";
    clean.insert("c.rs".into(), text.into());
    clean.insert("c/more.rs".into(), "use crate::a::A;".into());
    assert_eq!(circle(&graph(&clean, "")), None);
}

#[test]
fn a_circle_inside_a_folder_is_found() {
    let sources = sources(&[
        ("lib.rs", "mod a;"),
        ("a/mod.rs", "mod x;\nmod y;\npub(crate) use y::Y;"),
        ("a/x.rs", "use super::Y;"),
        ("a/y.rs", "mod inner { use super::super::x::X; }"),
    ]);
    assert_eq!(circle(&graph(&sources, "")), None);
    let found = circle(&graph(&sources, "a")).expect("the circle");
    assert!(
        found.contains("x -> y") && found.contains("y -> x"),
        "{found}"
    );
}

fn sources(files: &[(&str, &str)]) -> Sources {
    let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
    files.iter().map(owned).collect()
}

fn read(folder: &Path, below: &str, sources: &mut Sources) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            read(&path, &format!("{below}{name}/"), sources);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).expect("a source file is text");
            sources.insert(format!("{below}{name}"), text);
        }
    }
}

/// The graph of the modules directly below `folder`; below the root of the crate, if that is empty.
fn graph(sources: &Sources, folder: &str) -> Graph {
    let base: Vec<String> = folder
        .split('/')
        .filter(|s| !s.is_empty())
        .map(Into::into)
        .collect();
    let files: Vec<(&String, Vec<String>, File)> = sources
        .iter()
        .map(|(path, text)| (path, module_of(path), File::parse(text, &module_of(path))))
        .collect();
    let tests: BTreeSet<&Vec<String>> = files.iter().flat_map(|(_, _, file)| &file.tests).collect();
    let is_test =
        |module: &[String]| (1..=module.len()).any(|n| tests.contains(&module[..n].to_vec()));

    let mut nodes = BTreeSet::new();
    for (_, module, _) in &files {
        if module.len() > base.len() && module.starts_with(&base) && !is_test(module) {
            nodes.insert(module[base.len()].clone());
        }
    }
    let mut exports = BTreeMap::new();
    for (_, module, file) in &files {
        if *module == base {
            exports.extend(file.exports.iter().cloned());
        }
    }
    let node_of = |path: &[String]| -> Option<String> {
        let name = path.strip_prefix(&base[..])?.first()?;
        if nodes.contains(name) {
            return Some(name.clone());
        }
        exports
            .get(name)
            .filter(|module| nodes.contains(*module))
            .cloned()
    };

    let mut graph: Graph = nodes
        .iter()
        .map(|node| (node.clone(), BTreeMap::new()))
        .collect();
    for (path, module, file) in &files {
        if is_test(module) || module.len() <= base.len() || !module.starts_with(&base) {
            continue;
        }
        let own = &module[base.len()];
        for reference in &file.references {
            if let Some(other) = node_of(reference)
                && other != *own
            {
                let shown = format!("{path}: crate::{}", reference.join("::"));
                let edges = graph.get_mut(own).expect("every file is in a node");
                edges.entry(other).or_insert(shown);
            }
        }
    }
    graph
}

/// The module that a file is.
fn module_of(path: &str) -> Vec<String> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let mut module: Vec<String> = path.split('/').map(Into::into).collect();
    if matches!(
        module.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        module.pop();
    }
    module
}

/// A circle, as the edges that form it; nothing if there is none.
fn circle(graph: &Graph) -> Option<String> {
    let mut done = BTreeSet::new();
    graph.keys().find_map(|start| {
        let mut way = Vec::new();
        follow(graph, start, &mut way, &mut done)
    })
}

fn follow<'g>(
    graph: &'g Graph,
    node: &'g str,
    way: &mut Vec<&'g str>,
    done: &mut BTreeSet<&'g str>,
) -> Option<String> {
    if let Some(at) = way.iter().position(|known| *known == node) {
        let mut round = way[at..].to_vec();
        round.push(node);
        let edge =
            |pair: &[&str]| format!("  {} -> {} ({})", pair[0], pair[1], graph[pair[0]][pair[1]]);
        let edges: Vec<_> = round.windows(2).map(edge).collect();
        return Some(format!("\n{}", edges.join("\n")));
    }
    if done.contains(node) {
        return None;
    }
    way.push(node);
    let found = graph[node]
        .keys()
        .find_map(|next| follow(graph, next, way, done));
    way.pop();
    done.insert(node);
    found
}

/// What matters of a source file.
#[derive(Default)]
struct File {
    /// Absolute paths that the file names.
    references: Vec<Vec<String>>,
    /// Names that the file re-exports, each with the first segment of its path.
    exports: Vec<(String, String)>,
    /// Child modules that are compiled for tests only.
    tests: Vec<Vec<String>>,
}

impl File {
    fn parse(text: &str, module: &[String]) -> Self {
        let tokens = tokens(&without_comments_and_strings(text));
        let mut file = Self::default();
        // Inline modules that are open, each with the depth of its braces.
        let mut inline: Vec<(String, usize)> = Vec::new();
        let (mut at, mut depth) = (0, 0_usize);
        while at < tokens.len() {
            let here = || {
                let inline = inline.iter().map(|(name, _)| name.clone());
                module.iter().cloned().chain(inline).collect::<Vec<_>>()
            };
            match tokens[at].as_str() {
                "#" if is_for_tests(&tokens[at..]) => {
                    let (end, child) = skip_item(&tokens, skip_attribute(&tokens, at));
                    if let Some(child) = child {
                        let mut path = here();
                        path.push(child);
                        file.tests.push(path);
                    }
                    at = end;
                    continue;
                }
                "mod" if tokens.get(at + 2).is_some_and(|t| t == "{") => {
                    inline.push((tokens[at + 1].clone(), depth));
                    at += 2;
                    continue;
                }
                "{" => depth += 1,
                "}" => {
                    depth = depth.saturating_sub(1);
                    inline.retain(|(_, opened)| *opened < depth);
                }
                "use" if is_exported(&tokens[..at]) => {
                    let mut paths = Vec::new();
                    tree(&tokens, at + 1, &[], &mut paths);
                    for path in paths {
                        let mut path = path.into_iter().filter(|s| s != "self" && s != "crate");
                        if let (Some(first), Some(last)) = (path.next(), path.next_back()) {
                            file.exports.push((last, first));
                        }
                    }
                }
                "crate" | "super" if tokens.get(at + 1).is_some_and(|t| t == "::") => {
                    let mut paths = Vec::new();
                    at = tree(&tokens, at, &[], &mut paths);
                    let home = here();
                    file.references
                        .extend(paths.into_iter().filter_map(|path| absolute(&home, path)));
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        file
    }
}

/// A path from the root of the crate.
fn absolute(home: &[String], path: Vec<String>) -> Option<Vec<String>> {
    let supers = path
        .iter()
        .take_while(|segment| *segment == "super")
        .count();
    let from = if supers > 0 {
        home.get(..home.len().checked_sub(supers)?)?.to_vec()
    } else {
        Vec::new()
    };
    let rest = path.into_iter().skip(supers.max(1));
    Some(
        from.into_iter()
            .chain(rest.filter(|s| s != "self"))
            .collect(),
    )
}

/// Reads a path, or a tree of paths in braces, from `at` on. Returns where it ends.
fn tree(
    tokens: &[String],
    mut at: usize,
    before: &[String],
    paths: &mut Vec<Vec<String>>,
) -> usize {
    let mut path = before.to_vec();
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = tree(tokens, at, &path, paths).max(at + 1);
                    at += usize::from(tokens.get(at).is_some_and(|t| t == ","));
                }
                return at + 1;
            }
            Some(word) if is_word(word) => {
                path.push(word.to_owned());
                at += 1;
            }
            _ => break,
        }
        if tokens.get(at).is_none_or(|token| token != "::") {
            break;
        }
        at += 1;
    }
    if let Some([word, renamed]) = tokens.get(at..at + 2)
        && word == "as"
    {
        path.push(renamed.clone());
        at += 2;
    }
    paths.push(path);
    at
}

/// Whether what precedes a `use` makes it public, to the crate at least.
fn is_exported(before: &[String]) -> bool {
    match before {
        [.., last] if last == "pub" => true,
        [.., open, _, close] if open == "(" && close == ")" => {
            before.len() > 3 && before[before.len() - 4] == "pub"
        }
        _ => false,
    }
}

/// Whether the attribute that begins here is a `cfg` that is on in tests only.
fn is_for_tests(tokens: &[String]) -> bool {
    let end = skip_attribute(tokens, 0);
    let words: Vec<_> = tokens[..end].iter().map(String::as_str).collect();
    matches!(words[..], ["#", "[", "cfg", ..])
        && words.contains(&"test")
        && !words.windows(3).any(|three| three == ["not", "(", "test"])
}

fn skip_attribute(tokens: &[String], at: usize) -> usize {
    let mut open = 0_usize;
    for (offset, token) in tokens[at..].iter().enumerate() {
        match token.as_str() {
            "[" => open += 1,
            "]" if open == 1 => return at + offset + 1,
            "]" => open -= 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Skips the item that begins here. Returns where it ends, and the name of a module in a file of its
/// own.
fn skip_item(tokens: &[String], mut at: usize) -> (usize, Option<String>) {
    let mut child = None;
    let mut open = 0_usize;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "#" if open == 0 => {
                at = skip_attribute(tokens, at);
                continue;
            }
            "mod" if open == 0 => child = tokens.get(at + 1).cloned(),
            "{" => open += 1,
            "}" if open <= 1 => return (at + 1, None),
            "}" => open -= 1,
            ";" if open == 0 => return (at + 1, child),
            _ => {}
        }
        at += 1;
    }
    (at, None)
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '*')
}

fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            tokens.push(std::mem::take(&mut word));
        }
        if c == ':' && chars.next_if_eq(&':').is_some() {
            tokens.push("::".to_owned());
        } else if !c.is_whitespace() {
            tokens.push(c.to_string());
        }
    }
    tokens.extend(Some(word).filter(|word| !word.is_empty()));
    tokens
}

fn without_comments_and_strings(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let mut i = 0;
    while i < chars.len() {
        match (at(i), at(i + 1)) {
            ('/', '/') => {
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            ('/', '*') => {
                let mut open = 1;
                i += 2;
                while i < chars.len() && open > 0 {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => open += 1,
                        ('*', '/') => open -= 1,
                        _ => {}
                    }
                    i += if matches!((at(i), at(i + 1)), ('/', '*') | ('*', '/')) {
                        2
                    } else {
                        1
                    };
                }
                out.push(' ');
            }
            ('r', '"' | '#') if !is_part_of_word(&chars, i) && raw_string(&chars, i).is_some() => {
                i = raw_string(&chars, i).unwrap_or(i + 1);
                out.push_str("\"\"");
            }
            ('"', _) => {
                i += 1;
                while i < chars.len() && at(i) != '"' {
                    i += if at(i) == '\\' { 2 } else { 1 };
                }
                i += 1;
                out.push_str("\"\"");
            }
            // A character, and not a lifetime.
            ('\'', '\\') => {
                i += 3;
                while i < chars.len() && at(i) != '\'' {
                    i += 1;
                }
                i += 1;
            }
            ('\'', _) if at(i + 2) == '\'' => i += 3,
            (c, _) => {
                out.push(c);
                i += 1;
            }
        }
    }
    out
}

fn is_part_of_word(chars: &[char], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| chars[before]);
    // `br"…"` is a raw string too.
    before.is_some_and(|c| (c.is_alphanumeric() && c != 'b') || c == '_')
}

/// Where the raw string that begins here ends.
fn raw_string(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    let start = at + 1 + hashes;
    if chars.get(start) != Some(&'"') {
        return None;
    }
    let mut i = start + 1;
    while i < chars.len() {
        let closes = chars[i] == '"'
            && chars[i + 1..]
                .iter()
                .take(hashes)
                .filter(|c| **c == '#')
                .count()
                == hashes;
        if closes {
            return Some(i + 1 + hashes);
        }
        i += 1;
    }
    Some(i)
}
