//! Serializes a key type as its name in DICT's messages.

use balde_dict::KeyType;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
pub(super) fn serialize<S: Serializer>(
    key_type: &KeyType,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(key_type.as_str())
}

pub(super) fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<KeyType, D::Error> {
    let text = String::deserialize(deserializer)?;
    KeyType::parse(&text).ok_or_else(|| D::Error::custom("unknown key type"))
}
