//! `balde gateway` as a process: reloads, shutdown, and being killed under load, or its upstream.

#[path = "../../balde/tests/support/redis_server.rs"]
#[expect(dead_code, reason = "these tests neither kill nor freeze the server")]
mod redis_server;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis_server::RedisServer;
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(120);
const PARTICIPANT: &str = "12345678";
const PSP_POLICY: &str = "ENTRIES_READ_PARTICIPANT_ANTISCAN";
const USER_POLICY: &str = "ENTRIES_READ_USER_ANTISCAN";

struct Running {
    child: Child,
    /// The addresses of its lines, in their order.
    addresses: Vec<SocketAddr>,
    lines: Box<dyn Iterator<Item = String> + Send>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(arguments: &[&str], addresses: usize) -> Running {
    let mut child = Command::new(env!("CARGO_BIN_EXE_balde"))
        .args(arguments)
        .env("TOKEN", "secret")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines: Box<dyn Iterator<Item = String> + Send> = Box::new(lines.map_while(Result::ok));
    let mut found = Vec::new();
    while found.len() < addresses {
        let Some(line) = lines.next() else {
            let mut errors = String::new();
            let stderr: &mut Option<ChildStderr> = &mut child.stderr;
            stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            panic!("{arguments:?} ended: {errors}");
        };
        let address: Option<SocketAddr> = line.split_once("http://").and_then(|(_, rest)| {
            let rest = rest.split(['/', ' ']).next()?;
            rest.parse().ok()
        });
        found.extend(address);
    }
    Running {
        child,
        addresses: found,
        lines,
    }
}

impl Running {
    fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    /// Reads lines until one has the text.
    fn line_with(&mut self, text: &str) -> String {
        let found = self.lines.by_ref().find(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("no line with {text}"))
    }

    /// Reads all further lines, so that they do not fill the pipe.
    fn discard_lines(&mut self) {
        let lines = std::mem::replace(&mut self.lines, Box::new(std::iter::empty()));
        std::thread::spawn(move || lines.for_each(drop));
    }

    fn stop(mut self) {
        self.signal("-INT");
        // Further output must not fill the pipe.
        self.lines.by_ref().for_each(drop);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

/// One request over a new connection: its status, or zero without an answer.
fn ask(address: SocketAddr, path: &str, headers: &str) -> (u16, String) {
    send(address, "GET", path, headers, "")
}

fn send(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
    let Ok(mut stream) = TcpStream::connect(address) else {
        return (0, String::new());
    };
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Length: {length}\r\n{headers}\r\n{body}"
    );
    if stream.write_all(request.as_bytes()).is_err() {
        return (0, String::new());
    }
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status.unwrap_or(0), body.to_owned())
}

fn until(what: &str, mut is_reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_reached() {
        assert!(start.elapsed() < DEADLINE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A lookup of a key that does not exist, by a payer used only once: only the participant's bucket runs
/// dry.
fn look_up(gateway: SocketAddr, number: usize) -> (u16, String) {
    let payer = payer(number);
    let headers = format!(
        "PI-RequestingParticipant: {PARTICIPANT}\r\nPI-PayerId: {payer}\r\n\
         PI-EndToEndId: E{PARTICIPANT}202601010000{number:011}\r\n",
    );
    ask(gateway, "/api/v2/entries/nobody@example.com", &headers)
}

fn payer(number: usize) -> String {
    format!("{:011}", number + 10_000_000_000)
}

/// The states of the participant's buckets, or of one payer's.
fn states(state: SocketAddr, payer: Option<&str>) -> Value {
    let payer = payer.map_or(String::new(), |payer| format!("&payer={payer}"));
    let path = format!("/balde/states?participant={PARTICIPANT}{payer}");
    let (_, shown) = ask(state, &path, "Authorization: Bearer secret\r\n");
    serde_json::from_str(&shown).unwrap_or_default()
}

/// A value of a bucket.
fn value_of(states: &Value, policy: &str, name: &str) -> Option<i64> {
    let mut policies = states["policies"].as_array()?.iter();
    policies.find(|one| one["policy"] == policy)?[name].as_i64()
}

/// A metric by its name and labels.
fn metric(state: SocketAddr, name: &str) -> Option<u64> {
    let (_, metrics) = ask(state, "/metrics", "Authorization: Bearer secret\r\n");
    let mut lines = metrics.lines();
    lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

const RECONCILED: &str = "gateway_dict_reconciliations_total{result=\"ok\"}";

/// Waits for a reconciliation that begins after now.
fn until_reconciled(state: SocketAddr) {
    let reconciled = || metric(state, RECONCILED).unwrap_or(0);
    // One may be under way.
    let before = reconciled();
    until("two reconciliations", || reconciled() >= before + 2);
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

fn write_config(file: &Path, listen: SocketAddr, upstream: SocketAddr, more: &str) {
    let text = format!(
        "[[listener]]\naddress = \"{listen}\"\n\
         [[upstream]]\nname = \"dict\"\nurl = \"http://{upstream}\"\n\
         [[route]]\npath = \"/\"\nupstream = \"dict\"\n{more}"
    );
    std::fs::write(file, text).unwrap();
}

#[test]
fn a_reload_applies_a_good_file_and_refuses_a_broken_one_with_every_problem() {
    let dict = start(&["simulate", "--listen", "127.0.0.1:0"], 1);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let name = file.display().to_string();
    let listen = free_address();
    let policies =
        |limit: &str| format!("[[policies.policy]]\nname = \"all\"\nlimit = \"{limit}\"\n");
    write_config(&file, listen, dict.addresses[0], &policies("1/h burst 2"));
    let mut gateway = start(&["gateway", "-c", &name], 1);
    assert_eq!(gateway.addresses[0], listen);
    let status = |path: &str| ask(listen, path, "").0;
    assert_eq!(
        [status("/sim/"), status("/sim/"), status("/sim/")],
        [200, 200, 429]
    );

    // Two tokens more, and the deficit stays.
    write_config(&file, listen, dict.addresses[0], &policies("1/h burst 4"));
    gateway.signal("-HUP");
    gateway.line_with("reloaded");
    assert_eq!(
        [status("/sim/"), status("/sim/"), status("/sim/")],
        [200, 200, 429]
    );

    let broken =
        policies("1/fortnight").replace("[[policies.policy]]", "colour = 1\n[[policies.policy]]");
    write_config(&file, listen, dict.addresses[0], &broken);
    gateway.signal("-HUP");
    let line = gateway.line_with("the old configuration stays");
    assert!(line.contains("unknown key `colour`"), "{line}");
    assert!(line.contains("unknown unit `fortnight`"), "{line}");
    assert!(line.contains("gateway.toml:"), "{line}");
    assert_eq!(status("/sim/"), 429);
    gateway.stop();

    let output = Command::new(env!("CARGO_BIN_EXE_balde"))
        .args(["gateway", "-c", &name])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(
        shown.contains("fortnight") && shown.contains("colour"),
        "{shown}"
    );
}

#[test]
fn a_killed_gateway_keeps_its_promise_again_after_one_reconciliation() {
    let dict = start(
        &["simulate", "--listen", "127.0.0.1:0", "--category", "F"],
        1,
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let name = file.display().to_string();
    let (listen, state) = (free_address(), free_address());
    let more = format!(
        "[state]\naddress = \"{state}\"\ntoken_env = \"TOKEN\"\n\
         [dict]\nupstream = \"dict\"\nparticipants = [\"{PARTICIPANT}\"]\nrefill = \"profile\"\n\
         reconcile_every = '1 s'\n"
    );
    write_config(&file, listen, dict.addresses[0], &more);
    let mut gateway = start(&["gateway", "-c", &name], 3);
    let reconciled = || metric(state, RECONCILED).is_some_and(|count| count > 0);
    until("the first reconciliation", reconciled);

    let is_over = Arc::new(AtomicBool::new(false));
    let number = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (is_over, number) = (is_over.clone(), number.clone());
            std::thread::spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    look_up(listen, number.fetch_add(1, Ordering::SeqCst));
                }
            })
        })
        .collect();
    until("requests", || number.load(Ordering::SeqCst) > 40);
    gateway.child.kill().unwrap();
    gateway.child.wait().unwrap();
    let mut gateway = start(&["gateway", "-c", &name], 3);
    until("a reconciliation after the restart", reconciled);
    let refusals = || {
        let (_, shown) = ask(dict.addresses[0], "/sim/refusals?limit=1000", "");
        shown.matches("\"policy\"").count()
    };
    let before = refusals();
    let target = number.load(Ordering::SeqCst) + 200;
    until("more requests", || number.load(Ordering::SeqCst) > target);
    is_over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.join().unwrap();
    }
    assert_eq!(
        refusals(),
        before,
        "DICT refused nothing after the reconciliation"
    );
    // Nothing is lost or counted twice: with no call in flight, a reconciliation finds no difference.
    let drift = || value_of(&states(state, None), PSP_POLICY, "drift");
    until("agreement with DICT", || {
        drift().is_some_and(|drift| drift.abs() <= 5)
    });
    gateway.lines = Box::new(std::iter::empty());
    gateway.signal("-INT");
    gateway.child.wait().unwrap();
}

#[test]
fn what_a_killed_gateway_held_is_charged_and_the_other_keeps_the_promise() {
    const IN_FLIGHT: usize = 8;
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let dict = start(
        &["simulate", "--listen", "127.0.0.1:0", "--category", "F"],
        1,
    );
    let folder = tempfile::tempdir().unwrap();
    let start_gateway = |number: usize| {
        let file = folder.path().join(format!("gateway{number}.toml"));
        let (listen, state) = (free_address(), free_address());
        let more = format!(
            "[state]\naddress = \"{state}\"\ntoken_env = \"TOKEN\"\n\
             [limiting]\nstorage = \"redis\"\nhold_ttl = \"2 s\"\n\
             [redis]\naddress = \"{}\"\ntimeout = '100 ms'\n\
             [dict]\nupstream = \"dict\"\nparticipants = [\"{PARTICIPANT}\"]\n\
             category = \"F\"\nrefill = \"profile\"\nreconcile_every = '0 s'\n",
            redis.addr()
        );
        write_config(&file, listen, dict.addresses[0], &more);
        let gateway = start(&["gateway", "-c", &file.display().to_string()], 3);
        (gateway, listen, state)
    };
    let (mut killed, of_killed, _) = start_gateway(0);
    let (other, listen, state) = start_gateway(1);
    let held = || value_of(&states(state, None), PSP_POLICY, "in_flight");
    let load = [Load::start(listen, 4)];
    // DICT keeps calls of the first gateway waiting until it is dead.
    let slow = r#"{"operation": "getEntry", "latency_ms": 60000, "percent": 100}"#;
    let is_ok = |(status, body): (u16, String)| assert_eq!(status, 200, "{body}");
    until("calls through the other", || {
        load[0].count(Ending::Answered) > 20
    });
    let [load] = load;
    load.stop();
    let json = "Content-Type: application/json\r\n";
    is_ok(send(dict.addresses[0], "PUT", "/sim/faults", json, slow));
    let calls: Vec<_> = (0..IN_FLIGHT)
        .map(|number| {
            std::thread::spawn(move || {
                // Its gateway is killed before it has an answer.
                let answer = std::panic::catch_unwind(|| look_up(of_killed, 100_000 + number));
                !matches!(answer, Ok((200..=599, _)))
            })
        })
        .collect();
    let tokens = i64::try_from(3 * IN_FLIGHT).unwrap();
    until("the other sees what is held", || held() == Some(tokens));
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    for call in calls {
        assert!(call.join().unwrap(), "a call without an answer");
    }
    is_ok(send(dict.addresses[0], "DELETE", "/sim/faults", "", ""));
    let value = |name| value_of(&states(state, None), PSP_POLICY, name).unwrap();
    let level = || value("certain_level");
    let (since, before) = (Instant::now(), level());
    until("what was held is charged", || held() == Some(0));
    let after = level();
    let elapsed_us = i64::try_from(since.elapsed().as_micros()).unwrap();
    let refilled = value("refill_tokens") * elapsed_us / value("period_us") + 1;
    assert!(
        after <= before - tokens + refilled,
        "{before}, and then {after}"
    );
    let load = Load::start(listen, 4);
    until("the bucket runs dry", || load.count(Ending::Refused) > 40);
    load.stop();
    let (_, shown) = ask(dict.addresses[0], "/sim/refusals?limit=1000", "");
    assert_eq!(shown.matches("\"policy\"").count(), 0, "{shown}");
    let of_dict = level_in_dict(dict.addresses[0], PSP_POLICY, None);
    assert!(level() <= of_dict, "DICT has {of_dict}");
    drop(other);
}

#[test]
fn a_killed_upstream_loses_no_call_and_none_is_settled_twice() {
    const CALLERS: usize = 8;
    // DICT's buckets survive it.
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let dict_address = free_address();
    let (address, url) = (dict_address.to_string(), redis.url());
    let simulate = [
        "simulate",
        "--listen",
        &address,
        "--redis",
        &url,
        "--category",
        "F",
    ];
    let mut dict = start(&simulate, 1);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let (listen, state) = (free_address(), free_address());
    let more = format!(
        "[state]\naddress = \"{state}\"\ntoken_env = \"TOKEN\"\n\
         [dict]\nupstream = \"dict\"\nparticipants = [\"{PARTICIPANT}\"]\nrefill = \"profile\"\n\
         reconcile_every = '1 s'\n"
    );
    write_config(&file, listen, dict_address, &more);
    let mut gateway = start(&["gateway", "-c", &file.display().to_string()], 3);
    gateway.discard_lines();
    until("DICT states the category", || {
        states(state, None)["category"] == "F"
    });

    let load = Load::start(listen, CALLERS);
    let count = |ending| load.count(ending);
    until("answers", || count(Ending::Answered) >= 40);

    // All callers have a call on its way when DICT dies.
    let body = "{\"operation\":\"getEntry\",\"latency_ms\":60000}";
    let json = "Content-Type: application/json\r\n";
    assert_eq!(send(dict_address, "PUT", "/sim/faults", json, body).0, 200);
    let all = i64::try_from(CALLERS * 3).unwrap();
    // Not calls that DICT is about to answer, because it got them before the fault: for several polls
    // nobody was answered.
    let (mut answered, mut polls) = (0, 0);
    until("calls in flight", || {
        let now = count(Ending::Answered);
        polls = if now == answered { polls + 1 } else { 0 };
        answered = now;
        polls >= 10 && value_of(&states(state, None), PSP_POLICY, "in_flight") == Some(all)
    });
    dict.child.kill().unwrap();
    dict.child.wait().unwrap();
    until("lost calls", || count(Ending::Lost) >= CALLERS);
    until("refused connections", || count(Ending::NotSent) > 0);
    let _dict = start(&simulate, 1);
    // The fault is in Redis, too.
    assert_eq!(send(dict_address, "DELETE", "/sim/faults", "", "").0, 200);
    until_reconciled(state);
    // By now the bucket is empty. More tokens, which the gateway has to find out about.
    let body =
        format!("{{\"policy\":\"{PSP_POLICY}\",\"participant\":\"{PARTICIPANT}\",\"level\":200}}");
    assert_eq!(
        send(dict_address, "PUT", "/sim/buckets", json, &body).0,
        200
    );
    let answered = count(Ending::Answered);
    until("more answers", || count(Ending::Answered) >= answered + 40);
    let refused = count(Ending::Refused);
    until("an empty bucket", || count(Ending::Refused) >= refused + 40);
    let endings = load.stop();

    // DICT refused none: neither before the reconciliation nor after.
    assert_eq!(metric(state, "gateway_dict_refusals_total"), Some(0));
    // What was answered was settled as that, and what was lost as unknown; so may one reconciliation.
    let count = |ending| {
        let found = endings.iter().filter(|(_, one)| *one == ending);
        u64::try_from(found.count()).unwrap()
    };
    let settled = states(state, None)["duties"]["lookups"].as_u64();
    assert_eq!(settled, Some(count(Ending::Answered)));
    let unknown = metric(state, "gateway_dict_unknown_outcomes_total").unwrap();
    let lost = count(Ending::Lost);
    assert!((lost..=lost + 1).contains(&unknown), "{unknown}");
    // Each has a payer of its own, whose bucket of 100 shows what its call has cost: twenty if it was
    // answered or lost. Fewer than twenty are refilled in ten minutes.
    for (number, ending) in endings {
        let payer = payer(number);
        let mirrored = value_of(&states(state, Some(&payer)), USER_POLICY, "level").unwrap();
        let of_dict = level_in_dict(dict_address, USER_POLICY, Some(&payer));
        let once = 80..100;
        let is_right = match ending {
            Ending::Answered => once.contains(&mirrored) && once.contains(&of_dict),
            // DICT may have counted it, or only its admission, or nothing.
            Ending::Lost => once.contains(&mirrored) && (80..=100).contains(&of_dict),
            Ending::Refused | Ending::NotSent => mirrored == 100 && of_dict == 100,
        };
        assert!(is_right, "{number}, {ending:?}: {mirrored} of {of_dict}");
    }
    // The participant's bucket has what DICT's has, once no call is in flight.
    until_reconciled(state);
    let of_dict = || level_in_dict(dict_address, PSP_POLICY, None);
    let mirrored = || value_of(&states(state, None), PSP_POLICY, "level").unwrap();
    // Both refill all the time, so the later of two readings may have more.
    let (earlier, own, later) = (of_dict(), mirrored(), of_dict());
    assert!(
        (earlier - 1..=later).contains(&own),
        "{own}, DICT {earlier} to {later}"
    );
    gateway.stop();
}

/// The level of a bucket of the participant, or of a payer, in the simulator.
fn level_in_dict(dict: SocketAddr, policy: &str, payer: Option<&str>) -> i64 {
    let payer = payer.map_or(String::new(), |payer| format!("&payer={payer}"));
    let path = format!("/sim/buckets?participant={PARTICIPANT}&policy={policy}{payer}");
    let (_, shown) = ask(dict, &path, "");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    shown["buckets"][0]["level"].as_i64().unwrap()
}

/// Callers that look up keys, each one after another, until they are stopped.
struct Load {
    is_over: Arc<AtomicBool>,
    endings: Arc<Mutex<Vec<(usize, Ending)>>>,
    callers: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start(gateway: SocketAddr, callers: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let next = Arc::new(AtomicUsize::new(0));
        let endings = Arc::<Mutex<Vec<_>>>::default();
        let callers = (0..callers).map(|_| {
            let (is_over, next, endings) = (is_over.clone(), next.clone(), endings.clone());
            std::thread::spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    // Panics without an answer.
                    let (status, body) = look_up(gateway, number);
                    let ending = Ending::of(status, &body);
                    endings.lock().unwrap().push((number, ending));
                    if matches!(ending, Ending::NotSent | Ending::Refused) {
                        // As a caller should; and fewer payers to look at afterwards.
                        std::thread::sleep(Duration::from_millis(50));
                    }
                }
            })
        });
        Self {
            callers: callers.collect(),
            is_over,
            endings,
        }
    }

    fn count(&self, ending: Ending) -> usize {
        let endings = self.endings.lock().unwrap();
        endings.iter().filter(|(_, one)| *one == ending).count()
    }

    /// Waits for all answers; returns what became of each request.
    fn stop(self) -> Vec<(usize, Ending)> {
        self.is_over.store(true, Ordering::SeqCst);
        for caller in self.callers {
            caller.join().unwrap();
        }
        std::mem::take(&mut self.endings.lock().unwrap())
    }
}

/// What became of a request, as its caller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// DICT answered that there is no such key.
    Answered,
    /// The gateway refused it.
    Refused,
    /// The connection to DICT was lost after it was sent.
    Lost,
    /// It was not sent.
    NotSent,
}

impl Ending {
    fn of(status: u16, body: &str) -> Self {
        match status {
            404 => Self::Answered,
            429 if body.contains("the gateway did not forward") => Self::Refused,
            502 if body.contains("was lost") => Self::Lost,
            502 if body.contains("cannot be reached") => Self::NotSent,
            _ => panic!("{status}: {body}"),
        }
    }
}

/// The monitor's gateway source, against a real gateway in front of a simulated DICT.
#[test]
fn the_monitor_reads_the_gateway() {
    use balde_monitor::source::{GatewayClient, Source};

    let dict = start(
        &["simulate", "--listen", "127.0.0.1:0", "--category", "F"],
        1,
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let (listen, state) = (free_address(), free_address());
    let more = format!(
        "[state]\naddress = \"{state}\"\ntoken_env = \"TOKEN\"\n\
         [dict]\nupstream = \"dict\"\nparticipants = [\"{PARTICIPANT}\"]\n"
    );
    write_config(&file, listen, dict.addresses[0], &more);
    let gateway = start(&["gateway", "-c", &file.display().to_string()], 3);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let fetch = |token: &str| {
        let url = format!("http://{state}/balde/states");
        let client = GatewayClient::new(&url, Some(token.to_owned()), None, DEADLINE).unwrap();
        let source = Source::Gateway(client);
        runtime.block_on(async { source.fetch(PARTICIPANT, || 42).await })
    };
    let is_reconciled = || {
        let poll = fetch("secret").unwrap();
        let sample = &poll.samples()[0];
        assert_eq!(poll.samples().len(), 29);
        sample.category() == Some("F")
    };
    until("DICT states the category", is_reconciled);
    let poll = fetch("secret").unwrap();
    let of = |policy: &str| {
        let mut samples = poll.samples().iter();
        let found = samples.find(|sample| sample.bucket().policy() == policy);
        found.unwrap().clone()
    };
    let lookups = of("ENTRIES_READ_PARTICIPANT_ANTISCAN");
    assert_eq!((lookups.level(), lookups.limit().capacity()), (500, 500));
    assert_eq!(lookups.limit().period_us(), 60_000_000);
    assert!(lookups.answered_us().is_some());
    // The reconciliation came out of the budget that a monitor would use.
    assert!(of("POLICIES_LIST").level() < 20);
    assert_eq!(fetch("wrong").unwrap_err().label(), "status");
    gateway.stop();
}
