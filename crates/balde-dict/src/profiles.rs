//! The published tables of DICT, as profiles inside the crate.

use balde_config::{ConfigError, Source};
use balde_policy::Profile;

/// The profile that is used unless another is named.
pub const DEFAULT: &str = "dict-2.12.1";

/// Every profile by its name, as text, the default first.
pub const TEXTS: [(&str, &str); 3] = [
    (DEFAULT, include_str!("../profiles/dict-2.12.1.toml")),
    (
        "dict-manual-8.0",
        include_str!("../profiles/dict-manual-8.0.toml"),
    ),
    ("dict-1.8.0", include_str!("../profiles/dict-1.8.0.toml")),
];

/// The text of a profile, or nothing when there is none of that name.
pub fn text(name: &str) -> Option<&'static str> {
    let found = TEXTS.iter().find(|(other, _)| *other == name);
    found.map(|(_, text)| *text)
}

/// A profile by name, or nothing when there is none of that name.
///
/// ```
/// let profile = balde_dict::profiles::named("dict-1.8.0").expect("it ships with the crate");
/// assert_eq!(profile.policies().len(), 26);
/// ```
pub fn named(name: &str) -> Option<Profile> {
    let text = text(name)?;
    Some(Profile::parse(text).expect("profiles inside the crate are tested"))
}

/// A profile by name with other values for some settings: `("refill", "stepwise")`. Nothing when
/// there is no profile of that name.
pub fn named_with(name: &str, overrides: &[(&str, &str)]) -> Option<Result<Profile, ConfigError>> {
    text(name).map(|text| Profile::from_source(&Source::new(name, text), overrides))
}

/// The profile of [`DEFAULT`].
pub fn default() -> Profile {
    named(DEFAULT).expect("the default is among the profiles")
}
