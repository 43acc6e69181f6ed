//! What live readers of the dashboard cost: 20 participants with 30 policies each, in real time.
//!
//! `cargo bench -p balde-monitor --bench dashboard` starts a monitor in a process of its own, with
//! gateways whose levels move with every request, reads the live stream with 0, 1 and 10 clients, and
//! states the share of one core that the monitor takes. Every participant has a low bucket, so that it
//! is polled every 20 seconds.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Query, State};
use axum::routing::get;
use balde_bench::{self as report, Table};
use balde_monitor::{Config, Monitor, TimeSource};
use serde_json::{Value, json};
use tokio::net::TcpListener;

const PARTICIPANTS: u32 = 20;
const POLICIES: u32 = 30;
const WARM_UP: Duration = Duration::from_secs(90);
const MEASURED: Duration = Duration::from_secs(60);
const SHARE_MAX_PCT: f64 = 5.0;
/// Clock ticks per second in /proc, on every Linux that is in use.
const TICKS_PER_SECOND: f64 = 100.0;

const CHILD: &str = "BALDE_BENCH_MONITOR";

fn main() {
    let ring = rustls::crypto::ring::default_provider();
    ring.install_default().expect("the first");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    match std::env::var(CHILD) {
        Ok(addresses) => runtime.block_on(monitor(&addresses)),
        Err(_) => runtime.block_on(measure()),
    }
}

/// The measured process. `addresses` are the gateway's and the page's.
async fn monitor(addresses: &str) {
    let (gateway, page) = addresses.split_once(' ').expect("two addresses");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let participant = |number: u32| {
        format!(
            "[[participant]]\nispb = \"{:08}\"\ngateway = \"http://{gateway}/states\"\n",
            10_000_000 + number
        )
    };
    let participants: String = (0..PARTICIPANTS).map(participant).collect();
    let text = format!("[history]\naddress = \"monitor.db\"\n{participants}");
    let config = Config::parse(&text, "benchmark", folder.path(), |_| None).expect("a file");
    let monitor = Monitor::build(&config, TimeSource::system()).await;
    let listener = TcpListener::bind(page).await.expect("a free port");
    let run = monitor
        .expect("a monitor")
        .run(listener, "", std::future::pending());
    run.await.expect("it runs");
}

async fn measure() {
    let gateway = gateway().await;
    let page = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a port");
    let address = page.local_addr().expect("an address");
    drop(page);
    let child = Command::new(std::env::current_exe().expect("this program"))
        .env(CHILD, format!("{gateway} {address}"))
        .stdin(Stdio::null())
        .spawn();
    let child = Stopped(child.expect("the monitor starts"));
    tokio::time::sleep(WARM_UP).await;
    let mut table = Table::new(&[
        "readers",
        "% of one core",
        "messages per reader and second",
        "kB per reader and second",
    ]);
    let mut shares = Vec::new();
    for readers in [0_u32, 1, 10] {
        let counters = Arc::new(<[AtomicU64; 2]>::default());
        let tasks: Vec<_> = (0..readers)
            .map(|_| tokio::spawn(read(address, Arc::clone(&counters))))
            .collect();
        // The first message, which has everything, is not what a live page costs.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let before = counters
            .each_ref()
            .map(|counter| counter.load(Ordering::Relaxed));
        let (cpu, began) = (cpu_seconds(child.0.id()), Instant::now());
        tokio::time::sleep(MEASURED).await;
        let (cpu, wall) = (
            cpu_seconds(child.0.id()) - cpu,
            began.elapsed().as_secs_f64(),
        );
        let share = cpu / wall * 100.0;
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = |index: usize| {
            let counted = counters[index].load(Ordering::Relaxed) - before[index];
            counted as f64 / wall / f64::from(readers.max(1))
        };
        table.row(&[
            readers.to_string(),
            format!("{share:.1}"),
            format!("{:.1}", rate(0)),
            format!("{:.1}", rate(1) / 1_000.0),
        ]);
        eprintln!("{}", table.last_line());
        shares.push(share);
        for task in tasks {
            task.abort();
        }
    }
    let text = format!(
        "CPU time of the monitor's process, which polls {PARTICIPANTS} participants with {POLICIES} \
         policies each, every 20 seconds, over {} s in real time. It must stay below \
         {SHARE_MAX_PCT} % of one core. The row without readers is the polling itself.\n\n{table}\n",
        MEASURED.as_secs()
    );
    println!("{text}");
    report::write(
        "dashboard",
        "cargo bench -p balde-monitor --bench dashboard",
        &text,
    );
    assert!(
        shares.iter().all(|share| *share < SHARE_MAX_PCT),
        "{shares:?}"
    );
}

/// Follows the stream, and counts its messages and bytes.
async fn read(address: SocketAddr, counters: Arc<[AtomicU64; 2]>) {
    let http = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client");
    loop {
        let response = http
            .get(format!("http://{address}/api/v1/stream"))
            .send()
            .await;
        let Ok(mut response) = response else { continue };
        while let Ok(Some(chunk)) = response.chunk().await {
            let text = String::from_utf8_lossy(&chunk);
            let events = text.matches("event:").count();
            counters[0].fetch_add(u64::try_from(events).unwrap_or(0), Ordering::Relaxed);
            counters[1].fetch_add(u64::try_from(chunk.len()).unwrap_or(0), Ordering::Relaxed);
        }
    }
}

/// A gateway whose levels move with every request. The first bucket of every participant is low.
async fn gateway() -> SocketAddr {
    let respond = |State(requests): State<Arc<AtomicU64>>,
                   Query(_): Query<BTreeMap<String, String>>| async move {
        let number = requests.fetch_add(1, Ordering::Relaxed);
        let policy = |index: u32| {
            let moved = (number * 37 + u64::from(index) * 101) % 500;
            let level = if index == 0 {
                100 + moved / 10
            } else {
                900 + moved / 10
            };
            json!({"policy": format!("POLICY_{index:02}"), "level": level, "capacity": 1_000,
                "refill_tokens": 50, "period_us": 60_000_000, "refusals": moved, "refusals_minutes": 5})
        };
        let policies: Vec<Value> = (0..POLICIES).map(policy).collect();
        json!({"category": "F", "policies": policies}).to_string()
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let app = Router::new()
        .route("/states", get(respond))
        .with_state(Arc::default());
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// User and system time of a process so far.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the monitor runs");
    let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: f64 = ticks.filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / TICKS_PER_SECOND
}

struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _either_way = self.0.kill();
        let _either_way = self.0.wait();
    }
}
