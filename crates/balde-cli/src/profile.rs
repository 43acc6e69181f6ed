//! Loads a profile: one that ships with balde, by its name, or a file.

use std::path::Path;

use balde_config::{ConfigError, Diagnostics, Document, Source};
use balde_dict::{Table, profiles};
use balde_policy::Profile;

/// Loads the profile of a name or of a file, with other values for some settings. The error is
/// ready to be printed.
pub(crate) fn load(name_or_file: &str, settings: &[(String, String)]) -> Result<Profile, String> {
    let overrides: Vec<(&str, &str)> = settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let source = match profiles::text(name_or_file) {
        Some(text) => Ok(Source::new(name_or_file, text)),
        None if Path::new(name_or_file).is_file() => Source::read(name_or_file),
        None => {
            let names = profiles::TEXTS.map(|(name, _)| name).join(", ");
            return Err(format!(
                "there is no profile and no file `{name_or_file}`; the profiles are {names}\n"
            ));
        }
    };
    let profile = source.and_then(|source| parse(&source, &overrides));
    profile.map_err(|error| format!("{error}\n"))
}

/// Parses a profile. A profile for an API that balde knows is checked against that API, too.
pub(crate) fn parse(source: &Source, overrides: &[(&str, &str)]) -> Result<Profile, ConfigError> {
    let profile = Profile::from_source(source, overrides)?;
    match profile.api() {
        Some("dict") => Table::new(profile).map(|table| table.profile().clone()),
        Some(_) => Err(unknown_api(source)),
        None => Ok(profile),
    }
}

fn unknown_api(source: &Source) -> ConfigError {
    let mut diagnostics = Diagnostics::new(source);
    let document = Document::parse(source, &mut diagnostics);
    let api = document.and_then(|document| Some(document.root().get("api")?.span()));
    let message = "the only `api` with an adapter is \"dict\"; leave it out for other APIs";
    diagnostics.at(api, message);
    diagnostics.into_error()
}
