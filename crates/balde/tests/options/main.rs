//! Options from a file and the environment: what is built, and how problems are reported.

mod redis;
mod reference;
mod telemetry;

use std::ffi::OsString;

use balde::Options;
use balde::options::ConfigError;

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn parse(text: &str, environment: Pairs<'_>) -> Result<Options, ConfigError> {
    Options::parse_with(text, "balde.toml", lookup(environment))
}

fn lookup(environment: Pairs<'_>) -> impl Fn(&str) -> Option<OsString> {
    move |name| {
        let found = environment.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).into())
    }
}

fn rendered(text: &str, environment: Pairs<'_>) -> String {
    parse(text, environment).unwrap_err().to_string()
}

/// Each problem on one line.
fn lines(text: &str, environment: Pairs<'_>) -> Vec<String> {
    let error = parse(text, environment).unwrap_err();
    error
        .diagnostics()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn limits_are_written_as_text_or_as_numbers() {
    let options = parse(
        r#"
        [limits.text]
        limit = "1200/min burst 36000 stepwise"
        [limits.bucket]
        strategy = "token_bucket"
        rate = 0.5
        burst = 3
        [limits.window]
        strategy = "fixed_window"
        limit = 100
        window = "1 min"
        keys_max = 1_000
        "#,
        &[],
    )
    .unwrap();
    assert_eq!(
        options.names().collect::<Vec<_>>(),
        ["bucket", "text", "window"]
    );
    let limiters = options.build().unwrap();
    let limit = |name| limiters.get(name).unwrap().limit();
    assert_eq!(
        limit("text"),
        "1200/min burst 36000 stepwise".parse().unwrap()
    );
    assert_eq!(limit("bucket"), "0.5/s burst 3".parse().unwrap());
    assert_eq!(limit("window"), "100/min window".parse().unwrap());
    assert!(limiters.get("other").is_none());
    assert_eq!(limiters.iter().count(), 3);
}

#[tokio::test]
async fn tiers_are_named_in_the_file_and_assigned_by_the_program() {
    let text = "[limits.users]\nlimit = \"10/min\"\nwaiters_max = 5\n\
                [limits.users.tiers]\ngold = \"100/min\"\n\"customer 4711\" = \"5000/min burst 20000\"\n";
    let limiters = parse(text, &[]).unwrap().build().unwrap();
    let limiter = limiters.get("users").unwrap();
    limiter.set_tier("alice", "gold").await.unwrap();
    assert_eq!(limiter.check("alice").await.remaining(), 99);
    assert_eq!(limiter.check("bob").await.remaining(), 9);
    let customer = limiter.tier_limit("customer 4711").unwrap();
    assert_eq!(customer, "5000/min burst 20000".parse().unwrap());

    let wrong = "[limits.users]\nlimit = \"10/min\"\nwaiters_max = 0\n\
                 [limits.users.tiers]\ngold = \"100/mins\"\nsilver = 5\n";
    let problems = lines(wrong, &[]);
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(problems[0].starts_with("balde.toml:3:15: `waiters_max` must be between 1 and"));
    assert!(problems[1].starts_with("balde.toml:5:"), "{problems:?}");
    assert!(problems[2].starts_with("balde.toml:6:"), "{problems:?}");
}

/// A `main` that returns an error prints its Debug text after `Error: `.
#[test]
fn errors_that_main_returns_are_words() {
    let error = parse("[limits.user]\nlimt = \"10/s\"\n", &[]).map(drop);
    let shown = format!("Error: {:?}", error.unwrap_err());
    assert!(
        shown.starts_with("Error: \nerror: unknown key `limt`"),
        "{shown}"
    );
    assert!(shown.contains("balde.toml:2:1"), "{shown}");
    let build = balde::RateLimiter::builder()
        .keys_max(0)
        .limit("1/s")
        .build();
    let shown = format!("{:?}", build.map(drop).unwrap_err());
    assert!(shown.starts_with("keys_max is 0; it must be"), "{shown}");
    let store = balde::RedisStore::builder().address("http://x y").build();
    let shown = format!("{:?}", store.map(drop).unwrap_err());
    assert!(
        shown.starts_with("the address of Redis cannot be parsed"),
        "{shown}"
    );
}

#[test]
fn a_problem_is_shown_with_its_line() {
    assert_eq!(
        rendered("[limits.user]\nlimit = \"10/fortnight\"\n", &[]),
        "\
error: unknown unit `fortnight`; use us, ms, s, min, h, day or week
 --> balde.toml:2:13
  |
2 | limit = \"10/fortnight\"
  |             ^^^^^^^^^"
    );
    assert_eq!(
        rendered(
            "[limits.user]\nlimt = \"10/s\"\n",
            &[("RL_STORAGE_MODE", "etcd")]
        ),
        "\
error: unknown key `limt` in [limits.user]; did you mean `limit`?
 --> balde.toml:2:1
  |
2 | limt = \"10/s\"
  | ^^^^

error: environment variable RL_STORAGE_MODE: unknown storage; set it to redis or memory"
    );
}

#[test]
fn all_problems_are_reported_at_once_in_the_order_of_the_file() {
    let text = r#"
[limits.a]
limit = 5
storage = "disk"
keys_max = 0
[limits.b]
strategy = "token_bucket"
rate = "ten"
burst = 20
window = "1 min"
[limits.c]
strategy = "fixed_window"
limit = 10
[limits.d]
limit = "10/s"
on_failure = "local"
[limits.e]
limit = "10/s"
local_share = "0%"
leases = 1
[limits.f]
strategy = "leaky"
limit = "10/s"
[limits.g]
limit = "10/s"
burst = 5
[redis]
timeout = '101 ms'
conections = 3
[identity]
trusted_proxies = ["10.0.0.0/8", "proxy", "0.0.0.0/0", 7]
forwarded = "both"
api_key_header = "x api"
ipv6_prefix = 129
[headers]
reset = true
ieft = false
[colour]
"#;
    assert_eq!(
        lines(
            text,
            &[
                ("REDIS_ADDR", "http://user:hunter2@host"),
                ("RL_STORAGE_MODE", " ")
            ]
        ),
        [
            "balde.toml:3:9: `limit` must be a string such as \"10/s burst 20\"; an integer needs strategy = \"fixed_window\" and `window`",
            "balde.toml:4:11: `storage` must be \"memory\" or \"redis\"",
            "balde.toml:5:12: `keys_max` must be between 1 and 1073741824",
            "balde.toml:8:8: `rate` must be a decimal number, not a string",
            "balde.toml:10:10: a token bucket takes `rate` and `burst`, not `window`",
            "balde.toml:12:12: a fixed window needs `limit`, an integer, and `window`, such as \"1 min\"",
            "balde.toml:16:14: on_failure = \"local\" needs `local_share`, this process's part of the limit: \"25%\" or \"1/4\"",
            "balde.toml:19:15: `local_share` must be a part of the limit, such as \"25%\" or \"1/4\"",
            "balde.toml:20:10: `leases` must be true or false, not an integer",
            "balde.toml:22:12: `strategy` must be \"token_bucket\" or \"fixed_window\"",
            "balde.toml:26:9: `burst` needs `strategy`, or belongs in the string of `limit`",
            "balde.toml:28:11: `timeout`: it must be between 1ms and 100ms",
            "balde.toml:29:1: unknown key `conections` in [redis]; did you mean `connections`?",
            "balde.toml:31:34: `proxy` is neither an address nor a network; write 10.1.2.3, 10.0.0.0/8 or 2001:db8::/32",
            "balde.toml:31:43: this trusts all addresses, so any client could choose its own address; list the networks of the proxies",
            "balde.toml:31:56: an item of `trusted_proxies` must be a string, not an integer",
            "balde.toml:32:13: `forwarded` must be \"x-forwarded-for\", \"forwarded\" or \"none\"",
            "balde.toml:33:18: `api_key_header` must be the name of a header",
            "balde.toml:34:15: `ipv6_prefix` must be between 1 and 128",
            "balde.toml:36:9: `reset` must be a string, not a boolean",
            "balde.toml:37:1: unknown key `ieft` in [headers]; did you mean `ietf`?",
            "balde.toml:38:2: unknown key `colour`; expected one of redis, limits, identity, headers, metrics, logs, tracing",
            "environment variable REDIS_ADDR: the address of Redis cannot be parsed; write host:port, redis://[user:password@]host:port[/database], or rediss:// for TLS",
        ]
    );
}

#[test]
fn syntax_errors_are_reported_by_line_and_column() {
    let error = parse("[limits.a]\nlimit = \"10/s\n[limits.b\n", &[]).unwrap_err();
    let found: Vec<usize> = error
        .diagnostics()
        .iter()
        .map(|diagnostic| diagnostic.position().line().expect("a line of the file"))
        .collect();
    assert!(
        found.contains(&2) && found.contains(&3),
        "{found:?}\n{error}"
    );
    assert_eq!(
        lines("", &[]),
        ["balde.toml: there is no limit; write [limits.NAME] with limit = \"10/s\" in it"]
    );
    assert_eq!(
        lines("limits = 3", &[]),
        ["balde.toml:1:10: `limits` must be a table, not an integer"]
    );
    assert_eq!(
        lines("[limits]", &[]),
        ["balde.toml:1:2: there is no limit; write [limits.NAME] with limit = \"10/s\" in it"]
    );
    let both = lines("[limits", &[("RL_STORAGE_MODE", "etcd")]);
    assert_eq!(both.len(), 2, "the environment is checked, too: {both:?}");
    let twice = lines("[limits.a]\nlimit = \"1/s\"\nlimit = \"2/s\"\n", &[]);
    assert_eq!(twice, ["balde.toml:3:1: duplicate key"]);

    let gone = Options::read("/nowhere/balde.toml")
        .unwrap_err()
        .to_string();
    assert!(
        gone.starts_with("error: /nowhere/balde.toml: cannot read the file: "),
        "{gone}"
    );
}

#[test]
fn of_ninety_thousand_problems_a_hundred_are_reported() {
    let unknown: Vec<String> = (0..90_000).map(|n| format!("k{n} = 1\n")).collect();
    assert_eq!(lines(&unknown.concat(), &[]).len(), 100);
    let broken = "=\n".repeat(90_000);
    assert_eq!(lines(&broken, &[]).len(), 100);
}

#[test]
fn a_file_is_read_from_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    std::fs::write(&path, "[limits.a]\nlimit = \"1/week\"\n").unwrap();
    assert_eq!(Options::read(&path).unwrap().names().count(), 1);
    std::fs::write(&path, vec![b'#'; 2 << 20]).unwrap();
    let error = Options::read(&path).unwrap_err().to_string();
    assert!(
        error.ends_with("the file has more than 1048576 bytes"),
        "{error}"
    );
    std::fs::write(&path, [0xFF]).unwrap();
    let error = Options::read(&path).unwrap_err().to_string();
    assert!(error.contains("limits.toml:1:1"), "{error}");
}

mod with_http {
    use super::*;
    use balde::http::{HeaderOptions, PeerAddr, ResetFormat};
    use http::{Extensions, HeaderMap};

    #[test]
    fn identity_and_headers_are_as_written() {
        let limiters = parse(
            r#"
            [limits.a]
            limit = "1/s"
            [identity]
            trusted_proxies = ["10.0.0.0/8"]
            forwarded = "forwarded"
            user_id_header = "X-User-Id"
            ipv6_prefix = 48
            [headers]
            reset = "unix"
            x_ratelimit = true
            ietf = false
            "#,
            &[],
        )
        .unwrap()
        .build()
        .unwrap();
        let expected = HeaderOptions::default()
            .reset(ResetFormat::UnixTime)
            .without_ietf_fields();
        assert_eq!(limiters.header_options(), expected);
        let mut extensions = Extensions::new();
        extensions.insert(PeerAddr("10.0.0.1:1".parse().unwrap()));
        let mut headers = HeaderMap::new();
        headers.insert("forwarded", "for=\"[2001:db8:1:2::3]\"".parse().unwrap());
        let key = limiters.identity().key(&headers, &extensions).unwrap();
        assert_eq!(key.as_ref(), b"ip:2001:db8:1::/48");
        headers.insert("x-user-id", "alice".parse().unwrap());
        let key = limiters.identity().key(&headers, &extensions).unwrap();
        assert_eq!(key.as_ref(), b"user:alice");
    }
}
