//! The reference file is valid and complete.

use super::{lines, parse};

const REFERENCE: &str = include_str!("../../../../docs/options.toml");

#[test]
fn the_reference_file_is_valid_as_it_is_and_with_every_key() {
    parse(REFERENCE, &[]).unwrap().build().unwrap();
    let with_every_key = REFERENCE.lines().map(|line| {
        let key = line.strip_prefix('#').filter(|rest| !rest.starts_with(' '));
        key.unwrap_or(line)
    });
    let whole = with_every_key.collect::<Vec<_>>().join("\n");
    let problems = lines(&whole, &[("REDIS_PASSWORD", "x")]);
    // All keys are known; only the example files do not exist, and `local_share` needs "local".
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].contains("`local_share` is only used with on_failure = \"local\""));
    assert!(
        problems[1].contains("/etc/balde/ca.pem cannot be read")
            || problems[1].contains("client.pem")
    );
}

/// The message about an unknown key lists every key that its table has.
#[test]
fn the_reference_file_has_every_key() {
    let unknown = "[limits.a]\nlimit = \"1/s\"\nqqqqqqqqqqqqqqq = 1\n[redis]\nqqqqqqqqqqqqqqq = 1\n\
                   [identity]\nqqqqqqqqqqqqqqq = 1\n[headers]\nqqqqqqqqqqqqqqq = 1\n\
                   [metrics]\nqqqqqqqqqqqqqqq = 1\n[logs]\nqqqqqqqqqqqqqqq = 1\n\
                   [tracing]\nenabled = false\nqqqqqqqqqqqqqqq = 1\n";
    let problems = lines(unknown, &[]);
    assert_eq!(problems.len(), 7);
    let mut keys = 0;
    for problem in problems {
        let (_, known) = problem.split_once("expected one of ").unwrap();
        for key in known.split(", ") {
            let written = REFERENCE.lines().map(|line| line.trim_start_matches('#'));
            let is_there = written.into_iter().any(|line| {
                line.starts_with(&format!("{key} =")) || line.ends_with(&format!(".{key}]"))
            });
            assert!(is_there, "docs/options.toml lacks {key}");
            keys += 1;
        }
    }
    assert_eq!(keys, 18 + 11 + 5 + 3 + 2 + 3 + 7);
}
