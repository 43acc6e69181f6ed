//! Tables for people, and the page of last results, `docs/benchmarks.md`: each benchmark owns the
//! part between its own two marks.

use std::fmt;
use std::path::Path;
use std::process::Command;

/// A Markdown table in the making.
pub(crate) struct Table {
    lines: Vec<String>,
}

impl Table {
    pub(crate) fn new(heads: &[&str]) -> Self {
        let rule = vec!["--"; heads.len()];
        Self {
            lines: vec![line(heads), line(&rule)],
        }
    }

    pub(crate) fn row(&mut self, cells: &[String]) {
        let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
        self.lines.push(line(&cells));
    }

    pub(crate) fn last_line(&self) -> &str {
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

pub(crate) fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Puts `text` into the page, in the place of what this benchmark wrote there before.
pub(crate) fn write(name: &str, command: &str, text: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks.md");
    if let Some(folder) = page.parent() {
        // Where it cannot be made, the page cannot be written, and that is said below.
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
