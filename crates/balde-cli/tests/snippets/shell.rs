//! The shell commands of each page, and what they print.

use std::fs;
use std::process::Command;

use balde::{OnFailure, REDIS_TIMEOUT_MAX, RateLimiter, RedisStore};

use crate::blocks::{self, Block};
use crate::redis_server::RedisServer;
use crate::session::Session;
use crate::{first_block, has_tool};

/// Lines that are not run, and why.
const NOT_RUN: [(&str, &str); 9] = [
    ("./scripts/test.sh", "it runs this test"),
    (
        "cargo install balde-cli",
        "not published; builds for minutes",
    ),
    ("bin/pulsar standalone &", "needs Java"),
    (
        "BALDE_PULSAR_URL=",
        "needs that server; crates/balde-monitor/tests/pulsar has another one",
    ),
    (
        "pg_dump ",
        "crates/balde-monitor/tests/history/upgrade.rs runs it",
    ),
    (
        "createdb ",
        "crates/balde-monitor/tests/history/upgrade.rs runs it",
    ),
    (
        "pg_restore ",
        "crates/balde-monitor/tests/history/upgrade.rs runs it",
    ),
    ("cargo install mdbook", "builds for minutes"),
    ("mdbook ", "not among the programs that the tests need"),
];

/// Succeeds if the command exists, with the options that the words have.
pub(crate) fn has_help<'a>(words: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut balde = Command::new(env!("CARGO_BIN_EXE_balde"));
    // `balde help` is help already.
    let words = words.filter(|word| *word != "help");
    let output = balde.args(words).arg("--help").output().unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Whether a block of text shows what the shell block before it prints.
pub(crate) fn is_output(block: &Block) -> bool {
    shown_outputs()
        .iter()
        .any(|(_, text)| text.page == block.page && text.line == block.line)
}

/// Shell blocks with the text right after them.
fn shown_outputs() -> Vec<(Block, Block)> {
    let blocks = blocks::all();
    let pairs = blocks.windows(2).filter(|pair| {
        let [shell, text] = pair else { return false };
        // The closing fence, an empty line, the next fence.
        let end = shell.line + shell.code.lines().count() + 1;
        shell.language == "sh"
            && text.language == "text"
            && shell.page == text.page
            && text.line == end + 2
    });
    pairs
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect()
}

/// The shell blocks of a page, without what is not run.
fn shell_blocks(page: &str) -> Vec<Block> {
    let mut blocks = blocks::all();
    blocks.retain(|block| block.page == page && block.language == "sh");
    for block in &mut blocks {
        let lines = block.code.lines();
        let is_run = |line: &&str| !NOT_RUN.iter().any(|(start, _)| line.starts_with(start));
        block.code = lines.filter(is_run).collect::<Vec<_>>().join("\n");
    }
    blocks
}

/// Runs the blocks of a page. Each must print what belongs to it in `expected`, and what the page shows.
fn run(page: &str, mut session: Session, expected: &[&str]) {
    let blocks = shell_blocks(page);
    assert_eq!(blocks.len(), expected.len(), "{page}: the number of blocks");
    for block in &blocks {
        session.block(block);
    }
    compare(page, &blocks, session.run(page), expected);
}

fn compare(page: &str, blocks: &[Block], printed: Vec<String>, expected: &[&str]) {
    let shown = shown_outputs();
    for ((block, printed), expected) in blocks.iter().zip(printed).zip(expected) {
        let mut rest = printed.as_str();
        for part in expected.split('…') {
            let found = rest.find(part);
            let at = found.unwrap_or_else(|| panic!("{block}: no {part} in\n{printed}"));
            rest = &rest[at + part.len()..];
        }
        let text = shown
            .iter()
            .find(|(shell, _)| shell.line == block.line && shell.page == page);
        if let Some((_, text)) = text {
            let is_same = text.code.lines().count() == printed.lines().count()
                && text.code.lines().zip(printed.lines()).all(|(shown, real)| {
                    match shown.strip_suffix('…') {
                        Some(start) => real.starts_with(start),
                        None => real.trim_end() == shown,
                    }
                });
            assert!(
                is_same,
                "{text} shows\n{}\nbut it prints\n{printed}",
                text.code
            );
        }
    }
}

/// A Redis with one used bucket, at the documented port.
fn with_redis(session: &mut Session) -> Option<RedisServer> {
    let server = RedisServer::start()?;
    let store = RedisStore::builder()
        .address(server.url())
        .timeout(REDIS_TIMEOUT_MAX);
    let limiter = RateLimiter::builder()
        .name("per-user")
        .limit("1/h burst 100");
    let limiter = limiter
        .redis(&store.build().unwrap(), OnFailure::Deny)
        .build()
        .unwrap();
    for _ in 0..200 {
        if !limiter.blocking().check_n("alice", 30).is_fallback() {
            break;
        }
    }
    let url = server.url();
    let (_, port) = url.rsplit_once(':')?;
    session.set_port(6379, port.trim_end_matches('/').parse().unwrap());
    Some(server)
}

const TOO_MANY: &str = "404 404 404 404 404 429 429 429";

#[test]
fn every_page_with_commands_is_run() {
    let source = include_str!("shell.rs");
    for block in blocks::all() {
        if block.language == "sh" {
            let page = format!("\"{}\"", block.page);
            assert!(source.contains(&page), "{block}: no test runs this page");
        }
    }
    for (line, _) in NOT_RUN {
        let is_used = blocks::all().iter().any(|block| block.code.contains(line));
        assert!(is_used, "{line} is on no page");
    }
}

#[test]
fn readme() {
    run(
        "README.md",
        Session::new(),
        &["", TOO_MANY, "<AvailableTokens>36000", ""],
    );
}

#[test]
fn readme_in_portuguese() {
    run("README.pt-BR.md", Session::new(), &["", TOO_MANY, ""]);
}

#[test]
fn front_page() {
    run("docs/README.md", Session::new(), &[""]);
}

#[test]
fn contributing() {
    run("CONTRIBUTING.md", Session::new(), &[""]);
}

#[test]
fn readmes_of_crates() {
    let mut session = Session::new();
    session.commands("cargo new service && cd service");
    run("crates/balde/README.md", session, &[""]);
    run("crates/balde-cli/README.md", Session::new(), &[""]);
}

#[test]
fn completions_manual_and_certify() {
    let page =
        "test -s ~/.local/share/man/man1/balde.1 && test -s certify.xml && test -s certify.html";
    run_and_then("docs/cli.md", Session::new(), &["", ""], page);
}

#[test]
fn service() {
    let session = Session::new();
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/import");
    let config = session.folder().join("config");
    fs::create_dir(&config).unwrap();
    for (name, folder) in [
        ("shop.yaml", config.as_path()),
        ("mail.yaml", config.as_path()),
        ("limits.yaml", session.folder()),
    ] {
        fs::copy(format!("{examples}/{name}"), folder.join(name)).unwrap();
    }
    run("docs/service.md", session, &["service.toml: service"]);
}

/// Runs the blocks of a page, and then commands that check what they left.
fn run_and_then(page: &str, mut session: Session, expected: &[&str], then: &str) {
    let blocks = shell_blocks(page);
    assert_eq!(blocks.len(), expected.len(), "{page}: the number of blocks");
    for block in &blocks {
        session.block(block);
    }
    session.commands(then);
    compare(page, &blocks, session.run(page), expected);
}

/// The file that two pages put in front of their service.
fn shop(session: &Session, limit: &str, route: &str) {
    let text = first_block("docs/gateway.md", "toml").code;
    let text = text.replace("2/s burst 20", limit);
    let text = text.replace(
        "upstream = \"shop\"\n",
        &format!("upstream = \"shop\"\n{route}"),
    );
    fs::write(
        session.folder().join("shop.toml"),
        session.with_ports(&text),
    )
    .unwrap();
}

#[test]
fn bulk_jobs() {
    let mut session = Session::new();
    // Faster than on the page, for the test's sake.
    shop(&session, "200/s burst 20", "wait_max = '5 s'\n");
    fs::write(session.folder().join("search"), "hello\n").unwrap();
    session.commands("python3 -m http.server 9000 &");
    let all_pass = ["200"; 60].join(" ");
    run(
        "docs/for-bulk-jobs.md",
        session,
        &[&all_pass, "ENTRIES_READ_PARTICIPANT_ANTISCAN", ""],
    );
}

#[test]
fn service_engineers() {
    let mut session = Session::new();
    let Some(_redis) = with_redis(&mut session) else {
        return;
    };
    let twenty_pass = [vec!["200"; 20], vec!["429"; 5]].concat().join(" ");
    let page = "docs/for-service-engineers.md";
    let mut blocks = shell_blocks(page);
    // Slower than on the page, so that no token comes back while the test runs.
    assert!(blocks[0].code.contains("2/s burst 20"));
    blocks[0].code = blocks[0].code.replace("2/s burst 20", "2/h burst 20");
    for block in &blocks {
        session.block(block);
    }
    let expected = [
        &*format!("shop.toml: gateway, 1 route, 1 upstream, valid\n{twenty_pass}"),
        "alice…70",
    ];
    compare(page, &blocks, session.run(page), &expected);
}

#[test]
fn psp_teams() {
    for page in ["docs/for-psp-teams.md", "docs/pt-BR/for-psp-teams.md"] {
        let mut session = Session::new();
        session.copy("docs/gateway.toml");
        let blocks = shell_blocks(page);
        assert_eq!(blocks.len(), 2, "{page}");
        session.block(&blocks[0]);
        session.end_up();
        session.block(&blocks[1]);
        // The sentence after it: the gateway answers the sixth, and the simulator has not seen it.
        let key = "http://127.0.0.1:8080/api/v2/entries/ninguem@exemplo.com.br";
        session.commands(&format!(
            "for i in 2 3 4 5 6; do
curl -s -o /dev/null -w '%{{http_code}} ' {key} -H 'PI-RequestingParticipant: 12345678' \\
  -H 'PI-PayerId: 11122233300' -H 'PI-EndToEndId: E1234567820260101000000000000001'
done
curl -s http://127.0.0.1:8085/sim/refusals"
        ));
        let counted = "404 Not Found…ENTRIES_READ_USER_ANTISCAN…404 404 404 404 429 …\"count\": 0";
        compare(page, &blocks, session.run(page), &["", counted]);
    }
}

#[test]
fn on_call() {
    for page in ["docs/for-on-call.md", "docs/pt-BR/for-on-call.md"] {
        let mut session = Session::new();
        let Some(_redis) = with_redis(&mut session) else {
            return;
        };
        session.commands("balde up");
        // `balde up` prints the token that it made.
        session.commands("BALDE_GATEWAY_TOKEN=$(sed -n 's/.*Bearer \\([0-9a-f]*\\).*/\\1/p' \"$SESSION/up.log\")");
        let first_look = "\"participants\"…\"is_leader\"";
        let silence = "\"CRITICAL\"";
        let who = "KEYS_CHECK…alice";
        run(page, session, &[first_look, silence, who, ""]);
    }
}

#[test]
fn operations() {
    if !has_tool("sqlite3") {
        return;
    }
    for page in ["docs/operations.md", "docs/pt-BR/operations.md"] {
        let mut session = Session::new();
        let monitor = "[http]\naddress = \"127.0.0.1:9180\"\n[[participant]]\nispb = \"12345678\"\n\
                       dict = \"http://127.0.0.1:8085/api/v2/\"\n";
        fs::write(
            session.folder().join("monitor.toml"),
            session.with_ports(monitor),
        )
        .unwrap();
        session.commands(
            "balde simulate &
balde monitor -c monitor.toml &
until curl -s http://127.0.0.1:9180/metrics | grep -q '^dict_rate_limit_available_tokens'; do sleep 0.1; done",
        );
        // The backup is made while the monitor runs, has its samples, and a monitor starts with it.
        let restored = "test \"$(sqlite3 balde-backup.db 'PRAGMA integrity_check')\" = ok
test \"$(sqlite3 balde-backup.db 'SELECT count(*) FROM sample')\" -gt 20
kill $(jobs -p | tail -n1); wait $(jobs -p | tail -n1) || true
mv balde-backup.db monitor.db
rm -f monitor.db-wal monitor.db-shm
balde monitor -c monitor.toml &
balde health http://127.0.0.1:9180/readyz";
        run_and_then(page, session, &["", "", ""], restored);
    }
}

#[test]
fn simulator() {
    let found = "HTTP/1.1 200 OK…ENTRIES_READ_USER_ANTISCAN";
    let manual = "\"level\": 5…HTTP/1.1 404 Not Found…HTTP/1.1 429 Too Many Requests…retry-after: 480…HTTP/1.1 200 OK";
    run("docs/simulator.md", Session::new(), &[found, manual]);
}

#[test]
fn monitor_and_alerts() {
    for page in ["docs/alerts.md", "docs/pt-BR/alerts.md"] {
        run(page, Session::new(), &[""]);
    }
    for page in ["docs/monitor.md", "docs/pt-BR/monitor.md"] {
        run(page, Session::new(), &[""]);
    }
}

#[test]
fn index_in_portuguese() {
    let mut session = Session::new();
    shop(&session, "2/s burst 20", "");
    fs::rename(
        session.folder().join("shop.toml"),
        session.folder().join("gateway.toml"),
    )
    .unwrap();
    let page = "docs/pt-BR/index.md";
    let alerts = first_block(page, "toml").code;
    let participant =
        "[[participant]]\nispb = \"12345678\"\ndict = \"http://127.0.0.1:8085/api/v2/\"\n";
    fs::write(
        session.folder().join("monitor.toml"),
        format!("{alerts}{participant}"),
    )
    .unwrap();
    session.commands("true");
    run(
        page,
        session,
        &["", "monitor.toml: monitor, 1 participant, 1 sink, valid"],
    );
}
