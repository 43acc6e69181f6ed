//! DICT's published limits, as profiles that are part of this crate.

use balde_policy::{Profile, ProfileError};

/// The name of the default profile.
pub const DEFAULT: &str = "dict-2.12.1";

/// Every profile: its name and its TOML text. The default is first.
pub const TEXTS: [(&str, &str); 3] = [
    (DEFAULT, include_str!("../profiles/dict-2.12.1.toml")),
    (
        "dict-manual-8.0",
        include_str!("../profiles/dict-manual-8.0.toml"),
    ),
    ("dict-1.8.0", include_str!("../profiles/dict-1.8.0.toml")),
];

/// Returns the TOML text of a profile, or `None` if there is no profile of that name.
pub fn text(name: &str) -> Option<&'static str> {
    let found = TEXTS.iter().find(|(other, _)| *other == name);
    found.map(|(_, text)| *text)
}

/// Returns a profile by its name, or `None` if there is none of that name.
///
/// ```
/// let profile = balde_dict::profiles::named("dict-1.8.0").expect("it ships with the crate");
/// assert_eq!(profile.policies().len(), 26);
/// ```
pub fn named(name: &str) -> Option<Profile> {
    let text = text(name)?;
    Some(Profile::parse(text).expect("profiles inside the crate are tested"))
}

/// Returns a profile with other values for some settings, such as `("refill", "stepwise")`, or
/// `None` if there is no profile of that name.
pub fn named_with(name: &str, overrides: &[(&str, &str)]) -> Option<Result<Profile, ProfileError>> {
    text(name).map(|text| Profile::parse_with(text, overrides))
}

/// Returns the default profile.
pub fn default() -> Profile {
    named(DEFAULT).expect("the default is among the profiles")
}
