//! Parses the text of a profile and reports every problem with its position.

mod amount;
mod definitions;
mod matching;
mod policy;
mod reader;
mod settings;

use std::path::Path;

use balde_config::{ConfigError, Diagnostics, Document, Section, Source};

use super::{Profile, Setting};
use crate::policy::{Scope, Variant};
use reader::Reader;

/// The longest name, title or path in a profile, in bytes.
pub const NAME_BYTES_MAX: usize = 256;

impl Profile {
    /// Reads a profile from a file.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::from_source(&Source::read(path)?, &[])
    }

    /// Parses a profile. The error lists every problem with its line and column.
    ///
    /// ```
    /// use balde_policy::Profile;
    ///
    /// let text = "profile = 'x'\n[[policy]]\nname = 'a'\nlimit = '10/fortnight'\ncots = 1\n";
    /// let error = Profile::parse(text).unwrap_err();
    /// let problems: Vec<String> = error.diagnostics().iter().map(ToString::to_string).collect();
    /// assert_eq!(
    ///     problems,
    ///     [
    ///         "4:13: unknown unit `fortnight`; use us, ms, s, min, h, day or week",
    ///         "5:1: unknown key `cots` in [[policy]]; did you mean `costs`?",
    ///     ],
    /// );
    /// ```
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::parse_with(text, &[])
    }

    /// [`parse`](Profile::parse) with other values for some settings, as pairs of name and text:
    /// `("refill", "stepwise")`. The items of a list are separated by commas.
    pub fn parse_with(text: &str, overrides: &[(&str, &str)]) -> Result<Self, ConfigError> {
        Self::from_source(&Source::unnamed(text), overrides)
    }

    /// [`parse_with`](Profile::parse_with) for a source, whose file name then appears in every
    /// message.
    pub fn from_source(source: &Source, overrides: &[(&str, &str)]) -> Result<Self, ConfigError> {
        Document::read(source, Diagnostics::new(source), |root, diagnostics| {
            let mut profile = read(root, overrides, diagnostics);
            profile.source = source.clone();
            profile
        })
    }
}

impl Profile {
    /// Reads a profile that is a table of another file, such as the policies of a gateway. Its name
    /// is the key `profile` of the table, or else `name`.
    pub fn from_section(
        mut section: Section<'_>,
        name: &str,
        source: &Source,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let given = section.string("profile", diagnostics);
        let name = given.map_or(name, |given| given.value);
        let mut profile = read_named(section, name.into(), &[], diagnostics);
        profile.source = source.clone();
        profile
    }
}

fn read(
    mut root: Section<'_>,
    overrides: &[(&str, &str)],
    diagnostics: &mut Diagnostics,
) -> Profile {
    let name = root.require("profile", diagnostics);
    let name = name.and_then(|name| Reader::new(&[], diagnostics).name(&name));
    read_named(root, name.unwrap_or_default(), overrides, diagnostics)
}

fn read_named(
    mut root: Section<'_>,
    name: Box<str>,
    overrides: &[(&str, &str)],
    diagnostics: &mut Diagnostics,
) -> Profile {
    let settings = settings::read(root.get("settings"), overrides, diagnostics);
    let reader = &mut Reader::new(&settings, diagnostics);
    let names: Vec<&str> = settings.iter().map(Setting::name).collect();
    reader.note_failed("setting", root.get("settings"), &names);
    let mut profile = Profile::new(name);
    if let Some(title) = root.string("title", reader.diagnostics) {
        profile.title = title.value.into();
    }
    profile.api = root.get("api").and_then(|api| reader.name(&api));
    profile.base_paths = base_paths(&mut root, reader);
    profile.patterns = definitions::patterns(root.get("patterns"), reader);
    let names: Vec<&str> = profile.patterns.iter().map(|(name, _)| &**name).collect();
    reader.note_failed("pattern", root.get("patterns"), &names);
    profile.scopes = definitions::scopes(root.get("scopes"), reader);
    let names: Vec<&str> = profile.scopes.iter().map(Scope::name).collect();
    reader.note_failed("scope", root.get("scopes"), &names);
    profile.variants = definitions::variants(root.get("variants"), &profile.patterns, reader);
    let names: Vec<&str> = profile.variants.iter().map(Variant::name).collect();
    reader.note_failed("variant", root.get("variants"), &names);
    profile.policies = policy::read_all(&mut root, &profile, reader);
    root.finish(reader.diagnostics);
    if profile.api.is_none() {
        reader.report_unused_settings();
    }
    profile.settings = settings;
    profile
}

fn base_paths(root: &mut Section<'_>, reader: &mut Reader<'_>) -> Vec<Box<str>> {
    let mut paths = Vec::new();
    for path in root.strings("base_paths", reader.diagnostics) {
        let text = path.value;
        if text.starts_with('/') && !text.ends_with('/') && text.len() <= NAME_BYTES_MAX {
            paths.push(text.into());
        } else {
            let message = "a base path must begin with `/` and not end with it, as in `/api/v2`";
            reader.diagnostics.at(path.span, message);
        }
    }
    paths
}
