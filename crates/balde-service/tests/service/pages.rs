//! The page and the example file say what the code does.

use std::collections::BTreeSet;
use std::path::Path;

use balde_service::{Config, OPENAPI};

use crate::running::Running;

/// The keys that the code takes out of sections: literals that follow one of these calls.
fn keys() -> BTreeSet<String> {
    const CALLS: [&str; 14] = [
        ".string(\"",
        ".strings(\"",
        ".integer(\"",
        ".boolean(\"",
        ".choice(\"",
        ".duration(\"",
        ".require(\"",
        ".table(\"",
        ".tables(\"",
        "counted(\"",
        "sized(\"",
        "time(\"",
        "section, \"",
        "&mut section,\n        \"",
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config");
    let mut keys = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        // Formatting may put the key on a line of its own.
        let text = text
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .replace("( \"", "(\"");
        for call in CALLS {
            let found = text.split(call).skip(1);
            keys.extend(found.filter_map(|rest| rest.split('"').next().map(str::to_owned)));
        }
    }
    keys.retain(|key| {
        key.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    });
    keys
}

#[test]
fn the_page_and_the_example_have_every_key_and_the_defaults() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = std::fs::read_to_string(docs.join("service.md")).unwrap();
    let example = std::fs::read_to_string(docs.join("service.toml")).unwrap();
    let keys = keys();
    assert!(
        keys.len() > 45,
        "only {} keys were found: {keys:?}",
        keys.len()
    );
    for key in keys {
        let is_table = [
            "http", "resp", "rls", "proxy", "state", "server", "access", "token", "dynamic",
            "policies", "limiting", "identity", "rule", "limits",
        ]
        .contains(&key.as_str());
        let in_example = if is_table {
            example.contains(&format!("[{key}")) || example.contains(&format!(".{key}]]"))
        } else {
            example.lines().any(|line| {
                line.trim_start_matches("# ")
                    .starts_with(&format!("{key} ="))
            })
        };
        assert!(in_example, "docs/service.toml lacks `{key}`");
        assert!(
            is_table || page.contains(&format!("`{key}`")),
            "docs/service.md lacks `{key}`"
        );
    }
    // Certificates and secrets are on another machine.
    if let Err(error) = Config::check_without_secrets(docs.join("service.toml")) {
        panic!("{error}");
    }
    has_defaults(&page);
}

/// The numbers of the page are those of a file that says nothing.
fn has_defaults(page: &str) {
    let sections = ["http", "resp", "rls"];
    let text = sections
        .map(|name| format!("[{name}]\naddress = \"127.0.0.1:0\"\n"))
        .concat();
    let config = Config::parse(&text, "service.toml", Path::new(""), |_| None).unwrap();
    let (http, resp, rls) = (
        config.http.unwrap(),
        config.resp.unwrap(),
        config.rls.unwrap(),
    );
    let kib = |bytes: usize| format!("{} KiB", bytes >> 10);
    let thousands = |number: usize| format!("{},{:03}", number / 1_000, number % 1_000);
    let seconds = |time: std::time::Duration| format!("{} s", time.as_secs());
    let minutes = |time: std::time::Duration| format!("{} min", time.as_secs() / 60);
    let listener = &http.listener;
    let server = &config.server;
    let (connections, idle) = (
        thousands(listener.connections_max),
        minutes(listener.idle_timeout),
    );
    let (arguments, holds) = (thousands(resp.arguments_max), thousands(server.holds_max));
    for row in [
        format!("| `connections_max` | {connections}; "),
        format!(
            "| `idle_timeout`, `write_timeout` | {idle}; {} in which",
            seconds(listener.write_timeout)
        ),
        format!(
            "| `body_size_max` (`[http]`) | {} |",
            kib(http.body_bytes_max)
        ),
        format!(
            "(`[resp]`) | {} for an argument, {arguments} arguments, {} of answers",
            kib(resp.argument_bytes_max),
            kib(resp.reply_bytes_max)
        ),
        format!(
            "(`[rls]`) | {}, {} descriptors",
            kib(rls.message_bytes_max),
            rls.descriptors_max
        ),
        format!(
            "| `in_flight_max` | {} decisions",
            thousands(server.in_flight_max)
        ),
        format!(
            "{holds} open holds, {} blocked keys",
            thousands(server.blocked_max)
        ),
        format!("| `wait_max` | {}, ", seconds(server.wait_max)),
        format!("parameters (`limits_max`, {})", config.dynamic.limits_max),
    ] {
        assert!(page.contains(&row), "docs/service.md lacks {row:?}");
    }
}

/// The first cells of the table with this head, as they are between backticks.
fn first_cells(page: &str, head: &str) -> BTreeSet<String> {
    let rows = page
        .lines()
        .skip_while(|line| !line.starts_with(head))
        .skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.split(" | ").next().unwrap_or_default());
    let spans = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    spans.map(str::to_owned).collect()
}

#[tokio::test]
async fn the_tables_of_requests_and_commands_are_those_of_the_code() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = std::fs::read_to_string(docs.join("service.md")).unwrap();
    let described: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
    let mut requests = BTreeSet::new();
    for (path, operations) in described["paths"].as_object().unwrap() {
        let methods = operations.as_object().unwrap().keys();
        requests.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    // What every server has is in the text.
    requests.retain(|request| request.contains("/v1/"));
    assert_eq!(first_cells(&page, "| Request |"), requests);

    let service = Running::start("[limits.a]\nlimit = \"1/s\"\n").await;
    let client = redis::Client::open(format!("redis://{}", service.address("resp"))).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let commands: Vec<redis::Value> = redis::cmd("COMMAND")
        .query_async(&mut connection)
        .await
        .unwrap();
    let name = |command: &redis::Value| match command {
        redis::Value::Array(parts) => redis::from_redis_value::<String>(parts[0].clone()).unwrap(),
        other => panic!("{other:?}"),
    };
    let mut known: BTreeSet<String> = commands.iter().map(name).collect();
    // It is described in the text above the table.
    assert!(
        known.remove("cl.throttle") && page.contains("`CL.THROTTLE key max_burst count period")
    );
    let shown = first_cells(&page, "| Command |");
    let shown = shown
        .iter()
        .map(|span| span.split(' ').next().unwrap().to_lowercase());
    assert_eq!(shown.collect::<BTreeSet<_>>(), known);
    service.stop().await;
}
