//! Metrics, logs and tracing from the file and the environment, and the sections of other crates.

use balde::Options;
use balde::telemetry::{Denials, Metrics};

use super::{Pairs, lines, lookup, parse};

const LIMIT: &str = "[limits.a]\nlimit = \"1/week\"\n";

fn metrics(text: &str, environment: Pairs<'_>) -> Option<Metrics> {
    let options = parse(&format!("{LIMIT}{text}"), environment).unwrap();
    options.build().unwrap().metrics().cloned()
}

#[test]
fn limiters_from_a_file_are_counted_unless_the_file_says_otherwise() {
    let limiters = parse(LIMIT, &[]).unwrap().build().unwrap();
    for _ in 0..3 {
        limiters.get("a").unwrap().blocking().check("alice");
    }
    let page = limiters.metrics().unwrap().encode();
    for line in [
        r#"rate_limiter_decisions_total{decision="allow",policy="a"} 1"#,
        r#"rate_limiter_decisions_total{decision="deny",policy="a"} 2"#,
    ] {
        assert!(page.contains(line), "{page}");
    }

    let in_seconds = |metrics: Option<Metrics>| {
        let page = metrics.expect("metrics are on").encode();
        page.contains("rate_limiter_latency_seconds_count")
    };
    assert!(!in_seconds(metrics("", &[])));
    assert!(!in_seconds(metrics("[metrics]\nunit = \"ms\"\n", &[])));
    assert!(in_seconds(metrics("[metrics]\nunit = \"seconds\"\n", &[])));
    assert!(in_seconds(metrics("", &[("RL_METRICS", "seconds")])));
    let off = "[metrics]\nenabled = false\n";
    assert!(metrics(off, &[]).is_none());
    assert!(metrics("", &[("RL_METRICS", "off")]).is_none());
    assert!(!in_seconds(metrics(off, &[("RL_METRICS", "ms")])));

    let alone = Options::from_env_with(lookup(&[("RL_LIMIT", "1/s"), ("RL_METRICS", "seconds")]));
    assert!(in_seconds(
        alone.unwrap().build().unwrap().metrics().cloned()
    ));
}

#[test]
fn tracing_is_on_with_its_section_or_by_the_environment() {
    let is_on = |text: &str, environment: Pairs<'_>| {
        let options = parse(&format!("{LIMIT}{text}"), environment).unwrap();
        options.otlp().map(|otlp| format!("{otlp:?}"))
    };
    let collector = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
    assert_eq!(is_on("", &[]), None);
    // Other programs on the host use these variables, too.
    assert_eq!(is_on("", &[collector]), None);
    let section = "[tracing]\nendpoint = \"http://127.0.0.1:4317\"\nsample_one_in = 100\n\
                   service_name = \"orders\"\nqueue_max = 10\ntimeout = '100 ms'\n";
    let shown = is_on(section, &[]).unwrap();
    for part in [
        "Grpc",
        "\"orders\"",
        "one_in: 100",
        "queue_max: 10",
        "100ms",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert_eq!(is_on(section, &[("RL_TRACING", "off")]), None);
    assert_eq!(is_on(&format!("{section}enabled = false\n"), &[]), None);
    let environment = [
        ("RL_TRACING", "on"),
        collector,
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_SERVICE_NAME", "payments"),
    ];
    for text in ["", section] {
        let shown = is_on(text, &environment).unwrap();
        assert!(
            shown.contains("Http") && shown.contains("payments"),
            "{shown}"
        );
    }
}

#[test]
fn every_denial_is_logged_where_the_file_says_so() {
    for (text, environment, every) in [
        ("", &[][..], false),
        ("[logs]\ndenials = \"every\"\n", &[], true),
        (
            "[logs]\ndenials = \"every\"\n",
            &[("RL_LOG_DENIALS", "summary")],
            false,
        ),
        ("", &[("RL_LOG_DENIALS", "every")], true),
    ] {
        let options = parse(&format!("{LIMIT}{text}"), environment).unwrap();
        let expected = if every { "Every" } else { "Summary" };
        let shown = format!("{options:?}");
        let is_default = !shown.contains("Some(Every)");
        assert_eq!(is_default, !every, "{expected}: {shown}");
    }
    let own = parse(&format!("{LIMIT}denials = \"every\"\n"), &[]).unwrap();
    assert!(format!("{own:?}").contains(&format!("{:?}", Some(Denials::Every))));
}

#[test]
fn problems_of_telemetry_are_reported_where_they_are() {
    let text = format!(
        "{LIMIT}[metrics]\nenabled = 1\nunit = \"s\"\n[logs]\nlevel = \"loud\"\nformat = \"xml\"\n\
         denials = \"some\"\nsalt = \"x\"\n[tracing]\nendpoint = \"https://u:hunter2@h\"\n\
         protocol = \"udp\"\nsample_one_in = 0\nqueue_max = 0\ntimeout = '60001 ms'\n"
    );
    let variables = [
        ("RL_METRICS", "yes"),
        ("RL_LOG_LEVEL", "5"),
        ("RL_TRACING", "maybe"),
    ];
    assert_eq!(
        lines(&text, &variables),
        [
            "balde.toml:4:11: `enabled` must be true or false, not an integer",
            "balde.toml:5:8: `unit` must be \"ms\" or \"seconds\"",
            "balde.toml:7:9: `level` must be \"off\", \"error\", \"warn\", \"info\", \"debug\" or \"trace\"",
            "balde.toml:8:10: `format` must be \"auto\", \"json\" or \"text\"",
            "balde.toml:9:11: `denials` must be \"summary\" or \"every\"",
            "balde.toml:10:1: unknown key `salt` in [logs]; expected one of level, format, denials",
            "balde.toml:12:12: the collector's address must be http://host:port; TLS is not supported: run a collector on this host and let it forward the spans",
            "balde.toml:13:12: `protocol` must be \"grpc\" or \"http\"",
            "balde.toml:14:17: `sample_one_in` must be between 1 and 4294967295",
            "balde.toml:15:13: `queue_max` must be between 1 and 1048576",
            "balde.toml:16:11: `timeout`: it must be between 1ms and 60s",
            "environment variable RL_METRICS: unknown value; set it to off, ms or seconds",
            "environment variable RL_LOG_LEVEL: unknown value; set it to off, error, warn, info, debug or trace",
            "environment variable RL_TRACING: unknown value; set it to on or off",
        ]
    );
    let nowhere = format!("{LIMIT}[tracing]\nsample_one_in = 2\n");
    let problems = lines(&nowhere, &[]);
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0].starts_with("balde.toml:3:2: there is no collector to send spans to"),
        "{problems:?}"
    );
}

#[test]
fn windows_below_a_second_are_refused() {
    let message =
        "a fixed window must be at least 1 s long; a token bucket can be faster: \"10/s burst 5\"";
    assert_eq!(
        lines("[limits.a]\nlimit = \"10/999ms window\"\n", &[]),
        [format!("balde.toml:2:9: {message}")]
    );
    assert_eq!(
        lines(
            "[limits.a]\nstrategy = \"fixed_window\"\nlimit = 10\nwindow = \"500 ms\"\n",
            &[]
        ),
        [format!("balde.toml:4:10: {message}")]
    );
    assert!(parse("[limits.a]\nlimit = \"10/s window\"\n", &[]).is_ok());
    assert!(parse("[limits.a]\nlimit = \"10/100ms\"\n", &[]).is_ok());
    let variable = Options::from_env_with(lookup(&[("RL_LIMIT", "10/500ms window")]));
    let problem = variable.unwrap_err().to_string();
    assert!(
        problem.contains("RL_LIMIT: a fixed window must be"),
        "{problem}"
    );
    assert!(balde::RateLimiter::new("10/500ms window").is_err());
    let limiter = balde::RateLimiter::new("10/s").unwrap();
    assert!(limiter.set_limit("10/500ms window").is_err());
    assert_eq!(limiter.limit(), "10/s".parse().unwrap());
}

#[test]
fn a_limit_has_everything_that_the_builder_has() {
    let text = "[limits.a]\nlimit = \"1/week\"\nclock = \"1 ms\"\nonce_ttl = \"1 h\"\n\
                hash_tag = \"tenant\"\nkeys_max = 7\nleases = true\nlease_share = \"5%\"\n\
                lease_keys_max = 3\ndenials = \"summary\"\n\
                [limits.b]\nlimit = \"1/s\"\nclock = \"wall\"\n[limits.c]\nlimit = \"1/s\"\nclock = \"precise\"\n";
    let limiters = parse(text, &[]).unwrap().build().unwrap();
    assert!(
        limiters
            .iter()
            .all(|one| one.blocking().check("x").is_allowed())
    );
    let wrong = "[limits.a]\nlimit = \"1/week\"\nclock = \"1 s\"\nonce_ttl = \"8 days\"\n\
                 lease_share = \"0%\"\nlease_keys_max = 0\n";
    let problems = lines(wrong, &[]);
    assert_eq!(
        problems,
        [
            "balde.toml:3:9: `clock`: it must be between 50µs and 100ms",
            "balde.toml:4:12: `once_ttl`: it must be between 1ms and 604800s",
            "balde.toml:5:15: `lease_share`: write a share as 25% or 1/4: more than nothing and at most the whole",
            "balde.toml:6:18: `lease_keys_max` must be between 1 and 1073741824",
        ]
    );
}

#[test]
fn sections_of_other_crates_are_not_ignored() {
    let text = format!("{LIMIT}[throttlers.import]\nrate = 1\n");
    let problems = lines(&text, &[]);
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0].starts_with("balde.toml:3:2: [throttlers] is read by the crate balde-throttle"),
        "{problems:?}"
    );
    let (options, colour) = Options::parse_extended(
        "[colours]\nbest = \"red\"\n",
        "balde.toml",
        |_| None,
        |root, _context, diagnostics| {
            let mut colours = root.table("colours", diagnostics)?;
            let best = colours.string("best", diagnostics);
            colours.finish(diagnostics);
            best.map(|best| best.value.to_owned())
        },
    )
    .unwrap();
    assert_eq!(colour.as_deref(), Some("red"));
    assert_eq!(options.names().count(), 0);
    let unknown = Options::parse_extended(
        "[colurs]\n",
        "balde.toml",
        |_| None,
        |root, _, diagnostics| root.table("colours", diagnostics).is_some(),
    );
    let unknown = unknown.unwrap_err().to_string();
    assert!(unknown.contains("did you mean `colours`?"), "{unknown}");
}
