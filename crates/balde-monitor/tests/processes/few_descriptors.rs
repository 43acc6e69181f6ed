//! A monitor that may open 256 files, and clients of its pages that want all of them: polling and
//! delivery go on.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::fake_dict::{Answer, FakeDict};
use crate::receiver::Receiver;
use crate::worker::{self, FastTime};

const SPEED: u32 = 20;
const FILES_MAX: &str = "256";
const HALF_OPEN: usize = 360;
const PATIENCE: Duration = Duration::from_secs(120);

fn buckets(level: i64) -> Answer {
    Answer::Buckets(vec![("CLAIMS_LIST_WITHOUT_ROLE", level, 50, 10)])
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}: timed out");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn half_open_connections_leave_file_descriptors_for_polling_and_delivery() {
    let dict = FakeDict::start(buckets(50)).await;
    let receiver = Receiver::start(1, 0).await;
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "[history]\naddress = \"monitor.db\"\n[alerts]\npredict_within = '0 s'\nresolve_after = '1 s'\n\
         [[participant]]\nispb = \"12345678\"\ndict = \"{}\"\n\
         [[sink]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"{}\"\nsecret_env = \"S\"\n",
        dict.url(),
        receiver.url("hook"),
    );
    let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address: SocketAddr = free.local_addr().unwrap();
    drop(free);
    let time = FastTime::begin(SPEED);
    let inner = worker::command(&config, folder.path(), "log", time);
    // The shell sets the limit and becomes the monitor.
    let mut limited = Command::new("sh");
    limited
        .args([
            "-c",
            &format!("ulimit -n {FILES_MAX} && exec \"$0\" \"$@\""),
        ])
        .arg(inner.get_program())
        .args(inner.get_args())
        .env(worker::LISTEN, address.to_string())
        .process_group(0);
    for (name, value) in inner.get_envs() {
        limited.env(name, value.unwrap());
    }
    let log = std::fs::File::create(folder.path().join("log")).unwrap();
    let mut child = limited.stdout(log).spawn().unwrap();
    until("two polls", || dict.requests() >= 2).await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    assert!(files.unwrap().contains(FILES_MAX), "{files:?}");

    let mut half_open = Vec::new();
    for _ in 0..HALF_OPEN {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let half = b"GET / HTTP/1.1\r\nHost: loc";
        stream.write_all(half).await.unwrap();
        half_open.push(stream);
    }
    // What it polls and delivers from now on needs new connections, because the sink's is new.
    let before = dict.requests();
    dict.answer(buckets(0));
    until("delivery goes on", || {
        let keys = receiver.keys("hook");
        keys.iter().any(|key| key.ends_with("raised-EXHAUSTED"))
    })
    .await;
    until("polling goes on", || dict.requests() >= before + 3).await;
    let open = std::fs::read_dir(format!("/proc/{}/fd", child.id()));
    println!("{} of {FILES_MAX} files are open", open.unwrap().count());
    dict.answer(buckets(50));
    until("and so does the rest", || {
        let keys = receiver.keys("hook");
        keys.iter().any(|key| key.ends_with("resolved"))
    })
    .await;
    drop(half_open);
    child.kill().unwrap();
    child.wait().unwrap();
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(!log.contains("Too many open files"), "{log}");
}
