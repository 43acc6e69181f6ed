//! Ids that the directory gives to its records.

/// Returns a random UUID of version 4.
pub(super) fn new_id() -> String {
    let random = fastrand::u128(..) & !(0xf << 76) & !(0x3 << 62);
    format_uuid(random | (0x4 << 76) | (0x2 << 62))
}

/// Writes a number as a UUID.
pub(super) fn format_uuid(number: u128) -> String {
    let hex = format!("{number:032x}");
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_ids_are_uuids_of_version_4() {
        for _ in 0..1_000 {
            let id = new_id();
            assert!(crate::wire::is_uuid(&id), "{id}");
            assert_eq!(&id[14..15], "4", "{id}");
            assert!("89ab".contains(&id[19..20]), "{id}");
        }
    }
}
