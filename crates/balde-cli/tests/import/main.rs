//! `balde import`: files of envoyproxy/ratelimit and of Limitador with all their features become a file
//! that `balde check` accepts and `balde serve` enforces as the original would.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import");
    tests.join(name)
}

struct Imported {
    is_success: bool,
    file: String,
    notes: String,
}

fn import(from: &str, files: &[&Path]) -> Imported {
    let mut balde = Command::new(env!("CARGO_BIN_EXE_balde"));
    let output = balde.args(["import", from]).args(files).output().unwrap();
    Imported {
        is_success: output.status.success(),
        file: String::from_utf8(output.stdout).unwrap(),
        notes: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Imported {
    /// The lines of the notes that are about a file, without its folder: `LINE: NOTE`.
    fn notes_of(&self, file: &str) -> Vec<String> {
        let lines = self.notes.lines();
        let of_file = lines.filter_map(|line| line.split_once(&format!("{file}:")));
        of_file.map(|(_, note)| note.to_owned()).collect()
    }

    /// Checks that there is a note that begins with a line number and has a text.
    fn assert_note(&self, file: &str, line: usize, text: &str) {
        let notes = self.notes_of(file);
        let is_it = |note: &String| {
            note.starts_with(&format!("{line}: not imported: ")) && note.contains(text)
        };
        assert!(notes.iter().any(is_it), "{line} {text}: {notes:#?}");
    }

    fn limit(&self, name: &str) -> &str {
        let section = format!("[limits.{name}]\nlimit = \"");
        let (_, rest) = self.file.split_once(&section).expect(name);
        rest.split_once('"').unwrap().0
    }
}

/// `balde serve` with an imported file, after `balde check`.
struct Serving {
    child: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    fn start(imported: &Imported) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("service.toml");
        let file = imported.file.replace("127.0.0.1:8081", "127.0.0.1:0");
        std::fs::write(&path, &file).unwrap();
        let mut balde = Command::new(env!("CARGO_BIN_EXE_balde"));
        let checked = balde.arg("check").arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{said}\n{file}");
        let mut child = Command::new(env!("CARGO_BIN_EXE_balde"))
            .args(["serve", "--log-format", "json", "-c"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = loop {
            let line = lines.next().expect("balde serve has ended").unwrap();
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["event_type"] == "listening" {
                break line["url"].as_str().unwrap().replace("grpc://", "http://");
            }
        };
        // Nobody reads further lines, and the service does not wait for a reader.
        Self {
            child,
            url,
            _folder: folder,
        }
    }

    /// Sends the same request several times. Returns how many were allowed before the first refusal; all
    /// later ones must be refused, too.
    fn allowed(&self, domain: &str, descriptors: &[&[(&str, &str)]], times: usize) -> usize {
        let entry = |(key, value): &(&str, &str)| Entry {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
        };
        let descriptors = descriptors.iter().map(|entries| RateLimitDescriptor {
            entries: entries.iter().map(entry).collect(),
            ..RateLimitDescriptor::default()
        });
        let request = RateLimitRequest {
            domain: domain.to_owned(),
            descriptors: descriptors.collect(),
            hits_addend: 1,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let codes: Vec<i32> = runtime.block_on(async {
            let url = self.url.clone();
            let mut client = RateLimitServiceClient::connect(url).await.unwrap();
            let mut codes = Vec::new();
            for _ in 0..times {
                let answer = client.should_rate_limit(request.clone()).await.unwrap();
                codes.push(answer.into_inner().overall_code);
            }
            codes
        });
        let allowed = codes.iter().take_while(|code| **code == 1).count();
        assert!(codes[allowed..].iter().all(|code| *code == 2), "{codes:?}");
        allowed
    }
}

#[test]
fn envoy_ratelimit_is_imported_and_enforced_as_the_original_does() {
    let imported = import(
        "envoy-ratelimit",
        &[&fixture("shop.yaml"), &fixture("mail.yaml")],
    );
    assert!(imported.is_success, "{}", imported.notes);
    let serving = Serving::start(&imported);
    let shop = |entries: &[(&str, &str)]| serving.allowed("shop", &[entries], 5);
    // Each address has its own bucket, and values may be exempt or blocked.
    assert_eq!(shop(&[("remote_address", "1.1.1.1")]), 3);
    assert_eq!(shop(&[("remote_address", "1.1.1.2")]), 3);
    assert_eq!(shop(&[("remote_address", "10.0.0.1")]), 5);
    assert_eq!(shop(&[("remote_address", "10.0.0.2")]), 5);
    assert_eq!(shop(&[("remote_address", "10.0.0.66")]), 0);
    // Nested descriptors.
    assert_eq!(shop(&[("path", "/")]), 5, "only with a user");
    assert_eq!(shop(&[("path", "/"), ("user", "ann")]), 2);
    assert_eq!(shop(&[("path", "/"), ("user", "bob")]), 1);
    assert_eq!(shop(&[("path", "/cart"), ("user", "bob")]), 1);
    assert_eq!(shop(&[("path", "/login")]), 2);
    assert_eq!(
        shop(&[("path", "/login"), ("remote_address", "2.2.2.2")]),
        1
    );
    // The original finds /login, and nothing about users there.
    assert_eq!(shop(&[("path", "/login"), ("user", "ann")]), 5);
    assert_eq!(shop(&[("path", "/login"), ("user", "bob")]), 5);
    assert_eq!(shop(&[("path", "/"), ("remote_address", "2.2.2.2")]), 5);
    // The first wildcard that fits, with a bucket for each value.
    assert_eq!(shop(&[("file", "img/large/1")]), 2);
    assert_eq!(shop(&[("file", "img/large/2")]), 2);
    assert_eq!(shop(&[("file", "css")]), 5);
    // A shared bucket for each tenant.
    assert_eq!(shop(&[("tenant", "a"), ("job", "batch-1")]), 2);
    assert_eq!(shop(&[("tenant", "a"), ("job", "batch-2")]), 0);
    assert_eq!(shop(&[("tenant", "b"), ("job", "batch-2")]), 2);
    assert_eq!(shop(&[("trial", "x")]), 5, "shadow mode");
    assert_eq!(shop(&[("slow", "x")]), 1);
    // Domains are apart, and a request is refused if one of its descriptors is.
    assert_eq!(
        serving.allowed("mail", &[&[("remote_address", "1.1.1.1")]], 3),
        1
    );
    assert_eq!(
        serving.allowed("other", &[&[("remote_address", "1.1.1.1")]], 3),
        3
    );
    let both: &[&[(&str, &str)]] = &[&[("remote_address", "3.3.3.3")], &[("slow", "y")]];
    assert_eq!(serving.allowed("shop", both, 3), 1);
}

#[test]
fn envoy_ratelimit_says_with_lines_what_it_does_not_import() {
    let imported = import(
        "envoy-ratelimit",
        &[&fixture("shop.yaml"), &fixture("mail.yaml")],
    );
    imported.assert_note("shop.yaml", 47, "`detailed_metric`");
    imported.assert_note(
        "shop.yaml",
        52,
        "`replaces`: a request that has a descriptor of per-user",
    );
    imported.assert_note("shop.yaml", 60, "`file=img/large*`");
    imported.assert_note("shop.yaml", 72, "`value_to_metric`");
    imported.assert_note("shop.yaml", 91, "`unit` `fortnight` is unknown");
    assert_eq!(
        imported.notes_of("shop.yaml").len(),
        5,
        "{}",
        imported.notes
    );
    assert_eq!(imported.notes.lines().count(), 5, "{}", imported.notes);
    assert_eq!(imported.limit("per-user"), "2/day stepwise");
    assert_eq!(imported.limit("shop_slow"), "1/36 h stepwise");
    assert_eq!(imported.limit("shop_path__login"), "2/30 day stepwise");
    assert_eq!(imported.limit("mail_remote_address"), "1/day stepwise");
    assert!(
        imported.file.contains(r#"match = ["to \"quoted\" \\=é*"]"#),
        "{}",
        imported.file
    );
}

#[test]
fn limitador_is_imported_and_enforced_as_the_original_does() {
    let imported = import("limitador", &[&fixture("limits.yaml")]);
    assert!(imported.is_success, "{}", imported.notes);
    let serving = Serving::start(&imported);
    let shop = |entries: &[(&str, &str)]| serving.allowed("shop", &[entries], 5);
    let (post, api) = (("req.method", "POST"), ("path", "/api/x"));
    // Two for each user, in any order and among other entries.
    assert_eq!(shop(&[post, ("user", "ann")]), 2);
    assert_eq!(
        shop(&[("x", "y"), ("user", "ann"), post]),
        0,
        "her bucket is empty"
    );
    // Three writes for all users together; ann's refused requests have cost nothing.
    assert_eq!(shop(&[post, api, ("user", "bob")]), 2);
    assert_eq!(shop(&[post, api, ("user", "eve")]), 1);
    // Without a user the first limit does not apply; the limit of all requests has one of six left.
    assert_eq!(shop(&[("req.method", "GET"), api]), 1);
    assert_eq!(shop(&[("req.method", "GET")]), 0);
    assert_eq!(serving.allowed("closed", &[&[("a", "b")]], 3), 0);
    let old = &[("req_method", "GET"), ("user_id", "ann")];
    assert_eq!(serving.allowed("old", &[old], 3), 1);
    assert_eq!(serving.allowed("old", &[&[("req_method", "GET")]], 3), 3);
    assert_eq!(serving.allowed("old", &[&[("user_id", "bob")]], 3), 3);
}

#[test]
fn limitador_says_with_lines_what_it_does_not_import() {
    let imported = import("limitador", &[&fixture("limits.yaml")]);
    imported.assert_note("limits.yaml", 32, "|| descriptors[0].b == 'y'`");
    imported.assert_note("limits.yaml", 37, "several descriptors");
    imported.assert_note("limits.yaml", 43, "the variable `descriptors[0].user +");
    imported.assert_note("limits.yaml", 48, "`seconds` is missing");
    imported.assert_note("limits.yaml", 54, "unknown key `weight`");
    assert_eq!(imported.notes.lines().count(), 5, "{}", imported.notes);
    assert_eq!(imported.limit("posts_per_user"), "2/3600 s window");
    assert_eq!(imported.limit("writes"), "3/3600 s window");
    let contains = r#"contains = ["req.method!=GET", "path=/api/*"]"#;
    assert!(imported.file.contains(contains), "{}", imported.file);
}

#[test]
fn files_that_cannot_be_read_fail_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.yaml");
    for (from, text, expected) in [
        (
            "envoy-ratelimit",
            "descriptors: []\n",
            "wrong.yaml:1: there is no `domain`",
        ),
        (
            "envoy-ratelimit",
            "domain: a\ndescriptors:\n- value: b\n",
            "wrong.yaml:3: a descriptor needs a `key`",
        ),
        (
            "envoy-ratelimit",
            "domain: a\n",
            "no limit that could be imported",
        ),
        ("limitador", "a: [\n", "wrong.yaml:2: "),
        ("limitador", "a: b\n", "wrong.yaml:1: expected a list"),
    ] {
        std::fs::write(&file, text).unwrap();
        let imported = import(from, &[&file]);
        assert!(!imported.is_success, "{text}");
        assert_eq!(imported.file, "", "{text}");
        assert!(
            imported.notes.contains(expected),
            "{text}: {}",
            imported.notes
        );
    }
    let imported = import("limitador", &[Path::new("/nowhere.yaml")]);
    assert!(!imported.is_success);
}

/// A file has at most 256 limits, so rules with the same numbers share one.
#[test]
fn a_thousand_descriptors_share_limits_with_the_same_numbers() {
    use std::fmt::Write as _;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("many.yaml");
    let mut text = "domain: many\ndescriptors:\n".to_owned();
    for index in 0..1_000 {
        let requests = index % 100 + 1;
        let limit = format!("{{ unit: day, requests_per_unit: {requests} }}");
        let _ = writeln!(
            text,
            "- {{ key: user, value: u{index}, rate_limit: {limit} }}"
        );
    }
    std::fs::write(&file, text).unwrap();
    let imported = import("envoy-ratelimit", &[&file]);
    assert_eq!(imported.notes, "");
    assert_eq!(imported.file.matches("[limits.").count(), 100);
    let serving = Serving::start(&imported);
    let user = |name: &str| serving.allowed("many", &[&[("user", name)]], 4);
    assert_eq!(
        (user("u1"), user("u101"), user("u3"), user("v")),
        (2, 2, 4, 4)
    );
}
