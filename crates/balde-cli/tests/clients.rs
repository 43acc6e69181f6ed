//! The examples of clients in other languages, with a real `balde serve`; schemathesis with the service and
//! with the monitor.

#[path = "../../balde-service/tests/support/certificates.rs"]
mod certificates;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// Two requests for each key, and none for a long time.
const FILE: &str = "[limits.per_user]\nlimit = \"2/day\"\n[access]\n\
                    anonymous = [\"check\", \"settle\", \"admin\"]\n[server]\nwait_max = \"1 s\"\n\
                    [http]\naddress = \"127.0.0.1:0\"\n[resp]\naddress = \"127.0.0.1:0\"\n\
                    [rls]\naddress = \"127.0.0.1:0\"\n[[rls.rule]]\ndomain = \"edge\"\n\
                    match = [\"user\"]\nlimit = \"per_user\"\n";

struct Serving {
    child: Child,
    http: String,
    resp: String,
    rls: String,
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
    fn start() -> Self {
        Self::start_with(FILE)
    }

    fn start_with(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("service.toml");
        std::fs::write(&file, text).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_balde"))
            .args(["serve", "--log-format", "json", "-c"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = |endpoint: &str| loop {
            let line = lines.next().expect("balde serve has ended").unwrap();
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["event_type"] == "listening" && line["endpoint"] == endpoint {
                let url = line["url"].as_str().unwrap();
                let address = url.split("://").nth(1).unwrap();
                break address.trim_end_matches('/').to_owned();
            }
        };
        let (http, resp, rls) = (address("http"), address("resp"), address("rls"));
        Self {
            child,
            http: format!("http://{http}"),
            resp: format!("redis://{resp}"),
            rls,
            _folder: folder,
        }
    }
}

/// What a program of examples/clients prints.
fn output(program: impl AsRef<Path>, arguments: &[&str]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/clients");
    let output = Command::new(program.as_ref())
        .args(arguments)
        .current_dir(folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NODE_PATH", tools().join("npm/node_modules"))
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", program.as_ref().display()));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The folder of what scripts/test.sh installs.
fn tools() -> PathBuf {
    std::env::var_os("BALDE_TEST_TOOLS").map_or_else(
        || {
            let target = Path::new(env!("CARGO_BIN_EXE_balde")).ancestors().nth(2);
            let target = target.expect("the binary is below the target folder");
            target.join("test-tools")
        },
        PathBuf::from,
    )
}

fn python() -> PathBuf {
    tools().join("bin/python3")
}

/// Asserts that two of three requests were allowed, and the third has to wait for so many seconds, less
/// what the requests took.
fn assert_two_of_three(shown: &str, allowed: [&str; 2], refused: &str, wait_s: u64) {
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[..2], allowed, "{shown}");
    let wait = lines[2]
        .strip_prefix(refused)
        .unwrap_or_else(|| panic!("{shown}"));
    let wait: u64 = wait.trim_end_matches(" s").parse().unwrap();
    assert!(
        (1..=wait_s).contains(&wait) && wait + 20 >= wait_s,
        "{shown}"
    );
}

const ALLOWED: [&str; 2] = ["allowed, 1 left", "allowed, 0 left"];
const THROTTLED: [&str; 2] = ["allowed, 1 of 2 left", "allowed, 0 of 2 left"];
const REFUSED: &str = "refused, retry in ";

/// Half a day.
const WAIT_S: u64 = 43_200;

#[test]
fn python_asks_over_http_and_by_redis_cells_command() {
    let service = Serving::start();
    let arguments = ["check.py", &service.http, "per_user", "python"];
    let shown = output(python(), &arguments);
    assert_two_of_three(&shown, ALLOWED, REFUSED, WAIT_S);
    let shown = output(python(), &["throttle.py", &service.resp, "python"]);
    assert_two_of_three(&shown, THROTTLED, REFUSED, 30);
}

#[test]
fn python_asks_over_grpc_as_envoy_does() {
    let service = Serving::start();
    let shown = output(python(), &["rate_limit.py", &service.rls, "edge", "python"]);
    assert_two_of_three(&shown, ALLOWED, REFUSED, WAIT_S);
}

#[test]
fn python_asks_over_grpc_with_a_certificate_and_gets_no_answer_without() {
    let folder = certificates::certificates();
    let tls = certificates::tls_keys(folder.path());
    let service = Serving::start_with(&FILE.replace("[[rls.rule]]", &format!("{tls}[[rls.rule]]")));
    let address = service.rls.replace("127.0.0.1", "localhost");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let files = ["ca.pem", "client.pem", "client.key"].map(path);
    let ask = |files: &[String]| {
        let mut arguments = vec!["rate_limit.py", &address, "edge", "certified"];
        arguments.extend(files.iter().map(String::as_str));
        output(python(), &arguments)
    };
    assert_two_of_three(&ask(&files), ALLOWED, REFUSED, WAIT_S);
    for files in [&files[..1], &[]] {
        let shown = ask(files);
        assert_eq!(
            shown.matches("no answer (UNAVAILABLE)").count(),
            3,
            "{shown}"
        );
    }
}

#[test]
fn node_asks_by_redis_cells_command() {
    let service = Serving::start();
    let shown = output("node", &["throttle.cjs", &service.resp, "node"]);
    assert_two_of_three(&shown, THROTTLED, REFUSED, 30);
}

#[test]
fn go_asks() {
    let service = Serving::start();
    let arguments = ["run", "check.go", &service.http, "per_user", "go"];
    let shown = output("go", &arguments);
    assert_two_of_three(&shown, ALLOWED, REFUSED, WAIT_S);
}

#[test]
fn pythons_middleware_limits_and_has_a_failure_policy() {
    let service = Serving::start();
    let shown = output(python(), &["asgi_limit_test.py", &service.http]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_two_of_three(&shown, ["200 2 1 None", "200 2 0 None"], "429 2 0 ", WAIT_S);
    assert_eq!(lines[3..], ["200", "503"], "fail open, fail closed");
}

#[test]
fn node_asks_and_its_middleware_limits() {
    let service = Serving::start();
    let arguments = ["check.mjs", &service.http, "per_user", "alice"];
    let shown = output("node", &arguments);
    assert_two_of_three(&shown, ALLOWED, REFUSED, WAIT_S);
    let shown = output("node", &["express_limit_test.mjs", &service.http]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_two_of_three(&shown, ["200 2 1 null", "200 2 0 null"], "429 2 0 ", WAIT_S);
    assert_eq!(lines[3], "200 null null null", "fail open");
    assert_eq!(lines[4], "503 null null 1", "fail closed");
}

#[test]
fn java_asks() {
    let service = Serving::start();
    let arguments = ["Check.java", &service.http, "per_user", "java"];
    let shown = output("java", &arguments);
    assert_two_of_three(&shown, ALLOWED, REFUSED, WAIT_S);
}

/// Runs all checks of schemathesis on the description that a server publishes.
fn assert_schemathesis_finds_nothing(url: &str, arguments: &[&str], config: &str) {
    let tool = python().with_file_name("schemathesis");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("schemathesis.toml"), config).unwrap();
    let output = Command::new(&tool)
        .args(["run", &format!("{url}/openapi.json"), "--url", url])
        .args(["--checks", "all", "--max-examples", "25"])
        .args(["--request-timeout", "60", "--seed", "20261117"])
        .args(arguments)
        .current_dir(folder.path())
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", tool.display()));
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
}

#[test]
fn schemathesis_finds_nothing_in_the_services_description() {
    let service = Serving::start();
    assert_schemathesis_finds_nothing(&service.http, &[], "");
}

/// Ends with the test.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A schema cannot say that one field is not after another: `from_us` and `until_us` of a history, and the
/// start and the end of a silence. So these requests may be refused with 400, although they fit the schema.
const RELATED_FIELDS: &str = r#"
[[operations]]
include-name = "GET /api/v1/history"
[operations.checks.positive_data_acceptance]
expected-statuses = ["2xx", "400", "503"]

[[operations]]
include-name = "POST /api/v1/silences"
[operations.checks.positive_data_acceptance]
expected-statuses = ["2xx", "400", "404", "409", "503"]
"#;

/// The monitor of `balde up`, which has buckets, a history, alerts and a gateway. The stream never ends,
/// so it is left out.
#[test]
fn schemathesis_finds_nothing_in_the_monitors_description() {
    let any = "127.0.0.1:0";
    let mut child = Command::new(env!("CARGO_BIN_EXE_balde"))
        .args([
            "up",
            "--dict",
            any,
            "--monitor",
            any,
            "--gateway",
            any,
            "--state",
            any,
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let _up = Up(child);
    let mut lines = lines.map_while(Result::ok);
    let page = lines.find(|line| line.starts_with("page ")).unwrap();
    let monitor = page
        .split_whitespace()
        .find(|word| word.starts_with("http://"));
    let monitor = monitor.unwrap().trim_end_matches('/');
    assert!(lines.any(|line| line.contains("WARNING")), "an alert");
    std::thread::spawn(move || lines.count());
    let arguments = ["--exclude-path", "/api/v1/stream"];
    assert_schemathesis_finds_nothing(monitor, &arguments, RELATED_FIELDS);
}
