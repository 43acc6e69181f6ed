//! The pages of docs/: all are in the book's summary, their links resolve, the commands that they show
//! exist with their options, and translations name the same keys as their originals. Links and commands
//! of the READMEs, too.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn docs() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../../docs").canonicalize().unwrap()
}

fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut open = vec![docs()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// The pages of docs/, and the first pages of the repository.
fn pages_and_readmes() -> Vec<PathBuf> {
    let root = docs().parent().unwrap().to_owned();
    let names = ["README.md", "README.pt-BR.md", "ARCHITECTURE.md"];
    let mut all = pages();
    all.extend(names.map(|name| root.join(name)));
    all
}

/// The page without its code, and its blocks of shell commands.
fn split(page: &str) -> (String, Vec<String>) {
    let (mut prose, mut commands) = (String::new(), Vec::new());
    let mut fence: Option<&str> = None;
    for line in page.lines() {
        match (fence, line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => fence = Some(language),
            (Some(_), Some(_)) => fence = None,
            (Some("sh"), None) => commands.push(line.to_owned()),
            (Some(_), None) => {}
            (None, None) => {
                prose.push_str(line);
                prose.push('\n');
            }
        }
    }
    (prose, commands)
}

/// The anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_page_is_in_the_summary() {
    let summary = fs::read_to_string(docs().join("SUMMARY.md")).unwrap();
    for page in pages() {
        let name = page.strip_prefix(docs()).unwrap().to_str().unwrap();
        let is_listed = name == "SUMMARY.md" || summary.contains(&format!("]({name})"));
        assert!(is_listed, "docs/{name} is not in docs/SUMMARY.md");
    }
}

#[test]
fn links_between_pages_resolve() {
    let mut broken = Vec::new();
    for page in pages_and_readmes() {
        let (prose, _) = split(&fs::read_to_string(&page).unwrap());
        for link in prose.split("](").skip(1) {
            let link = link.split([')', ' ']).next().unwrap();
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(file)
            };
            let is_found = match fs::read_to_string(&target) {
                Ok(_) if section.is_empty() => true,
                Ok(text) => {
                    let headings = text.lines().filter(|line| line.starts_with('#'));
                    let mut anchors = headings.map(|line| anchor(line.trim_start_matches('#')));
                    // A translated page keeps the names of the original's sections.
                    anchors.any(|anchor| anchor == section)
                        || text.contains(&format!("<a id=\"{section}\"></a>"))
                }
                Err(_) => target.is_dir(),
            };
            if !is_found {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn commands_of_the_pages_exist_with_their_options() {
    let mut checked = 0;
    for page in pages_and_readmes() {
        let (_, lines) = split(&fs::read_to_string(&page).unwrap());
        for line in lines {
            let line = line.trim_start();
            let run = line.strip_prefix("cargo run ");
            let run = run.and_then(|rest| Some(rest.split_once("-- ")?.1));
            let Some(command) = line.strip_prefix("balde ").or(run) else {
                continue;
            };
            let end = command
                .find([';', '|', '>', '&', '#'])
                .unwrap_or(command.len());
            // A line that goes on, or that a shell has to expand, is only checked so far.
            let words = command[..end].split_whitespace();
            let words =
                words.take_while(|word| !word.contains(['\\', '$', '(', '\'', '"', '[', '…']));
            let mut balde = Command::new(env!("CARGO_BIN_EXE_balde"));
            let output = balde.args(words).arg("--help").output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success(),
                "{}: {line}\n{text}",
                page.display()
            );
            checked += 1;
        }
    }
    assert!(checked >= 3, "only {checked} commands were found");
}

/// What stands between backticks in a page's prose: keys, metrics, files, commands.
fn code_spans(page: &str) -> BTreeSet<String> {
    let (prose, _) = split(page);
    let lines = prose.lines();
    let spans = lines.flat_map(|line| line.split('`').skip(1).step_by(2));
    spans.map(str::to_owned).collect()
}

#[test]
fn translations_name_the_same_keys_metrics_and_commands_as_their_originals() {
    let mut compared = 0;
    for page in pages() {
        let name = page.strip_prefix(docs()).unwrap();
        let Ok(name) = name.strip_prefix("pt-BR") else {
            continue;
        };
        // The index has no original.
        let Ok(original) = fs::read_to_string(docs().join(name)) else {
            continue;
        };
        let translated = fs::read_to_string(&page).unwrap();
        let (original, translated) = (code_spans(&original), code_spans(&translated));
        let missing: Vec<_> = original.difference(&translated).collect();
        let added: Vec<_> = translated.difference(&original).collect();
        assert!(
            missing.is_empty() && added.is_empty(),
            "docs/pt-BR/{}: missing {missing:?}, added {added:?}",
            name.display()
        );
        compared += 1;
    }
    assert!(compared >= 5, "only {compared} translations were found");
}
