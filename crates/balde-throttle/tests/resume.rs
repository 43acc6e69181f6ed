//! An import whose process is killed in the middle goes on where it was: no record is lost, and by its
//! idempotency keys the server stores none twice.
//!
//! The importing process is this test binary with an environment variable set.

use std::collections::HashMap;
use std::env;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Path as UrlPath, State};
use axum::http::StatusCode;
use axum::routing::put;
use balde_throttle::{Checkpoint, Outcome, Progress, Throttler};
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;

const RECORDS: u64 = 6_000;
const RATE: u64 = 2_000;
const WORKERS: u64 = 32;
const ADDRESS: &str = "BALDE_TEST_IMPORT_ADDRESS";
const CHECKPOINT: &str = "BALDE_TEST_IMPORT_CHECKPOINT";

/// How often each idempotency key arrived, and how many records the server stored.
#[derive(Default)]
struct Store {
    arrivals: Mutex<HashMap<u64, u32>>,
}

async fn store(State(store): State<Arc<Store>>, UrlPath(record): UrlPath<u64>) -> StatusCode {
    let mut arrivals = store.arrivals.lock();
    let count = arrivals.entry(record).or_default();
    *count += 1;
    // A tenth of the records is refused at first, so that retries are part of the story.
    match (*count, record % 10) {
        (1, 0) => StatusCode::SERVICE_UNAVAILABLE,
        (1, _) | (2, 0) => StatusCode::CREATED,
        _ => StatusCode::OK,
    }
}

/// Not a test: what the importing process runs.
#[test]
fn importing_process() {
    let Ok(address) = env::var(ADDRESS) else {
        return;
    };
    let path = env::var(CHECKPOINT).expect("the path of the checkpoint");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(import(address, path));
}

async fn import(address: String, path: String) {
    let checkpoint = Arc::new(Checkpoint::open(&path, "resume test").expect("a checkpoint"));
    let progress = Arc::new(Progress::new(RECORDS, checkpoint.completed()));
    let start = Instant::now();
    let is_over = Arc::new(AtomicBool::new(false));
    let saving = {
        let (checkpoint, progress) = (Arc::clone(&checkpoint), Arc::clone(&progress));
        let is_over = Arc::clone(&is_over);
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(50));
                checkpoint.save().expect("the checkpoint is saved");
                println!("{}", progress.report(start.elapsed()));
            }
        })
    };
    let throttler = Throttler::new(RATE, RATE).expect("a throttler");
    let retry = throttler.retry_policy();
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let pending: Arc<Vec<u64>> = Arc::new(checkpoint.pending(0..RECORDS).collect());
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (throttler, retry) = (throttler.clone(), retry.clone());
            let (client, address) = (client.clone(), address.clone());
            let (pending, checkpoint) = (Arc::clone(&pending), Arc::clone(&checkpoint));
            let progress = Arc::clone(&progress);
            tokio::spawn(async move {
                let own = pending.iter().skip(usize::try_from(worker).unwrap());
                for record in own.step_by(usize::try_from(WORKERS).unwrap()) {
                    // The record's number is its idempotency key.
                    let send = |_| {
                        let url = format!("http://{address}/records/{record}");
                        let request = http::Request::put(url).body(Full::default()).unwrap();
                        let sending = client.request(request);
                        async {
                            match sending.await {
                                Ok(response) if response.status().is_success() => Ok(()),
                                _ => Err(()),
                            }
                        }
                    };
                    let sent = throttler.send_with_retry("store", 1, &retry, send, |result| {
                        if result.is_err() {
                            progress.add_error();
                            return Outcome::Error.into();
                        }
                        Outcome::Success.into()
                    });
                    sent.await.expect("every record is stored in the end");
                    checkpoint.complete(*record);
                    progress.add_done(1);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.expect("no worker panics");
    }
    is_over.store(true, Ordering::Release);
    saving.join().expect("the last save");
    checkpoint.save().expect("the last save");
}

fn start(address: &str, checkpoint: &Path) -> Child {
    Command::new(env::current_exe().expect("this binary"))
        .args(["--exact", "importing_process", "--nocapture"])
        .env(ADDRESS, address)
        .env(CHECKPOINT, checkpoint)
        .stdout(Stdio::null())
        .spawn()
        .expect("the importing process")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_import_goes_on_without_a_record_lost_or_stored_twice() {
    let arrived = Arc::new(Store::default());
    let router = Router::new()
        .route("/records/{record}", put(store))
        .with_state(Arc::clone(&arrived));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let saved = |path: &Path| {
        let checkpoint = Checkpoint::open(path, "resume test").expect("a complete file");
        checkpoint.completed()
    };

    // Killed with SIGKILL after about a quarter, and again after about a half.
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut at_kill = Vec::new();
    for part in [RECORDS / 4, RECORDS / 2] {
        let mut process = start(&address, &path);
        while saved(&path) < part {
            assert!(Instant::now() < deadline, "the import makes no progress");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        process.kill().unwrap();
        process.wait().unwrap();
        at_kill.push((saved(&path), arrived.arrivals.lock().len() as u64));
    }
    let arrivals_before = arrived.arrivals.lock().clone();
    let done_before = at_kill[1].0;
    let mut process = start(&address, &path);
    let status = tokio::task::spawn_blocking(move || process.wait().unwrap());
    assert!(status.await.unwrap().success());
    println!("saved and arrived at the kills: {at_kill:?}");

    assert_eq!(saved(&path), RECORDS);
    let arrivals = arrived.arrivals.lock();
    assert_eq!(arrivals.len() as u64, RECORDS, "no record is lost");
    let again = arrivals.iter().filter(|(record, count)| {
        let usual = if *record % 10 == 0 { 2 } else { 1 };
        **count > usual
    });
    // Only what was under way or not yet saved at the two kills arrives again, and its key says so.
    let again = again.count() as u64;
    let unsaved: u64 = at_kill.iter().map(|(saved, arrived)| arrived - saved).sum();
    assert!(again <= unsaved, "{again} of {unsaved}");
    let resent = arrivals.iter().filter(|(record, count)| {
        arrivals_before
            .get(record)
            .is_some_and(|before| *count > before)
    });
    let resent = resent.count() as u64;
    assert!(
        resent <= arrivals_before.len() as u64 - done_before,
        "{resent} records that were done are not sent again"
    );
}
