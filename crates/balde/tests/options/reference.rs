//! The reference file: right as it is, and complete.

use super::{lines, parse};

const REFERENCE: &str = include_str!("../../../../docs/options.toml");

#[test]
fn the_reference_file_is_right_as_it_is_and_with_every_key() {
    parse(REFERENCE, &[]).unwrap().build().unwrap();
    let with_every_key = REFERENCE.lines().map(|line| {
        let key = line.strip_prefix('#').filter(|rest| !rest.starts_with(' '));
        key.unwrap_or(line)
    });
    let whole = with_every_key.collect::<Vec<_>>().join("\n");
    let faults = lines(&whole, &[("REDIS_PASSWORD", "x")]);
    // All keys are known; only the example files are not there, and a share belongs to "local".
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(faults[0].contains("`local_share` goes with on_failure = \"local\" only"));
    assert!(
        faults[1].contains("/etc/balde/ca.pem cannot be read") || faults[1].contains("client.pem")
    );
}

/// Every table is asked for a key that does not exist, and tells which do.
#[test]
fn the_reference_file_has_every_key() {
    let unknown = "[limits.a]\nlimit = \"1/s\"\nqqqqqqqqqqqqqqq = 1\n[redis]\nqqqqqqqqqqqqqqq = 1\n\
                   [identity]\nqqqqqqqqqqqqqqq = 1\n[headers]\nqqqqqqqqqqqqqqq = 1\n";
    let faults = lines(unknown, &[]);
    assert_eq!(faults.len(), 4);
    let mut keys = 0;
    for fault in faults {
        let (_, known) = fault.split_once("there are ").unwrap();
        for key in known.split(", ") {
            let written = REFERENCE.lines().map(|line| line.trim_start_matches('#'));
            let is_there = written
                .into_iter()
                .any(|line| line.starts_with(&format!("{key} =")));
            assert!(is_there, "docs/options.toml lacks {key}");
            keys += 1;
        }
    }
    assert_eq!(keys, 10 + 11 + 5 + 3);
}
