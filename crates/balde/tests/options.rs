//! Options from a file and the environment: what is built, and how mistakes are told.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use balde::Options;
use balde::options::{OptionsError, Place};

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn parse(text: &str, environment: Pairs<'_>) -> Result<Options, OptionsError> {
    Options::parse_with(text, "balde.toml", lookup(environment))
}

fn lookup(environment: Pairs<'_>) -> impl Fn(&str) -> Option<OsString> {
    move |name| {
        let found = environment.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).into())
    }
}

fn told(text: &str, environment: Pairs<'_>) -> String {
    parse(text, environment).unwrap_err().to_string()
}

/// Each on one line.
fn lines(text: &str, environment: Pairs<'_>) -> Vec<String> {
    let error = parse(text, environment).unwrap_err();
    error.faults().iter().map(ToString::to_string).collect()
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

#[test]
fn a_mistake_is_shown_where_it_is() {
    assert_eq!(
        told("[limits.user]\nlimit = \"10/fortnight\"\n", &[]),
        "\
error: unknown unit `fortnight`; use us, ms, s, min, h, day or week
 --> balde.toml:2:13
  |
2 | limit = \"10/fortnight\"
  |             ^^^^^^^^^"
    );
    assert_eq!(
        told(
            "[limits.user]\nlimt = \"10/s\"\n",
            &[("RL_STORAGE_MODE", "etcd")]
        ),
        "\
error: [limits.user] has no limit; write limit = \"10/s burst 20\"
 --> balde.toml:1:9
  |
1 | [limits.user]
  |         ^^^^

error: there is no key `limt` in [limits.user]; did you mean `limit`?
 --> balde.toml:2:1
  |
2 | limt = \"10/s\"
  | ^^^^

error: environment variable RL_STORAGE_MODE: this is no storage; set it to redis or memory"
    );
}

#[test]
fn all_mistakes_are_told_at_once_in_their_order() {
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
timeout_ms = 101
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
            "balde.toml:3:9: `limit` is a text, as \"10/s burst 20\"; a number needs strategy = \"fixed_window\" and a window",
            "balde.toml:4:11: `storage` must be \"memory\" or \"redis\"",
            "balde.toml:5:12: `keys_max` must be between 1 and 1073741824",
            "balde.toml:8:8: `rate` must be a number of tokens per second",
            "balde.toml:10:10: a token bucket has no `window`, but `rate` and `burst`",
            "balde.toml:12:12: a fixed window needs `limit`, a number, and `window`, as \"1 min\"",
            "balde.toml:16:14: on_failure = \"local\" needs `local_share`, this process's part of the limit: \"25%\" or \"1/4\"",
            "balde.toml:19:15: `local_share` is a part of the limit, as \"25%\" or \"1/4\"",
            "balde.toml:20:10: `leases` must be true or false, and this is a whole number",
            "balde.toml:22:12: `strategy` must be \"token_bucket\" or \"fixed_window\"",
            "balde.toml:26:9: `burst` needs a `strategy`, or belongs into the text of `limit`",
            "balde.toml:28:14: `timeout_ms` must be between 1 and 100",
            "balde.toml:29:1: there is no key `conections` in [redis]; did you mean `connections`?",
            "balde.toml:31:34: `proxy` is no address and no network; write 10.1.2.3, 10.0.0.0/8 or 2001:db8::/32",
            "balde.toml:31:43: this trusts everybody, so every client could name its own address; list the proxies' networks",
            "balde.toml:31:56: `trusted_proxies` must be texts in quotes, and this is a whole number",
            "balde.toml:32:13: `forwarded` must be \"x-forwarded-for\" or \"forwarded\" or \"none\"",
            "balde.toml:33:18: `api_key_header` is no name of a header",
            "balde.toml:34:15: `ipv6_prefix` must be between 1 and 128",
            "balde.toml:36:9: `reset` must be a text in quotes, and this is true or false",
            "balde.toml:37:1: there is no key `ieft` in [headers]; did you mean `ietf`?",
            "balde.toml:38:2: there is no key `colour` here; there are limits, redis, identity, headers",
            "environment variable REDIS_ADDR: the store's address cannot be read; it is host:port, redis://[user:password@]host:port[/database], or the same with rediss:// for TLS",
        ]
    );
}

#[test]
fn broken_files_are_told_by_line_and_column() {
    let error = parse("[limits.a]\nlimit = \"10/s\n[limits.b\n", &[]).unwrap_err();
    let lines: Vec<usize> = error
        .faults()
        .iter()
        .map(|fault| match fault.place() {
            Place::File { line, .. } => *line,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(
        lines.contains(&2) && lines.contains(&3),
        "{lines:?}\n{error}"
    );
    assert_eq!(
        lines_of(""),
        ["balde.toml: there is no limit; write [limits.NAME] with limit = \"10/s\" in it"]
    );
    assert_eq!(
        lines_of("limits = 3"),
        ["balde.toml:1:10: `limits` must be a table, and this is a whole number"]
    );
    assert_eq!(
        lines_of("[limits]"),
        ["balde.toml:1:2: there is no limit; write [limits.NAME] with limit = \"10/s\" in it"]
    );
    let twice = lines_of("[limits.a]\nlimit = \"1/s\"\nlimit = \"2/s\"\n");
    assert_eq!(twice, ["balde.toml:3:1: duplicate key"]);

    let gone = Options::read("/nowhere/balde.toml")
        .unwrap_err()
        .to_string();
    assert!(
        gone.starts_with("error: /nowhere/balde.toml: cannot be read: "),
        "{gone}"
    );
}

fn lines_of(text: &str) -> Vec<String> {
    lines(text, &[])
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
        error.ends_with("has 2097152 bytes, more than 1048576"),
        "{error}"
    );
    std::fs::write(&path, [0xFF]).unwrap();
    assert!(Options::read(&path).is_err());
}

#[cfg(feature = "redis")]
mod with_redis {
    use super::*;

    const REDIS: (&str, &str) = ("RL_STORAGE_MODE", "redis");

    #[test]
    fn redis_needs_an_address_and_a_choice() {
        let text = "[limits.a]\nlimit = \"1/s\"\nstorage = \"redis\"\n";
        assert_eq!(
            lines(text, &[]),
            [
                "balde.toml:3:11: the buckets of `a` are in Redis, so what happens while it is away has to be chosen: on_failure = \"deny\", \"allow\" or \"local\"",
                "balde.toml:3:11: the buckets are in Redis, and nobody says where that is: write [redis] with addr = \"host:port\", or set REDIS_ADDR",
            ]
        );
        let chosen = format!("{text}on_failure = \"allow\"\n");
        assert!(parse(&chosen, &[("REDIS_ADDR", "127.0.0.1:1")]).is_ok());
        assert!(parse(&format!("{chosen}[redis]\naddr = \"127.0.0.1:1\"\n"), &[]).is_ok());
        // The environment moves all of them, one way or the other.
        assert!(parse(text, &[("RL_STORAGE_MODE", "memory")]).is_ok());
        assert_eq!(
            lines(
                "[limits.a]\nlimit = \"1/s\"\n",
                &[REDIS, ("REDIS_ADDR", "127.0.0.1:1")]
            )
            .len(),
            1
        );
    }

    #[test]
    fn what_is_built_is_where_it_was_said_to_be() {
        let text = r#"
            [limits.here]
            limit = "1/h"
            [limits.there]
            limit = "1/h"
            storage = "redis"
            on_failure = "local"
            local_share = "1/4"
            leases = true
            [redis]
            addr = "127.0.0.1:1"
            timeout_ms = 5
            connections = 1
            prefix = "test"
        "#;
        let limiters = parse(text, &[]).unwrap().build().unwrap();
        let check = |name: &str| limiters.get(name).unwrap().blocking().check("alice");
        assert!(!check("here").is_fallback());
        assert!(check("there").is_fallback(), "nobody listens there");
        let limiters = parse(text, &[("RL_STORAGE_MODE", "memory")])
            .unwrap()
            .build()
            .unwrap();
        assert!(
            !limiters
                .get("there")
                .unwrap()
                .blocking()
                .check("alice")
                .is_fallback()
        );
    }

    #[test]
    fn addresses_are_checked_before_anything_is_built() {
        let file = |redis: &str| format!("[limits.a]\nlimit = \"1/s\"\n[redis]\n{redis}\n");
        for (redis, expected) in [
            (
                "addr = \"h:1\"\ntls = true\ncluster = true\nuser = \"u\"",
                None,
            ),
            ("addr = \"h:1, h:2\"\ncluster = true", None),
            (
                "addr = \"h:1, h:2\"",
                Some("4:8: several addresses need cluster = true in [redis]"),
            ),
            (
                "addr = \"rediss://h\"\ntls = false",
                Some("5:7: the address begins with rediss://, so this must be true"),
            ),
            (
                "addr = \"rediss://h\"\nca_file = \"/nowhere.pem\"",
                Some("4:8: TLS cannot be set up: /nowhere.pem cannot be read"),
            ),
            (
                "addr = \"h:1\"\ncert_file = \"a\"",
                Some("5:13: `cert_file` and `key_file` go together"),
            ),
            (
                "addr = \"h:1\"\nca_file = \"a\"",
                Some("4:8: TLS cannot be set up"),
            ),
            (
                "password_env = \"NOWHERE\"",
                Some("4:16: this variable of the environment is not set"),
            ),
        ] {
            let found = parse(&file(redis), &[]);
            match expected {
                None => assert!(found.is_ok(), "{redis}"),
                Some(expected) => {
                    let error = found.unwrap_err();
                    let line = error.faults()[0].to_string();
                    assert!(
                        line.starts_with(&format!("balde.toml:{expected}")),
                        "{line}"
                    );
                }
            }
        }
    }

    #[test]
    fn secrets_are_in_no_message_and_no_debug() {
        let text = "[limits.a]\nlimit = \"1/s\"\n[redis]\npassword = \"hunter2\"\n\
                    addr = \"redis://u:hunter2@h:x\"\n";
        let error = parse(text, &[]).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(error.faults().len(), 2, "{shown}");
        assert!(shown.contains("password_env"), "{shown}");
        let inline =
            "limits = { a = { limit = \"1/x\" } }\nredis = { password = \"hunter2\", a = 1 }";
        let shown = told(inline, &[]);
        assert!(!shown.contains("hunter2"), "{shown}");
        let broken = told("[redis]\npassword = \"hunter2\nx = y\n", &[]);
        assert!(!broken.contains("hunter2"), "{broken}");

        let options = parse(
            "[limits.a]\nlimit = \"1/s\"\n[redis]\npassword_env = \"MINE\"\naddr = \"h:1\"\n",
            &[("MINE", "hunter2"), ("RL_LOG_SALT", "pepper")],
        )
        .unwrap();
        let shown = format!("{options:?}");
        assert!(
            !shown.contains("hunter2") && !shown.contains("pepper"),
            "{shown}"
        );
        assert_eq!(options.log_salt(), Some("pepper"));
    }

    #[test]
    fn the_environment_alone_is_enough() {
        let from = |pairs: Pairs<'_>| Options::from_env_with(lookup(pairs));
        let told = |pairs: Pairs<'_>| -> Vec<String> {
            let error = from(pairs).unwrap_err();
            error.faults().iter().map(ToString::to_string).collect()
        };
        let limiters = from(&[("RL_LIMIT", "5/s")]).unwrap().build().unwrap();
        assert_eq!(limiters.get("default").unwrap().limit().capacity(), 5);
        let choice = ("RL_ON_FAILURE", "local 25%");
        let all = [
            ("RL_LIMIT", "5/s"),
            REDIS,
            ("REDIS_ADDR", "127.0.0.1:1"),
            choice,
        ];
        assert!(from(&all).unwrap().build().is_ok());
        assert_eq!(
            told(&[
                ("RL_LIMIT", "5/y"),
                ("RL_STORAGE_MODE", "disk"),
                ("RL_ON_FAILURE", "maybe")
            ]),
            [
                "environment variable RL_STORAGE_MODE: this is no storage; set it to redis or memory",
                "environment variable RL_ON_FAILURE: this is no choice; set it to deny, allow, or local and a share, as local 25%",
                "environment variable RL_LIMIT: column 3: unknown unit `y`; use us, ms, s, min, h, day or week",
            ]
        );
        assert_eq!(
            told(&[("RL_LIMIT", "5/s"), REDIS]),
            [
                "environment variable RL_ON_FAILURE: is not set, but RL_STORAGE_MODE=redis needs it; set it to deny, allow or local 25%",
                "environment variable REDIS_ADDR: is not set, but RL_STORAGE_MODE=redis needs it; set it to host:port or a URL",
            ]
        );
        assert_eq!(
            told(&[]),
            ["environment variable RL_LIMIT: is not set; set it to a limit, as 10/s burst 20"]
        );
        let garbled = Options::from_env_with(|name| {
            let value: &[u8] = if name == "RL_LIMIT" { b"1/s" } else { b"\xFF" };
            Some(OsString::from_vec(value.to_vec()))
        });
        assert_eq!(garbled.unwrap_err().faults().len(), 5);
    }
}

#[cfg(feature = "http")]
mod with_http {
    use super::*;
    use balde::http::{HeaderOptions, PeerAddr, Reset};
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
            .reset(Reset::UnixTime)
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

const REFERENCE: &str = include_str!("../../../docs/options.toml");

#[cfg(all(feature = "redis", feature = "http"))]
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
#[cfg(all(feature = "redis", feature = "http"))]
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
