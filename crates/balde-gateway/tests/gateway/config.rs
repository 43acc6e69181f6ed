//! The configuration file: every key, and every problem with its place.

use std::path::Path;

use balde_gateway::Config;
use balde_gateway::config::{HostHeader, Protocol, Refill, Retry, Shadow, UserStart};

fn parse(text: &str) -> Result<Config, String> {
    let variable = |name: &str| (name == "BALDE_GATEWAY_TOKEN").then(|| "secret".to_owned());
    Config::parse(text, "gateway.toml", Path::new(""), variable).map_err(|error| {
        let problems = error.diagnostics().iter().map(ToString::to_string);
        problems.collect::<Vec<_>>().join("\n")
    })
}

/// The reference file with every commented key uncommented, apart from what needs files or a server.
fn reference() -> String {
    let text = include_str!("../../../../docs/gateway.toml");
    let needs_files = [
        "certificate",
        "key",
        "client_ca",
        "client_auth",
        "ca",
        "addr",
        "storage",
    ];
    let lines = text.lines().map(|line| {
        let key = line
            .strip_prefix('#')
            .and_then(|rest| rest.split(" =").next());
        match key {
            Some(key) if needs_files.contains(&key) => line,
            Some(key) if !key.contains(' ') && line.contains(" = ") => &line[1..],
            _ => line,
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_reference_file_has_every_key_and_is_valid() {
    let plain = parse(include_str!("../../../../docs/gateway.toml")).unwrap();
    let config = parse(&reference()).unwrap();
    // Commented keys show the defaults.
    let mut server = config.server.clone();
    server.workers = None;
    assert_eq!(plain.server, server);
    assert_eq!(plain.upstreams, config.upstreams);
    let dict = config.dict.unwrap();
    assert_eq!(Some(&dict), plain.dict.as_ref());
    assert_eq!(dict.refill, Refill::Unknown);
    assert_eq!(dict.user_start, UserStart::Full);
    assert_eq!(config.upstreams[0].host, HostHeader::Upstream);
    assert_eq!(config.upstreams[0].protocol, Protocol::Auto);
    assert_eq!(config.limiting.shadow, Shadow::Some(Vec::new()));
    assert_eq!(config.limiting.reserves.len(), 1);
    assert_eq!(config.limiting.keys_max, Some(1_000_000));
    assert_eq!(config.classes.len(), 2);
}

#[test]
fn all_problems_are_reported_at_once_with_their_places() {
    let problems = parse(
        "[[listener]]\naddress = \"8080\"\n\
         [[listener]]\naddress = \"127.0.0.1:1\"\ncertificate = \"none.pem\"\n\
         [[upstream]]\nname = \"a\"\nurl = \"ftp://x\"\n\
         [[upstream]]\nname = \"b\"\nurl = \"http://127.0.0.1:1/path\"\n\
         [[upstream]]\nname = \"c\"\nurl = \"http://127.0.0.1:1\"\nconnect_timeout = 5\n\
         [[route]]\npath = \"shop\"\nupstream = \"d\"\n\
         [[route]]\npath = \"/x\"\nupstream = \"c\"\nclass = \"live\"\n\
         [server]\nworkers = 0\n\
         [state]\naddress = \"127.0.0.1:9\"\ntoken_env = \"NOT_SET\"\n\
         [[policies.policy]]\nname = \"p\"\nlimit = \"10/fortnight\"\n\
         [limiting]\nshadow = [\"q\"]\n",
    )
    .unwrap_err();
    for expected in [
        "gateway.toml:2:11: this must be an address and a port",
        "gateway.toml:5:15: cannot read the file",
        "gateway.toml:3:1: `certificate` and `key` are used together",
        "gateway.toml:8:7: `url` must be http:// or https://",
        "gateway.toml:11:7: `url` must be http:// or https://",
        "gateway.toml:15:19: `connect_timeout` needs a unit: write \"5 s\", for instance",
        "gateway.toml:18:12: there is no upstream `d`",
        "gateway.toml:17:8: `path` must begin with `/`",
        "gateway.toml:22:9: there is no class `live`",
        "gateway.toml:24:11: `workers` must be",
        "gateway.toml:27:13: the environment variable that is named here is not set",
        "gateway.toml:30:13: unknown unit `fortnight`",
    ] {
        assert!(
            problems.contains(expected),
            "{expected}\n is not in\n{problems}"
        );
    }
}

#[test]
fn a_token_in_the_place_of_a_variables_name_is_not_shown() {
    for token in ["hunter2", "HUNTER2", "a b=c", "HUNTER_2"] {
        let text = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n\
             [[upstream]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\n\
             [[route]]\npath = \"/\"\nupstream = \"a\"\n\
             [state]\naddress = \"127.0.0.1:9\"\ntoken_env = \"{token}\"\n\
             [redis]\npassword_env = \"{token}\"\n"
        );
        let problems = parse(&text).unwrap_err();
        assert!(!problems.contains(token), "{problems}");
        let hint = "write the name of a variable, not its value";
        assert_eq!(problems.matches(hint).count(), 2, "{problems}");
    }
}

#[test]
fn a_request_to_dict_is_not_repeated_and_the_gateways_own_class_is_not_given_away() {
    let text = |of_upstream: &str, more: &str| {
        format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n\
             [[upstream]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\n{of_upstream}\n\
             [[route]]\npath = \"/\"\nupstream = \"a\"\n{more}\n"
        )
    };
    let dict = "[dict]\nupstream = \"a\"\nparticipants = [\"12345678\"]\n";
    let retry = |text: &str| parse(text).map(|config| config.upstreams[0].retry);
    assert_eq!(retry(&text("", "")), Ok(Retry::Idempotent));
    assert_eq!(retry(&text("", dict)), Ok(Retry::Unsent));
    assert_eq!(retry(&text("retry = \"unsent\"", "")), Ok(Retry::Unsent));
    let problems = retry(&text("retry = \"idempotent\"", dict)).unwrap_err();
    assert!(problems.contains("DICT may count both"), "{problems}");
    let class = "[[class]]\nname = \"balde.reconciliation\"\nheader = \"x\"\nvalue = \"y\"\n\
                 networks = [\"127.0.0.0/8\"]\n";
    let problems = parse(&text("", class)).unwrap_err();
    assert!(problems.contains("is the gateway's own"), "{problems}");
    for (reserve, is_valid) in [("0%", true), ("90%", true), ("91%", false), ("25", false)] {
        let reserve = format!("{dict}reconcile_reserve = \"{reserve}\"\n");
        assert_eq!(parse(&text("", &reserve)).is_ok(), is_valid, "{reserve}");
    }
}

#[test]
fn an_empty_file_says_what_it_needs() {
    let problems = parse("").unwrap_err();
    for expected in ["no listener", "no upstream", "no route"] {
        assert!(problems.contains(expected), "{problems}");
    }
}

#[test]
fn dict_needs_a_profile_of_dict_and_a_participant() {
    let text = "[[listener]]\naddress = \"127.0.0.1:0\"\n\
        [[upstream]]\nname = \"dict\"\nurl = \"http://127.0.0.1:1\"\n\
        [[route]]\npath = \"/\"\nupstream = \"dict\"\n";
    let problems = parse(&format!(
        "{text}[dict]\nupstream = \"other\"\nrefill = \"maybe\"\n\
         [[policies.policy]]\nname = \"p\"\nlimit = \"1/s\"\n"
    ))
    .unwrap_err();
    for expected in [
        "`participants` must list at least one ISPB",
        "there is no upstream `other`",
        "[dict] needs a profile with api = \"dict\"",
        "`refill` must be",
    ] {
        assert!(
            problems.contains(expected),
            "{expected}\n is not in\n{problems}"
        );
    }
    let dict = "[dict]\nupstream = \"dict\"\nparticipants = [\"12345678\"]\n";
    let config = parse(&format!("{text}{dict}")).unwrap();
    assert_eq!(config.limiting.profile.unwrap().name(), "dict-2.12.1");
    let problems = parse(&format!(
        "{text}{dict}[limiting]\nprofile = \"dict-2.12.1\"\nsettings = {{ refill = \"sometimes\" }}\n"
    ))
    .unwrap_err();
    assert!(problems.contains("gateway.toml:13:11: "), "{problems}");
    assert!(problems.contains("refill"), "{problems}");
}

#[test]
fn a_class_by_header_needs_networks() {
    let text = "[[listener]]\naddress = \"127.0.0.1:0\"\n\
        [[upstream]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\n\
        [[route]]\npath = \"/\"\nupstream = \"a\"\n\
        [[class]]\nname = \"live\"\nheader = \"x-class\"\nvalue = \"live\"\n";
    let problems = parse(text).unwrap_err();
    assert!(problems.contains("`header` needs `networks`"), "{problems}");
    assert!(parse(&format!("{text}networks = [\"10.0.0.0/8\", \"::1\"]\n")).is_ok());
}
