//! The file: what is accepted, and what is said about what is not.

use std::path::Path;

use balde_service::Config;

use crate::running::variable;

fn problems(text: &str) -> String {
    Config::parse(text, "service.toml", Path::new(""), variable)
        .map(|config| panic!("accepted: {config:?}"))
        .unwrap_err()
        .to_string()
}

#[test]
fn every_problem_is_reported_with_its_place_and_a_remedy() {
    let text = problems(
        r#"
[limits.a]
limit = "10 fortnightly"

[http]
address = "8085"
conections_max = 3
client_ca = "missing.pem"

[resp]
address = "127.0.0.1:0"
idle_timeout = "soon"

[[token]]
name = "short"
token_env = "SHORT"
rights = ["check", "everything"]

[logs]
level = "info"
"#,
    );
    for expected in [
        "service.toml:3:13",
        "this must be an address and a port, such as 127.0.0.1:8085",
        "did you mean `connections_max`?",
        "`client_ca` needs TLS: write `certificate` and `key`, too",
        "idle_timeout",
        "a right must be \"check\", \"settle\" or \"admin\"",
        "token_env = *",
        "[logs] is not used in a service's file; use `balde serve --log-level` instead",
    ] {
        assert!(
            text.contains(expected),
            "{expected:?} is missing in\n{text}"
        );
    }
}

#[test]
fn a_service_that_listens_nowhere_is_refused() {
    let text = problems("[limits.a]\nlimit = \"10/s\"\n");
    assert!(text.contains("the service listens nowhere"), "{text}");
}

#[test]
fn a_secret_that_can_be_guessed_is_refused() {
    let text = "[http]\naddress = \"127.0.0.1:0\"\n[[token]]\nname = \"a\"\ntoken_env = \"S\"\n\
                rights = [\"check\"]\n";
    let short = |name: &str| (name == "S").then(|| "0123456789abcde".to_owned());
    let error = Config::parse(text, "service.toml", Path::new(""), short).unwrap_err();
    assert!(error.to_string().contains("fewer than 16 bytes"), "{error}");
    assert!(!error.to_string().contains("0123456789abcde"), "{error}");
}

#[test]
fn redis_without_an_address_or_a_failure_policy_is_refused() {
    let text = problems(
        "[limits.a]\nlimit = \"10/s\"\nstorage = \"redis\"\n[dynamic]\nstorage = \"redis\"\n\
         on_failure = \"deny\"\n[resp]\naddress = \"127.0.0.1:0\"\n",
    );
    assert!(
        text.contains("on_failure = \"deny\", \"allow\" or \"local\""),
        "{text}"
    );
    assert!(text.contains("Redis has no address"), "{text}");
}
