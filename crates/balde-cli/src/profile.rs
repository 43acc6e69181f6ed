//! A profile by the name it ships under, or from a file.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use balde_dict::{Table, profiles};
use balde_policy::{PROFILE_BYTES_MAX, Place, Problem, Profile, ProfileError};

/// How much of a long line is shown with a problem.
const SHOWN_CHARS_MAX: usize = 160;

/// Reads the profile of a name or of a file, with other values for some settings. What is wrong
/// with it comes back as text, ready to be shown.
pub(crate) fn load(name_or_file: &str, settings: &[(String, String)]) -> Result<Profile, String> {
    let overrides: Vec<(&str, &str)> = settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let text = match profiles::text(name_or_file) {
        Some(text) => text.to_owned(),
        None if Path::new(name_or_file).is_file() => read(name_or_file)?,
        None => {
            let names = profiles::TEXTS.map(|(name, _)| name).join(", ");
            return Err(format!(
                "there is no profile and no file `{name_or_file}`; the profiles are {names}\n"
            ));
        }
    };
    parse(&text, &overrides).map_err(|error| rendered(&error, name_or_file, &text))
}

/// Reads a file and tells what is wrong with it.
pub(crate) fn check(file: &str) -> Result<Profile, String> {
    let text = read(file)?;
    parse(&text, &[]).map_err(|error| rendered(&error, file, &text))
}

/// A profile of an API that balde knows has to fit that, too.
fn parse(text: &str, overrides: &[(&str, &str)]) -> Result<Profile, ProfileError> {
    let profile = Profile::parse_with(text, overrides)?;
    match profile.api() {
        Some("dict") => Table::new(profile).map(|table| table.profile().clone()),
        Some(_) => {
            let reason =
                "the only `api` there is an adapter for is \"dict\"; leave it out for others";
            let at = text.find("api").unwrap_or(0);
            let problem = Problem::new(Some(Place::of(text, at..at + 3)), reason);
            Err(ProfileError::of(vec![problem]).expect("one problem makes an error"))
        }
        None => Ok(profile),
    }
}

fn read(file: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(PROFILE_BYTES_MAX).unwrap_or(u64::MAX);
    File::open(file)
        .and_then(|opened| opened.take(limit + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("{file}: cannot be read: {error}\n"))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned();
        let place = Place::of(&text, valid..valid);
        let (line, column) = (place.line(), place.column());
        format!("{file}:{line}:{column}: not UTF-8\n")
    })
}

/// Each problem with the line it is in.
fn rendered(error: &ProfileError, file: &str, text: &str) -> String {
    let mut out = String::new();
    for problem in error.problems() {
        let Some(place) = problem.place() else {
            let _ = writeln!(out, "{file}: {}", problem.reason());
            continue;
        };
        let _ = writeln!(out, "{file}:{problem}");
        out.push_str(&excerpt(text, place));
    }
    if error.left_out() > 0 {
        let _ = writeln!(out, "{file}: and {} more problems", error.left_out());
    }
    out
}

/// The offending line, with carets under what is meant.
fn excerpt(text: &str, place: &Place) -> String {
    let line = text.lines().nth(place.line() - 1).unwrap_or_default();
    let shown: String = line
        .chars()
        .take(SHOWN_CHARS_MAX)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let before = place.column() - 1;
    if before > SHOWN_CHARS_MAX {
        return format!("{:>5} | {shown}…\n", place.line());
    }
    let span = place.span();
    let meant = text.get(span).unwrap_or_default();
    let length = meant.lines().next().unwrap_or_default().chars().count();
    let carets = "^".repeat(length.clamp(1, SHOWN_CHARS_MAX));
    let number = place.line();
    format!("{number:>5} | {shown}\n      | {:before$}{carets}\n", "")
}
