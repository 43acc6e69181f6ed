//! Limits whose buckets are in Redis: validation of the file and of the environment.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use balde::Options;

use super::{Pairs, lines, lookup, parse, rendered};

const REDIS: (&str, &str) = ("RL_STORAGE_MODE", "redis");

#[test]
fn redis_needs_an_address_and_a_choice() {
    let text = "[limits.a]\nlimit = \"1/s\"\nstorage = \"redis\"\n";
    assert_eq!(
        lines(text, &[]),
        [
            "balde.toml:3:11: [limits.a] keeps its buckets in Redis and has to choose what happens while Redis is unavailable: on_failure = \"deny\", \"allow\" or \"local\"",
            "balde.toml:3:11: the buckets are in Redis, but Redis has no address: write [redis] with address = \"host:port\", or set REDIS_ADDR",
        ]
    );
    let chosen = format!("{text}on_failure = \"allow\"\n");
    assert!(parse(&chosen, &[("REDIS_ADDR", "127.0.0.1:1")]).is_ok());
    assert!(
        parse(
            &format!("{chosen}[redis]\naddress = \"127.0.0.1:1\"\n"),
            &[]
        )
        .is_ok()
    );
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
        address = "127.0.0.1:1"
        timeout = '5 ms'
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
            "address = \"h:1\"\ntls = true\ncluster = true\nuser = \"u\"",
            None,
        ),
        ("address = \"h:1, h:2\"\ncluster = true", None),
        (
            "address = \"h:1, h:2\"",
            Some("4:11: several addresses need cluster = true in [redis]"),
        ),
        (
            "address = \"rediss://h\"\ntls = false",
            Some("5:7: the address begins with rediss://, so `tls` must be true"),
        ),
        (
            "address = \"rediss://h\"\nca = \"/nowhere.pem\"",
            Some("4:11: /nowhere.pem cannot be read"),
        ),
        (
            "address = \"h:1\"\ncertificate = \"a\"",
            Some("5:15: `certificate` and `key` are used together: write both or neither"),
        ),
        (
            "address = \"h:1\"\nca = \"a\"",
            Some("4:11: a cannot be read"),
        ),
        (
            "password_env = \"NOWHERE\"",
            Some(
                "4:16: the environment variable that is named here is not set, or empty; write the \
                 name of a variable, not its value, and set the variable",
            ),
        ),
    ] {
        let found = parse(&file(redis), &[]);
        match expected {
            None => assert!(found.is_ok(), "{redis}"),
            Some(expected) => {
                let error = found.unwrap_err();
                let line = error.diagnostics()[0].to_string();
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
                address = \"redis://u:hunter2@h:x\"\n";
    let error = parse(text, &[]).unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    assert_eq!(error.diagnostics().len(), 2, "{shown}");
    assert!(shown.contains("password_env"), "{shown}");
    let inline = "limits = { a = { limit = \"1/x\" } }\nredis = { password = \"hunter2\", a = 1 }";
    let shown = rendered(inline, &[]);
    assert!(!shown.contains("hunter2"), "{shown}");
    for key in ["pass", "pwd", "Password", "auth_token", "client_secret"] {
        let shown = rendered(&format!("[redis]\n{key} = \"hunter2\"\n"), &[]);
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let broken = rendered("[redis]\npassword = \"hunter2\nx = y\n", &[]);
    assert!(!broken.contains("hunter2"), "{broken}");

    let options = parse(
        "[limits.a]\nlimit = \"1/s\"\n[redis]\npassword_env = \"MINE\"\naddress = \"h:1\"\n",
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
    let reported = |pairs: Pairs<'_>| -> Vec<String> {
        let error = from(pairs).unwrap_err();
        error
            .diagnostics()
            .iter()
            .map(ToString::to_string)
            .collect()
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
        reported(&[
            ("RL_LIMIT", "5/y"),
            ("RL_STORAGE_MODE", "disk"),
            ("RL_ON_FAILURE", "maybe")
        ]),
        [
            "environment variable RL_STORAGE_MODE: unknown storage; set it to redis or memory",
            "environment variable RL_ON_FAILURE: unknown choice; set it to deny, allow, or local with a share: local 25%",
            "environment variable RL_LIMIT: column 3: unknown unit `y`; use us, ms, s, min, h, day or week",
        ]
    );
    assert_eq!(
        reported(&[("RL_LIMIT", "5/s"), REDIS]),
        [
            "environment variable RL_ON_FAILURE: not set, but RL_STORAGE_MODE=redis requires it; set it to deny, allow or local 25%",
            "environment variable REDIS_ADDR: not set, but RL_STORAGE_MODE=redis requires it; set it to host:port or a URL",
        ]
    );
    assert_eq!(
        reported(&[]),
        ["environment variable RL_LIMIT: not set; set it to a limit such as 10/s burst 20"]
    );
    let garbled = Options::from_env_with(|name| {
        let value: &[u8] = if name == "RL_LIMIT" { b"1/s" } else { b"\xFF" };
        Some(OsString::from_vec(value.to_vec()))
    });
    assert_eq!(garbled.unwrap_err().diagnostics().len(), 10);
}
