//! What operators see and may do: real processes of a simulated DICT, a gateway and a monitor.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The longest wait for something to happen. Nothing depends on it but how long a failure takes.
const PATIENCE: Duration = Duration::from_secs(120);

const PARTICIPANT: &str = "12345678";
/// A person.
const PAYER: &str = "11122233300";

struct Service {
    child: Child,
    /// The lines of its log that were read to find its address.
    address: String,
}

impl Drop for Service {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a command, and waits for the line of its log that is so.
fn start(folder: &Path, arguments: &[&str], is_ready: impl Fn(&Value) -> bool) -> Service {
    let mut child = Command::new(env!("CARGO_BIN_EXE_balde"))
        .args(arguments)
        .current_dir(folder)
        .env("TOKEN", "secret")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut service = Service {
        child,
        address: String::new(),
    };
    let mut lines = output.lines().map_while(Result::ok);
    for line in lines.by_ref() {
        let Ok(event) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        if is_ready(&event) {
            let url = event["url"].as_str().unwrap_or_default();
            let url = url.trim_start_matches("http://").trim_end_matches('/');
            url.clone_into(&mut service.address);
            std::thread::spawn(move || for _ in lines {});
            return service;
        }
    }
    panic!("{arguments:?} ended");
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Sends a request on a connection of its own; returns status and body.
fn request(address: &str, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let text = format!(
        "{head}Host: {address}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

fn get_json(address: &str, path: &str) -> Value {
    let head = format!("GET {path} HTTP/1.1\r\n");
    let (status, body) = request(address, &head, "");
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn a_payer_that_scans_is_on_the_monitors_report_and_its_refusals_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let [dict, listen, state] =
        [free_address(), free_address(), free_address()].map(|a| a.to_string());
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
    write(
        "gateway.toml",
        format!(
            "[[listener]]\naddress = \"{listen}\"\n\
             [[upstream]]\nname = \"dict\"\nurl = \"http://{dict}\"\n\
             [[route]]\npath = \"/\"\nupstream = \"dict\"\n\
             [state]\nlisten = \"{state}\"\ntoken_env = \"TOKEN\"\n\
             [dict]\nupstream = \"dict\"\nparticipants = [\"{PARTICIPANT}\"]\n\
             worst_payer_lookups = 300\n"
        ),
    );
    write(
        "monitor.toml",
        format!(
            "[http]\nlisten = \"127.0.0.1:0\"\n\
             [[participant]]\nispb = \"{PARTICIPANT}\"\n\
             gateway = \"http://{state}/balde/states\"\ntoken_env = \"TOKEN\"\n"
        ),
    );
    let is_listening = |event: &Value| event["event_type"] == "listening";
    let simulate = ["simulate", "--listen", &dict, "--category", "F"];
    let _dict = start(folder.path(), &simulate, is_listening);
    let _gateway = start(folder.path(), &["gateway", "-c", "gateway.toml"], |event| {
        event["event_type"] == "listening" || event["endpoint"] == "state"
    });
    let is_page = |event: &Value| event["endpoint"] == "page";
    let monitor = start(folder.path(), &["monitor", "-c", "monitor.toml"], is_page);

    let (mut not_found, mut refused) = (0, 0);
    for number in 0..300 {
        let head = format!(
            "GET /api/v2/entries/ninguem{number}@exemplo.com.br HTTP/1.1\r\n\
             PI-RequestingParticipant: {PARTICIPANT}\r\nPI-PayerId: {PAYER}\r\n\
             PI-EndToEndId: E{PARTICIPANT}202601010000{number:011}\r\n"
        );
        match request(&listen, &head, "").0 {
            404 => not_found += 1,
            429 => refused += 1,
            status => panic!("{status}"),
        }
    }
    assert!(not_found >= 5 && refused >= 250, "{not_found} {refused}");

    let begun = Instant::now();
    let report = loop {
        let status = get_json(&monitor.address, "/api/v1/status");
        let report = status["gateways"][PARTICIPANT].clone();
        if report["duties"]["worst_payers"][0]["refused"] == refused {
            break report;
        }
        assert!(begun.elapsed() < PATIENCE, "{report}");
        std::thread::sleep(Duration::from_millis(100));
    };
    println!("the monitor reported the payer after {:?}", begun.elapsed());
    let payer = &report["duties"]["worst_payers"][0];
    assert_eq!(
        (&payer["not_found"], &payer["lookups"]),
        (&not_found.into(), &not_found.into())
    );
    assert_eq!(report["duties"]["worst_payer_lookups"], 300);
    assert!(!report.to_string().contains(PAYER), "payers are hashed");
    let refusals = report["refusals"].as_array().unwrap();
    let [refusals] = &refusals[..] else {
        panic!("{report}");
    };
    assert_eq!(refusals["policy"], "ENTRIES_READ_USER_ANTISCAN");
    assert!(refusals["refusals"].as_u64().unwrap() > 0, "{report}");

    let head = "GET /metrics HTTP/1.1\r\nAuthorization: Bearer secret\r\n";
    let metrics = request(&state, head, "").1;
    let line = format!(
        "gateway_refusals_total{{participant=\"{PARTICIPANT}\",policy=\"ENTRIES_READ_USER_ANTISCAN\"}} {refused}"
    );
    assert!(metrics.contains(&line), "{metrics}");
}
