//! A profile's text: read, checked as a whole, and every problem told with its place.

mod amount;
mod matching;
mod policy;
mod reader;
mod settings;
mod words;

use toml::de::DeTable;

use super::{Profile, ProfileError};
use reader::{Fields, Reader};

/// The longest profile that is read.
pub const PROFILE_BYTES_MAX: usize = 1024 * 1024;

/// The longest name, title or path in a profile.
pub const WORD_BYTES_MAX: usize = 256;

impl Profile {
    /// Reads a profile, or tells everything that is wrong with it.
    ///
    /// ```
    /// use balde_policy::Profile;
    ///
    /// let error = Profile::parse("profile = 'x'\n[[policy]]\nname = 'a'\nlimit = '10/fortnight'\ncots = 1\n")
    ///     .unwrap_err();
    /// assert_eq!(
    ///     error.in_file("x.toml"),
    ///     "x.toml:4:13: unknown unit `fortnight`; use us, ms, s, min, h, day or week\n\
    ///      x.toml:5:1: a policy has no `cots`; did you mean `costs`?\n",
    /// );
    /// ```
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        Self::parse_with(text, &[])
    }

    /// [`parse`](Profile::parse) with other values for some settings, by name and as text:
    /// `("refill", "stepwise")`. Lists are written with commas.
    pub fn parse_with(text: &str, overrides: &[(&str, &str)]) -> Result<Self, ProfileError> {
        let mut reader = Reader::new(text);
        if text.len() > PROFILE_BYTES_MAX {
            reader.problem(
                0..0,
                format!("a profile has at most {PROFILE_BYTES_MAX} bytes"),
            );
            return Err(reader.into_error());
        }
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let span = error.span().unwrap_or(0..0);
            reader.syntax(span, error.message());
        }
        let profile = read(&mut reader, table.get_ref(), overrides);
        match (reader.is_clean(), profile) {
            (true, profile) => Ok(profile),
            (false, _) => Err(reader.into_error()),
        }
    }
}

fn read(reader: &mut Reader<'_>, table: &DeTable<'_>, overrides: &[(&str, &str)]) -> Profile {
    let mut fields = Fields::new(table, "a profile", 0..0);
    let name = fields.required(reader, "profile");
    let name = name.and_then(|name| reader.word(name)).unwrap_or_default();
    let mut profile = Profile::new(name);
    if let Some(title) = fields.get("title") {
        profile.title = reader.text(title).unwrap_or_default().into();
    }
    profile.api = fields.get("api").and_then(|api| reader.word(api));
    profile.base_paths = base_paths(reader, &mut fields);
    profile.settings = settings::read(reader, fields.get("settings"), overrides);
    profile.patterns = words::patterns(reader, fields.get("patterns"));
    profile.scopes = words::scopes(reader, fields.get("scopes"));
    profile.variants = words::variants(reader, fields.get("variants"), &profile.patterns);
    let limits = fields.get("limits");
    let defaults = fields.get("defaults");
    let policies = fields.get("policy");
    profile.policies = policy::read_all(reader, &profile, limits, defaults, policies);
    fields.finish(reader);
    if profile.api.is_none() {
        reader.unused_settings(&profile.settings);
    }
    profile
}

fn base_paths(reader: &mut Reader<'_>, fields: &mut Fields<'_>) -> Vec<Box<str>> {
    let Some(value) = fields.get("base-paths") else {
        return Vec::new();
    };
    let mut paths = Vec::new();
    for item in reader.array(value) {
        let Some(path) = reader.text(item) else {
            continue;
        };
        let is_path = path.starts_with('/') && !path.ends_with('/') && path.len() <= WORD_BYTES_MAX;
        if is_path {
            paths.push(path.into());
        } else {
            let reason = "a base path begins with `/` and does not end with it, as `/api/v2`";
            reader.problem(item.span(), reason);
        }
    }
    paths
}
