//! The gateway's log says where an upstream should be and why it cannot be used, once a second for each
//! cause, and when it answers again.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

struct Gateway {
    child: Child,
    address: SocketAddr,
    events: std::sync::mpsc::Receiver<Value>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

impl Gateway {
    /// A gateway with an upstream for each route.
    fn start(folder: &std::path::Path, upstreams: &[(&str, &str)]) -> Self {
        let address = free_address();
        let mut file = format!("[[listener]]\naddress = \"{address}\"\n");
        for (name, url) in upstreams {
            let ca = if url.starts_with("https") {
                "ca = \"ca.pem\"\n"
            } else {
                ""
            };
            let section = format!(
                "[[upstream]]\nname = \"{name}\"\nurl = \"{url}\"\n{ca}\
                 [[route]]\npath = \"/{name}\"\nupstream = \"{name}\"\n"
            );
            file.push_str(&section);
        }
        std::fs::write(folder.join("gateway.toml"), file).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_balde"))
            .args(["gateway", "-c", "gateway.toml", "--log-format", "json"])
            .current_dir(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, events) = std::sync::mpsc::channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _gone = serde_json::from_str(&line).map(|event| sender.send(event));
            }
        });
        let gateway = Self {
            child,
            address,
            events,
        };
        gateway.event(|event| event["event_type"] == "listening");
        gateway
    }

    fn event(&self, is_so: impl Fn(&Value) -> bool) -> Value {
        loop {
            let event = self.events.recv_timeout(PATIENCE).expect("a line in time");
            if is_so(&event) {
                return event;
            }
        }
    }

    fn status(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let _cut = stream.read_to_string(&mut answer);
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    }
}

#[test]
fn errors_of_an_upstream_name_its_address_and_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let authority = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(folder.path().join("ca.pem"), authority.cert.pem()).unwrap();
    let nobody = free_address();
    // No resolver has to be asked: a label has at most 63 characters.
    let name = format!("{}.invalid:9", "x".repeat(64));
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let plain_address = plain.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in plain.incoming().map_while(Result::ok) {
            let _gone = stream.write_all(b"HTTP/1.1 400 this is not TLS\r\n\r\n");
        }
    });
    let gateway = Gateway::start(
        folder.path(),
        &[
            ("refused", &format!("http://{nobody}")),
            ("unresolved", &format!("http://{name}")),
            ("tls", &format!("https://{plain_address}")),
        ],
    );
    for (upstream, address, cause) in [
        ("refused", nobody.to_string(), "connection refused"),
        ("unresolved", name, "cannot be resolved (DNS)"),
        ("tls", plain_address.to_string(), "it does not speak TLS"),
    ] {
        assert_eq!(gateway.status(&format!("/{upstream}")), "502");
        let event = gateway.event(|event| event["event_type"] == "upstream_error");
        assert_eq!(
            (&event["upstream"], &event["address"]),
            (&upstream.into(), &address.clone().into())
        );
        let message = event["message"].as_str().unwrap();
        let place = format!("upstream {upstream} at {address}: ");
        assert!(
            message.starts_with(&place) && message.contains(cause),
            "{message}"
        );
    }

    // It is there: one line says that it is over.
    let server = TcpListener::bind(nobody).unwrap();
    thread::spawn(move || {
        for mut stream in server.incoming().map_while(Result::ok) {
            let mut head = [0; 4_096];
            let _read = stream.read(&mut head);
            let _gone = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
        }
    });
    let begun = Instant::now();
    let recovered = loop {
        assert!(begun.elapsed() < PATIENCE, "it is never over");
        let _either = gateway.status("/refused");
        let found = gateway.events.try_iter().find(|event| {
            event["event_type"] == "upstream_recovered" && event["upstream"] == "refused"
        });
        if let Some(event) = found {
            break event;
        }
        thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(recovered["address"], nobody.to_string());
}
