//! Throttlers from the options file of the SDK.

use std::ffi::OsString;

use balde::Options;
use balde_throttle::{ThrottlerOptions, Throttlers};

const REFERENCE: &str = include_str!("../../../../docs/options.toml");

fn parse(text: &str) -> Result<(Options, ThrottlerOptions), String> {
    let parsed = ThrottlerOptions::parse_with(text, "balde.toml", |_| None);
    parsed.map_err(|error| {
        let lines = error.diagnostics().iter().map(ToString::to_string);
        lines.collect::<Vec<_>>().join("\n")
    })
}

fn build(text: &str) -> (balde::options::Limiters, Throttlers) {
    let (options, throttlers) = parse(text).unwrap();
    let limiters = options.build().unwrap();
    let throttlers = throttlers.build(&limiters).unwrap();
    (limiters, throttlers)
}

/// The throttler's part of the reference file, without its comments' first two characters.
fn reference() -> String {
    let (_, throttlers) = REFERENCE.split_once("# [throttlers.import]").unwrap();
    let lines = throttlers
        .lines()
        .map(|line| line.strip_prefix("# ").unwrap_or(line));
    format!(
        "[throttlers.import]{}\n",
        lines.collect::<Vec<_>>().join("\n")
    )
}

#[tokio::test]
async fn throttlers_and_limits_stand_in_one_file() {
    let text = "[limits.a]\nlimit = \"1/s\"\n[throttlers.import]\nrate = \"12000/s\"\n\
                partition_rate = 2000\nburst = \"5%\"\n\
                [throttlers.import.partitions]\narchive = \"600/min\"\n\
                [throttlers.export]\nrate = \"40/h\"\npartition_rate = \"40/h\"\n";
    let (limiters, throttlers) = build(text);
    assert!(limiters.get("a").is_some());
    let names: Vec<&str> = throttlers.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["export", "import"]);
    let import = throttlers.get("import").unwrap();
    assert_eq!(import.pace().to_string(), "12000/s burst 600");
    let pace = |name| import.partition(name).unwrap().stats().pace().to_string();
    assert_eq!(pace("orders"), "2000/s burst 100");
    assert_eq!(pace("archive"), "600/min burst 1");

    // Both are on one page of metrics, the global rate among them.
    let page = limiters.metrics().unwrap().encode();
    for line in [
        r#"rate_limiter_keys{policy="a"} 0"#,
        r#"throttle_global_rate{throttler="import"} 12000"#,
        r#"throttle_global_burst{throttler="import"} 600"#,
        r#"throttle_global_period_seconds{throttler="export"} 3600"#,
        r#"throttle_rate{throttler="import",partition="orders"} 2000"#,
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
    import.set_rate(6_000).unwrap();
    let page = limiters.metrics().unwrap().encode();
    assert!(
        page.contains(r#"throttle_global_rate{throttler="import"} 6000"#),
        "{page}"
    );
}

#[test]
fn the_reference_file_has_every_key_of_a_throttler() {
    let (_, throttlers) = build(&reference());
    assert_eq!(throttlers.iter().count(), 1);
    let unknown = "[throttlers.a]\nrate = 1\npartition_rate = 1\nqqqqqqqqqqqqqqq = 1\n\
                   [throttlers.a.degradation]\nqqqqqqqqqqqqqqq = 1\n";
    let problems = parse(unknown).unwrap_err();
    let mut keys = 0;
    for problem in problems.lines() {
        let (_, known) = problem.split_once("expected one of ").unwrap();
        for key in known.split(", ") {
            let is_there = |line: &str| {
                line.starts_with(&format!("{key} =")) || line.contains(&format!("import.{key}]"))
            };
            let is_shared = ["on_failure", "local_share"].contains(&key);
            assert!(is_shared || reference().lines().any(is_there), "{key}");
            keys += 1;
        }
    }
    assert_eq!(keys, 12 + 12);
}

#[test]
fn problems_are_reported_together_with_those_of_limits() {
    let text = "[limits.a]\nlimit = \"10/fortnight\"\n[throttlers.b]\nrate = \"10\"\n\
                partition_rate = 0\nburst = \"0%\"\noversize = \"cut\"\nwaiters_max = 0\n\
                storage = \"redis\"\n[throttlers.b.degradation]\nratio = \"100%\"\nreset = \"2 days\"\n\
                [throttlers.c]\nrate = 1\npartition_rate = 1\n[throttlers.c.degradation]\nratio = \"100%\"\n\
                [throttler]\n";
    let problems = parse(text).unwrap_err();
    let expected = "\
balde.toml:2:13: unknown unit `fortnight`; use us, ms, s, min, h, day or week
balde.toml:4:8: `rate`: write a rate as 2000/s, 600/min or 40/h, with 1 to 1000000000 tokens
balde.toml:5:18: `partition_rate` must be between 1 and 1000000000
balde.toml:6:9: `burst`: write a share as 25% or 1/4: more than nothing and at most the whole
balde.toml:7:12: `oversize` must be \"slices\" or \"refuse\"
balde.toml:8:15: `waiters_max` must be between 1 and 16000000
balde.toml:9:11: [throttlers.b] keeps its buckets in Redis and has to choose what happens while Redis is unavailable: on_failure = \"deny\", \"allow\" or \"local\"
balde.toml:9:11: the buckets are in Redis, but Redis has no address: write [redis] with address = \"host:port\", or set REDIS_ADDR
balde.toml:12:9: `reset`: it must be between 1ms and 86400s
balde.toml:13:13: ratio: an error must leave less than 100 percent of the rate
balde.toml:18:2: unknown key `throttler`; did you mean `throttlers`?";
    assert_eq!(problems, expected);
    let empty = parse("[redis]\naddress = \"h:1\"\n").unwrap_err();
    assert!(empty.contains("neither a limit nor a throttler"), "{empty}");
}

#[test]
fn one_throttler_can_come_from_the_environment() {
    let with = |pairs: &[(&str, &str)]| {
        let lookup = |name: &str| {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        ThrottlerOptions::from_env_with(lookup)
    };
    let both = [
        ("RL_THROTTLE_RATE", "600/min"),
        ("RL_THROTTLE_PARTITION_RATE", "10/s"),
        ("RL_THROTTLE_BURST", "50%"),
    ];
    let limiters = build("[limits.a]\nlimit = \"1/s\"\n").0;
    let throttlers = with(&both).unwrap().build(&limiters).unwrap();
    let throttler = throttlers.get("default").unwrap();
    assert_eq!(throttler.pace().to_string(), "600/min burst 5");
    let problems = with(&[("RL_THROTTLE_RATE", "fast")])
        .unwrap_err()
        .to_string();
    assert_eq!(
        problems,
        "error: environment variable RL_THROTTLE_RATE: write a rate as 2000/s, 600/min or 40/h, with 1 to 1000000000 tokens\n\n\
         error: environment variable RL_THROTTLE_PARTITION_RATE: not set; set it to a rate such as 1000/s"
    );
}
