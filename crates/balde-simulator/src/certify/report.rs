//! What a conversation found.

use std::fmt;

use super::check::Observed;

/// How the answers of one address compare with what is published.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The address.
    pub url: String,
    /// Every step, in order.
    pub steps: Vec<StepReport>,
}

/// One step: what was sent and answered, and what the source says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StepReport {
    /// What the step shows.
    pub name: &'static str,
    /// The part of the conversation.
    pub chapter: &'static str,
    /// Where the sentence is from.
    pub source: &'static str,
    /// What the source says, in short.
    pub sentence: &'static str,
    /// Whether the answer is as published.
    pub verdict: Verdict,
    /// The request. Empty if it was not sent.
    pub request: String,
    /// The answer. Empty if there was none.
    pub answer: String,
    pub(super) observed: Observed,
}

/// Whether an answer is as published.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It is.
    AsPublished,
    /// It differs, in these respects.
    Differs(Vec<String>),
    /// The step could not be made, for this reason.
    NotRun(String),
}

/// A step that two addresses answered differently.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The name of the step.
    pub name: &'static str,
    /// How the answers differ.
    pub text: String,
}

impl Report {
    /// The steps whose answers differ, and those that could not be made.
    pub fn failed(&self) -> impl Iterator<Item = &StepReport> {
        let steps = self.steps.iter();
        steps.filter(|step| step.verdict != Verdict::AsPublished)
    }

    /// Returns true if every answer is as published.
    pub fn is_as_published(&self) -> bool {
        self.failed().next().is_none()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.url)?;
        let mut chapter = "";
        for step in &self.steps {
            if step.chapter != chapter {
                chapter = step.chapter;
                writeln!(f, "\n{chapter}")?;
            }
            match &step.verdict {
                Verdict::AsPublished => writeln!(f, "  ok       {}", step.name)?,
                Verdict::NotRun(reason) => writeln!(f, "  NOT RUN  {}: {reason}", step.name)?,
                Verdict::Differs(differences) => {
                    writeln!(f, "  DIFFERS  {}", step.name)?;
                    for difference in differences {
                        writeln!(f, "             {difference}")?;
                    }
                    writeln!(
                        f,
                        "             published: {} ({})",
                        step.sentence, step.source
                    )?;
                }
            }
        }
        let of =
            |is: fn(&Verdict) -> bool| self.steps.iter().filter(|step| is(&step.verdict)).count();
        writeln!(
            f,
            "\n{} as published, {} different, {} not run",
            of(|verdict| *verdict == Verdict::AsPublished),
            of(|verdict| matches!(verdict, Verdict::Differs(_))),
            of(|verdict| matches!(verdict, Verdict::NotRun(_))),
        )
    }
}

/// Where two addresses answered the same steps differently: by status, by error type, by the elements of
/// their documents, or in what is published about the step.
pub fn compare(one: &Report, other: &Report) -> Vec<Difference> {
    let pairs = one.steps.iter().zip(&other.steps);
    let differences = pairs.filter_map(|(one, other)| {
        let text = difference(one, other)?;
        Some(Difference {
            name: one.name,
            text,
        })
    });
    differences.collect()
}

fn difference(one: &StepReport, other: &StepReport) -> Option<String> {
    let (a, b) = (&one.observed, &other.observed);
    if (a.status, &a.kind) != (b.status, &b.kind) {
        return Some(format!(
            "{} {} and {} {}",
            a.status, a.kind, b.status, b.kind
        ));
    }
    let only = |these: &Observed, those: &Observed| {
        let only = these.elements.difference(&those.elements).cloned();
        only.collect::<Vec<_>>().join(", ")
    };
    let found: Vec<String> = [("first", only(a, b)), ("second", only(b, a))]
        .into_iter()
        .filter(|(_, elements)| !elements.is_empty())
        .map(|(name, elements)| format!("only the {name} answer has {elements}"))
        .collect();
    if !found.is_empty() {
        return Some(found.join("; "));
    }
    let text = |step: &StepReport| match &step.verdict {
        Verdict::AsPublished => "as published".to_owned(),
        Verdict::Differs(differences) => differences.join("; "),
        Verdict::NotRun(reason) => format!("not run: {reason}"),
    };
    let is_same = (one.verdict == Verdict::AsPublished) == (other.verdict == Verdict::AsPublished);
    (!is_same).then(|| format!("the first is {}, the second is {}", text(one), text(other)))
}
