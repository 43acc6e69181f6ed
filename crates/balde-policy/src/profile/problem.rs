//! What is wrong with a profile, all of it, and where.

use std::fmt;
use std::ops::Range;

/// The most problems that are told at once.
pub const PROBLEMS_MAX: usize = 100;

/// A place in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    line: usize,
    column: usize,
    span: Range<usize>,
}

impl Place {
    /// The place of some bytes of a text.
    pub fn of(text: &str, span: Range<usize>) -> Self {
        let mut start = span.start.min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            span: start..span.end.clamp(start, text.len()),
        }
    }

    /// The line, from one.
    pub const fn line(&self) -> usize {
        self.line
    }

    /// The column, in characters from one.
    pub const fn column(&self) -> usize {
        self.column
    }

    /// The bytes of the text.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }
}

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    place: Option<Place>,
    reason: String,
}

impl Problem {
    /// What is wrong; without a place where it came from outside of the text.
    pub fn new(place: Option<Place>, reason: impl Into<String>) -> Self {
        Self {
            place,
            reason: reason.into(),
        }
    }

    /// Where.
    pub fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// What, and what to do about it.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{}:{}: {}", place.line, place.column, self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

/// Everything that is wrong with a profile, in the order of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    problems: Vec<Problem>,
    left_out: usize,
}

impl ProfileError {
    /// All these problems; of more than [`PROBLEMS_MAX`] the first. Nothing when there are none.
    pub fn of(mut problems: Vec<Problem>) -> Option<Self> {
        if problems.is_empty() {
            return None;
        }
        problems.sort_by_key(|problem| problem.place.as_ref().map(|place| place.span.start));
        problems.dedup();
        let left_out = problems.len().saturating_sub(PROBLEMS_MAX);
        problems.truncate(PROBLEMS_MAX);
        Some(Self { problems, left_out })
    }

    /// The problems, in the order of the text.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// How many more there are.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// One line for each problem, with the file's name before line and column.
    pub fn in_file(&self, file: &str) -> String {
        let mut lines: Vec<String> = Vec::new();
        for problem in &self.problems {
            let between = if problem.place.is_some() { "" } else { " " };
            lines.push(format!("{file}:{between}{problem}\n"));
        }
        if self.left_out > 0 {
            lines.push(format!("{file}: and {} more problems\n", self.left_out));
        }
        lines.concat()
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(f, "{newline}{problem}")?;
        }
        if self.left_out > 0 {
            write!(f, "\nand {} more problems", self.left_out)?;
        }
        Ok(())
    }
}

impl std::error::Error for ProfileError {}
