//! What the benchmarks share: Markdown tables, medians, and the results page `docs/benchmarks.md`.
//!
//! Each benchmark owns the part of the page between two markers with its name.

use std::fmt;
use std::path::Path;
use std::process::Command;

/// A Markdown table, built row by row.
pub struct Table {
    lines: Vec<String>,
}

impl Table {
    /// A table with these column headings and no rows.
    pub fn new(heads: &[&str]) -> Self {
        let rule = vec!["--"; heads.len()];
        Self {
            lines: vec![line(heads), line(&rule)],
        }
    }

    /// Appends a row.
    pub fn row(&mut self, cells: &[String]) {
        let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
        self.lines.push(line(&cells));
    }

    /// The row added last, as Markdown.
    pub fn last_line(&self) -> &str {
        self.lines.last().map_or("", String::as_str)
    }
}

fn line(cells: &[&str]) -> String {
    format!("| {} |", cells.join(" | "))
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// The median of the samples.
///
/// # Panics
///
/// Without samples.
pub fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Replaces the part of `docs/benchmarks.md` that belongs to the benchmark `name`.
pub fn write(name: &str, command: &str, text: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks.md");
    if let Some(folder) = page.parent() {
        // A failure shows below, when the page cannot be written.
        let _ = std::fs::create_dir_all(folder);
    }
    let old = std::fs::read_to_string(&page).unwrap_or_else(|_| {
        "# Benchmarks\n\nThe last results of each benchmark, written by the benchmark itself. \
         Machines differ and are shared: compare the columns of one run, not the runs.\n"
            .to_owned()
    });
    let (begin, end) = (
        format!("<!-- begin {name} -->"),
        format!("<!-- end {name} -->"),
    );
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    let date = date.map_or_else(
        |_| "unknown date".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    );
    let part = format!("{begin}\n## {name}\n\n`{command}`, {date}\n\n{text}{end}");
    let new = match (old.find(&begin), old.find(&end)) {
        (Some(from), Some(to)) => format!("{}{part}{}", &old[..from], &old[to + end.len()..]),
        _ => format!("{old}\n{part}\n"),
    };
    match std::fs::write(&page, new) {
        Ok(()) => eprintln!("wrote docs/benchmarks.md"),
        Err(error) => eprintln!("could not write docs/benchmarks.md: {error}"),
    }
}
