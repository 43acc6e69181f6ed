//! The pages, and their fenced blocks.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().unwrap()
}

/// A fenced block.
#[derive(Clone)]
pub(crate) struct Block {
    /// Relative to the repository.
    pub(crate) page: String,
    /// The line of the opening fence.
    pub(crate) line: usize,
    /// What stands after the opening fence.
    pub(crate) language: String,
    pub(crate) code: String,
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.page, self.line)
    }
}

/// Every page with its text: the first pages of the repository and of the crates, and those of docs/.
pub(crate) fn pages() -> Vec<(String, String)> {
    let root = repository();
    let mut names: Vec<String> = [
        "README.md",
        "README.pt-BR.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
    ]
    .map(str::to_owned)
    .into();
    let below = |folder: &str| {
        let entries = fs::read_dir(root.join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.map(|name| format!("{folder}/{name}")).collect();
        names.sort();
        names
    };
    let docs = ["docs", "docs/pt-BR"].map(below).concat();
    let is_page = |name: &String| Path::new(name).extension().is_some_and(|end| end == "md");
    names.extend(docs.into_iter().filter(is_page));
    let readmes = below("crates").into_iter();
    let readmes = readmes.map(|folder| format!("{folder}/README.md"));
    names.extend(readmes.filter(|name| root.join(name).exists()));
    let texts = names.into_iter().map(|name| {
        let text = fs::read_to_string(root.join(&name)).unwrap();
        (name, text)
    });
    texts.collect()
}

/// Every block, in the order of the pages.
pub(crate) fn all() -> Vec<Block> {
    let mut blocks = Vec::new();
    for (page, text) in pages() {
        let mut open: Option<Block> = None;
        for (number, line) in (1..).zip(text.lines()) {
            let fence = line.trim_start().strip_prefix("```");
            match (open.as_mut(), fence) {
                (None, Some(language)) => {
                    open = Some(Block {
                        page: page.clone(),
                        line: number,
                        language: language.trim().to_owned(),
                        code: String::new(),
                    });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => {
                    block.code.push_str(line);
                    block.code.push('\n');
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{page}: a block without an end");
    }
    assert!(blocks.len() > 50, "only {} blocks were found", blocks.len());
    blocks
}
