//! The database fails in every way that a database does, with the real fault: the disk is full, the
//! file system becomes read-only, PostgreSQL is stopped or hangs, somebody holds a lock. The monitor
//! sends an alert by every sink, judges and alerts from memory, says so in `/readyz`, metrics and log,
//! recovers without a restart, loses no answer, and sends nothing twice.

use std::collections::BTreeSet;
use std::env;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use balde::ManualClock;
use balde_monitor::history::{EventFilter, History};
use balde_monitor::sample::BucketId;
use balde_monitor::{Config, Monitor, StorageTiming, TimeSource};
use serde_json::Value;
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::fake_dict::{Answer, FakeDict};
use crate::postgres::Postgres;
use crate::receiver::Receiver;
use crate::worker::{FastTime, SECRET};

const SPEED: u32 = 20;
/// Only a fault reaches it.
const PATIENCE: Duration = Duration::from_secs(90);
const PARTICIPANT: &str = "12345678";
const LEVEL: &str = "CLAIMS_LIST_WITHOUT_ROLE";
/// A bucket whose level is different in every answer, so that a lost answer is noticed.
const SEQUENCE: &str = "ENTRIES_WRITE";
const SEQUENCE_FULL: i64 = 1_000_000;
const SINKS: [&str; 3] = ["hook", "incidents", "pager"];

/// Quick, because time passes at the speed of the test.
const TIMING: StorageTiming = StorageTiming {
    probe_every: Duration::from_millis(200),
    probe_timeout: Duration::from_secs(2),
    alert_after: Duration::from_secs(15),
};

/// A running monitor and everything around it.
struct Running {
    address: SocketAddr,
    dict: FakeDict,
    receiver: Receiver,
    level: Arc<Mutex<i64>>,
    /// The requests that were answered with an empty bucket, each with a debt of its own.
    emptied: Arc<Mutex<BTreeSet<u64>>>,
    log: Log,
    http: reqwest::Client,
    stop: oneshot::Sender<()>,
    run: tokio::task::JoinHandle<()>,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Running {
    async fn start(history: &str) -> Self {
        let dict = FakeDict::start(Answer::Close).await;
        let level = Arc::new(Mutex::new(50));
        let current = Arc::clone(&level);
        let emptied = Arc::new(Mutex::new(BTreeSet::new()));
        let answered_empty = Arc::clone(&emptied);
        dict.on_request(move |number| {
            let mut level = *current.lock().unwrap_or_else(PoisonError::into_inner);
            if level == 0 {
                level = -i64::try_from(number).unwrap();
                let emptied = answered_empty.lock();
                emptied
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(number);
            }
            let sequence = SEQUENCE_FULL - i64::try_from(number).unwrap();
            let full = SEQUENCE_FULL.unsigned_abs();
            Some(Answer::Buckets(vec![
                (LEVEL, level, 50, 10),
                (SEQUENCE, sequence, full, 60),
            ]))
        });
        let receiver = Receiver::start(1, 0).await;
        let url = |sink: &str| receiver.url(sink);
        let config = format!(
            "[history]\naddress = \"{history}\"\n[alerts]\npredict_within = '0 s'\nresolve_after = '1 s'\n\
             [[participant]]\nispb = \"{PARTICIPANT}\"\ndict = \"{}\"\n\
             [[sink]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"{}\"\nsecret_env = \"S\"\n\
             [[sink]]\nname = \"incidents\"\nkind = \"incident\"\nurl = \"{}\"\nsecret_env = \"S\"\n\
             [[sink]]\nname = \"pager\"\nkind = \"pagerduty\"\nurl = \"{}\"\nrouting_key_env = \"S\"\n",
            dict.url(),
            url("hook"),
            url("incidents"),
            url("pager"),
        );
        let time = FastTime::begin(SPEED);
        let clock = ManualClock::at_us(time.now_us());
        let moved = clock.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                moved.set_us(time.now_us());
            }
        });
        let log = Log::default();
        let secret = |_variable: &str| Some(SECRET.to_owned());
        let config = Config::parse(&config, "faults", Path::new(""), secret).unwrap();
        let time = TimeSource::manual(&clock, SPEED);
        let monitor = Monitor::build(&config, time).await.unwrap();
        let monitor = monitor.with_storage_timing(TIMING);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let run = tokio::spawn(async move {
            let stopped = async { stopped.await.unwrap_or_default() };
            monitor.run(listener, "", stopped).await.unwrap();
        });
        Self {
            address,
            dict,
            receiver,
            level,
            emptied,
            log,
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            stop,
            run,
        }
    }

    /// Writes the log of this thread, on which all tasks of a test run, to `log`.
    fn listen(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.log.clone();
        let layer = balde::telemetry::json_logs_to(move || log.clone());
        tracing::subscriber::set_default(tracing_subscriber::registry().with(layer))
    }

    fn set_level(&self, level: i64) {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = level;
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let url = format!("http://{}{path}", self.address);
        let answer = self.http.get(url).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn until(&self, what: &str, mut is_so: impl AsyncFnMut(&Self) -> bool) {
        let start = Instant::now();
        while !is_so(self).await {
            assert!(
                start.elapsed() < PATIENCE,
                "{what}: timed out\n{}",
                self.log.text()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until an event of this kind has arrived at every sink.
    async fn until_every_sink_has(&self, kind: &str) {
        self.until(kind, async |running| {
            let has = |sink: &str| running.kinds(sink).iter().any(|one| one == kind);
            SINKS.iter().all(|sink| has(sink))
        })
        .await;
    }

    fn kinds(&self, sink: &str) -> Vec<String> {
        let keys = self.receiver.keys(sink).into_iter();
        keys.map(|key| key.rsplit('/').next().unwrap().to_owned())
            .collect()
    }

    async fn until_ready(&self) {
        self.until("ready", async |running| {
            running.get("/readyz").await.0 == 200
        })
        .await;
    }

    async fn end(self) -> (FakeDict, Receiver) {
        self.stop.send(()).unwrap();
        self.run.await.unwrap();
        (self.dict, self.receiver)
    }
}

/// What the story expects of the database afterwards.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Afterwards {
    /// All rows from before the fault are there.
    Kept,
    /// The database was replaced.
    Replaced,
}

/// The story of every fault: `break_it` and `mend_it` do what the name says. `cause` is what the log
/// and `/readyz` name.
#[expect(clippy::too_many_lines, reason = "one story from beginning to end")]
async fn story(
    history: &str,
    cause: &str,
    afterwards: Afterwards,
    break_it: impl AsyncFnOnce(),
    mend_it: impl AsyncFnOnce(),
) {
    let running = Running::start(history).await;
    let _listening = running.listen();
    running.until_ready().await;
    running
        .until("two polls", async |running| running.dict.requests() >= 2)
        .await;

    let broken = Instant::now();
    break_it().await;
    running
        .until("not ready", async |running| {
            running.get("/readyz").await.0 == 503
        })
        .await;
    let first = running.dict.requests() + 1;
    running.set_level(0);
    running.until_every_sink_has("storage-failed").await;
    println!("alert out after {:?}", broken.elapsed());
    assert!(broken.elapsed() < Duration::from_secs(60));
    // The bucket was emptied after the fault: judged from memory, and sent.
    running.until_every_sink_has("raised-EXHAUSTED").await;
    let (status, why) = running.get("/readyz").await;
    assert_eq!(status, 503, "{why}");
    assert!(why.contains(cause), "{why}");
    assert_eq!(running.get("/healthz").await.0, 200, "it lives");
    let (_, metrics) = running.get("/metrics").await;
    assert!(
        metrics.contains("balde_monitor_storage_up 0\n"),
        "{metrics}"
    );
    assert!(
        !metrics.contains("balde_monitor_unstored_polls 0\n"),
        "{metrics}"
    );
    let exhausted =
        format!("dict_rate_limit_severity{{participant=\"{PARTICIPANT}\",policy=\"{LEVEL}\"}} 3\n");
    assert!(metrics.contains(&exhausted), "{metrics}");
    let (_, states) = running.get("/api/v1/states").await;
    let states: Value = serde_json::from_str(&states).unwrap();
    let shown = states["storage_failure"]["cause"].as_str().unwrap();
    assert!(shown.contains(cause), "{shown}");
    let log = running.log.text();
    let line = log.lines().find(|line| line.contains("storage_failed"));
    assert!(line.is_some_and(|line| line.contains(cause)), "{log}");
    // Some more polls, which have to be kept.
    let seen = running.dict.requests();
    running
        .until("polls go on", async |running| {
            running.dict.requests() >= seen + 2
        })
        .await;

    let (last, lists) = (running.dict.requests(), running.dict.lists());
    let reads = running.dict.reads();
    let emptied = running.emptied.lock().map(|emptied| emptied.clone());
    let emptied = emptied.unwrap_or_default();
    mend_it().await;
    running.until_ready().await;
    running.until_every_sink_has("storage-recovered").await;
    running.set_level(50);
    running.until_every_sink_has("resolved").await;
    let (_, metrics) = running.get("/metrics").await;
    assert!(
        metrics.contains("balde_monitor_storage_up 1\n"),
        "{metrics}"
    );
    let (_, receiver) = running.end().await;

    // Nothing was sent twice, and every sink got the same.
    for sink in SINKS {
        let keys = receiver.keys(sink);
        let unique: BTreeSet<&String> = keys.iter().collect();
        assert_eq!(keys.len(), unique.len(), "{sink}: {keys:?}");
    }
    // Every answer is stored, in particular those that came during the fault, and so are the events.
    let history = History::open(history).await.unwrap();
    let levels = async |policy: &str| -> BTreeSet<i64> {
        let bucket = BucketId::new(PARTICIPANT, policy).unwrap();
        let series = history.series(&bucket, 0, u64::MAX / 4, 10_000);
        let points = series.await.unwrap().points;
        points.iter().map(|point| point.level).collect()
    };
    let of_sequence = levels(SEQUENCE).await;
    let of_level = levels(LEVEL).await;
    let from = match afterwards {
        Afterwards::Kept => 1,
        Afterwards::Replaced => first,
    };
    // A request that read one bucket is stored under that bucket alone.
    for number in lists
        .into_iter()
        .filter(|number| (from..=last).contains(number))
    {
        let number = i64::try_from(number).unwrap();
        assert!(
            of_sequence.contains(&(SEQUENCE_FULL - number)),
            "answer {number} is lost: {of_sequence:?}"
        );
    }
    let mut kept = 0;
    for (number, policy) in reads.range(first..=last) {
        let number_signed = i64::try_from(*number).unwrap();
        let is_stored = match policy.as_str() {
            SEQUENCE => of_sequence.contains(&(SEQUENCE_FULL - number_signed)),
            LEVEL if emptied.contains(number) => of_level.contains(&-number_signed),
            _ => continue,
        };
        assert!(is_stored, "read {number} of {policy} is lost: {of_level:?}");
        kept += 1;
    }
    assert!(kept > 0, "single buckets are read during the fault");
    let events = history
        .events(&EventFilter::default(), 1_000)
        .await
        .unwrap();
    let labels: Vec<String> = events.iter().map(|event| event.kind.label()).collect();
    for label in [
        "storage-failed",
        "raised-EXHAUSTED",
        "storage-recovered",
        "resolved",
    ] {
        assert!(labels.iter().any(|one| one == label), "{label}: {labels:?}");
    }
    history.close().await;
}

/// Runs `story` in a mount namespace of its own, in which file systems can be mounted without anybody
/// else seeing them: this test binary again, with only this test.
fn in_a_mount_namespace(test: &str, story: impl AsyncFnOnce(PathBuf)) {
    const INSIDE: &str = "BALDE_TEST_MOUNTS";
    if env::var_os(INSIDE).is_some() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(story(folder.path().to_owned()));
        return;
    }
    let permitted = Command::new("unshare")
        .args(["-m", "sh", "-c", "mount -t tmpfs tmpfs /mnt"])
        .output();
    if !permitted.as_ref().is_ok_and(|done| done.status.success()) {
        let what = "this machine does not permit mounting in a namespace (unshare -m, as root)";
        assert!(
            env::var("BALDE_REQUIRE_SERVICES").as_deref() != Ok("1"),
            "{what}, and BALDE_REQUIRE_SERVICES=1: {permitted:?}"
        );
        eprintln!("\n*** SKIPPED: {what}, so this test tested NOTHING ***\n");
        return;
    }
    let status = Command::new("unshare")
        .args(["-m", "--propagation", "private"])
        .arg(env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .status();
    assert!(status.unwrap().success(), "{test} failed in its namespace");
}

fn run(program: &str, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {arguments:?}: {errors}");
}

fn mount_tmpfs(folder: &Path, size: &str) {
    let options = format!("size={size}");
    let folder = folder.to_str().unwrap();
    run("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", folder]);
}

fn database_in(folder: &Path) -> String {
    folder.join("monitor.db").to_str().unwrap().to_owned()
}

#[test]
fn the_disk_is_full() {
    in_a_mount_namespace("storage_faults::the_disk_is_full", async |folder| {
        mount_tmpfs(&folder, "3m");
        let filler = folder.join("filler");
        let fill = async || {
            let mut file = std::fs::File::create(&filler).unwrap();
            let block = [0xA5; 512];
            while file.write_all(&block).is_ok() {}
        };
        let free = async || std::fs::remove_file(&filler).unwrap();
        let database = database_in(&folder);
        story(&database, "disk is full", Afterwards::Kept, fill, free).await;
    });
}

#[test]
fn the_file_system_becomes_read_only() {
    in_a_mount_namespace(
        "storage_faults::the_file_system_becomes_read_only",
        async |folder| {
            // As after an I/O error: ext4 aborts its journal and refuses writes, also to open files.
            // An orderly remount is refused while files are open.
            let image = |name: &str| folder.join(name).to_str().unwrap().to_owned();
            let (disk, repaired, mounted) = (image("disk"), image("repaired"), image("mounted"));
            std::fs::File::create(&disk)
                .unwrap()
                .set_len(16 << 20)
                .unwrap();
            std::fs::create_dir(&mounted).unwrap();
            run("mkfs.ext4", &["-q", "-F", &disk]);
            run("mount", &["-o", "loop", &disk, &mounted]);
            let abort = async || run("mount", &["-o", "remount,abort", &mounted]);
            let repair = async || {
                run("umount", &["-l", &mounted]);
                std::fs::copy(&disk, &repaired).unwrap();
                // It exits with 1 when it has repaired something.
                let _status = Command::new("e2fsck")
                    .args(["-f", "-y", &repaired])
                    .output();
                run("mount", &["-o", "loop", &repaired, &mounted]);
            };
            let database = database_in(Path::new(&mounted));
            story(&database, "", Afterwards::Kept, abort, repair).await;
        },
    );
}

#[test]
fn the_file_system_is_read_only_at_the_start() {
    in_a_mount_namespace(
        "storage_faults::the_file_system_is_read_only_at_the_start",
        async |folder| {
            mount_tmpfs(&folder, "8m");
            let mounted = folder.to_str().unwrap();
            run("mount", &["-o", "remount,ro", mounted]);
            let mend = async || run("mount", &["-o", "remount,rw", mounted]);
            is_waited_for(&database_in(&folder), mend).await;
        },
    );
}

#[tokio::test]
async fn postgres_is_stopped() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let (stop, start) = (async || server.stop(), async || server.restart());
    story(&server.database(), "", Afterwards::Kept, stop, start).await;
}

#[tokio::test]
async fn postgres_hangs() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let (hang, go_on) = (async || server.freeze(), async || server.thaw());
    story(
        &server.database(),
        "unavailable",
        Afterwards::Kept,
        hang,
        go_on,
    )
    .await;
}

/// An acknowledgement is shown, and silences are listed, also while the database hangs; what needs the
/// database says so in the same words everywhere.
#[expect(clippy::too_many_lines, reason = "one story from beginning to end")]
#[tokio::test]
async fn acknowledgements_do_not_vanish_while_postgres_hangs() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let database = server.database();
    let running = Running::start(&database).await;
    let _listening = running.listen();
    running.until_ready().await;
    running.set_level(0);
    running.until_every_sink_has("raised-EXHAUSTED").await;
    let bucket = async |running: &Running| -> Value {
        let (_, states) = running.get("/api/v1/states").await;
        let states: Value = serde_json::from_str(&states).unwrap();
        let buckets = states["participants"][0]["buckets"].as_array().cloned();
        let mut buckets = buckets.unwrap_or_default().into_iter();
        let found = buckets.find(|bucket| bucket["policy"] == LEVEL);
        found.unwrap_or_default()
    };
    let episode = bucket(&running).await["episode"].clone();
    let url = format!("http://{}/api/v1/acknowledgements", running.address);
    let body = serde_json::json!({ "episode": episode, "by": "ana" });
    let answer = running.http.post(&url).json(&body).send().await.unwrap();
    assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap());
    running
        .until("the mark is shown", async |running| {
            bucket(running).await["acknowledged"]["by"] == "ana"
        })
        .await;

    // The pages as they were read last.
    running
        .until("the incident is shown", async |running| {
            running.get("/api/v1/incidents").await.1.contains("\"ana\"")
        })
        .await;
    server.freeze();
    // Nobody has noticed anything yet: whatever is answered now is from memory.
    let history = format!("/api/v1/history?participant={PARTICIPANT}&policy={LEVEL}");
    for (path, part) in [
        ("/metrics", "dict_rate_limit_severity"),
        ("/api/v1/states", "\"ana\""),
        ("/api/v1/status", "is_leader"),
        ("/api/v1/silences", "\"ana\""),
        ("/api/v1/incidents", "\"acknowledged\""),
        ("/api/v1/alerts", "\"acknowledged\""),
        (&history, "\"points\":[{"),
    ] {
        let begun = Instant::now();
        let (status, body) = running.get(path).await;
        println!("{path} in the first moments: {:?}", begun.elapsed());
        assert_eq!(status, 200, "{path}: {body}");
        assert!(body.contains(part), "{path}: {body}");
    }
    // An acknowledgement is taken back, and another one made, while nothing can be stored.
    let undo = format!("{url}?episode={}&by=rui", episode.as_str().unwrap());
    let answer = running.http.delete(undo).send().await.unwrap();
    assert_eq!(answer.status(), 204, "{}", answer.text().await.unwrap());
    assert_eq!(bucket(&running).await["acknowledged"], Value::Null);
    let body = serde_json::json!({ "episode": episode, "by": "rui" });
    let answer = running.http.post(&url).json(&body).send().await.unwrap();
    assert_eq!(answer.status(), 201);
    let kept: Value = answer.json().await.unwrap();
    assert_eq!(kept["is_stored"], false);
    assert_eq!(bucket(&running).await["acknowledged"]["by"], "rui");
    let changes = |kind: &str| {
        let keys = running.receiver.keys("hook");
        let of_kind = keys.iter().filter(|key| key.contains(&format!("/{kind}/")));
        of_kind.count()
    };
    running
        .until("both are sent from memory", async |_| {
            changes("unacknowledged") == 1 && changes("acknowledged") == 2
        })
        .await;

    running
        .until("the fault is noticed", async |running| {
            running.get("/readyz").await.0 == 503
        })
        .await;
    running
        .until("the fault is shown", async |running| {
            let (_, states) = running.get("/api/v1/states").await;
            states.contains("\"unstored_changes\":2")
        })
        .await;
    // One sentence about what still works.
    let sentence = "acknowledgements and silences go on from memory and are stored when the \
                    database is back";
    let (_, why) = running.get("/readyz").await;
    assert!(why.contains(sentence), "{why}");
    let (status, metrics) = running.get("/metrics").await;
    assert_eq!(status, 200);
    assert!(metrics.contains("balde_monitor_storage_up 0"), "{metrics}");
    assert_eq!(bucket(&running).await["acknowledged"]["by"], "rui");
    let (_, incidents) = running.get("/api/v1/incidents").await;
    assert!(incidents.contains("\"rui\""), "{incidents}");
    running
        .until("the log says it, too", async |running| {
            let log = running.log.text();
            let mut lines = log.lines();
            lines.any(|line| line.contains("storage_failed") && line.contains(sentence))
        })
        .await;

    server.thaw();
    running.until_ready().await;
    let stored = History::open(&database).await.unwrap();
    let now_us = kept["from_us"].as_u64().unwrap();
    let silences = stored.silences(now_us).await.unwrap();
    let by: Vec<Option<&str>> = silences.iter().map(|silence| silence.by()).collect();
    assert_eq!(by, [Some("rui")]);
    let events = stored.events(&EventFilter::default(), 100).await.unwrap();
    let labels: Vec<String> = events.iter().map(|event| event.kind.label()).collect();
    let count = |label: &str| labels.iter().filter(|one| *one == label).count();
    assert_eq!((count("acknowledged"), count("unacknowledged")), (2, 1));
    let (_, receiver) = running.end().await;
    for sink in SINKS {
        let keys = receiver.keys(sink);
        let unique: BTreeSet<&String> = keys.iter().collect();
        assert_eq!(keys.len(), unique.len(), "{sink}: {keys:?}");
    }
}

#[tokio::test]
async fn postgres_is_away_at_the_start() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let database = server.database();
    server.stop();
    is_waited_for(&database, async || server.restart()).await;
}

#[tokio::test]
async fn somebody_locks_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let database = database_in(folder.path());
    let lock: Arc<Mutex<Option<sqlx::SqliteConnection>>> = Arc::default();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&database);
    let take = async || {
        let mut connection = options.connect().await.unwrap();
        let begin = sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection);
        begin.await.unwrap();
        *lock.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
    };
    let release = async || {
        let connection = lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        connection.unwrap().close().await.unwrap();
    };
    story(&database, "", Afterwards::Kept, take, release).await;
}

/// A file that was damaged is moved away while the monitor runs. It begins a new one, into which it
/// takes over its alert states and what it kept in memory.
#[tokio::test]
async fn a_damaged_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let database = database_in(folder.path());
    let file = |suffix: &str| folder.path().join(format!("monitor.db{suffix}"));
    let damage = async || {
        for suffix in ["", "-wal"] {
            let path = file(suffix);
            let length = usize::try_from(path.metadata().unwrap().len()).unwrap();
            let mut file = std::fs::File::options().write(true).open(&path).unwrap();
            file.write_all(&vec![0xA5; length]).unwrap();
        }
    };
    let replace = async || {
        for suffix in ["", "-wal", "-shm"] {
            // The last connection removes the second and third by itself.
            let _gone = std::fs::remove_file(file(suffix));
        }
    };
    story(&database, "damaged", Afterwards::Replaced, damage, replace).await;
}

/// A database that is away at the start: the monitor starts, says so, and waits.
async fn is_waited_for(database: &str, mend: impl AsyncFnOnce()) {
    let running = Running::start(database).await;
    let _listening = running.listen();
    running.until_every_sink_has("storage-failed").await;
    assert_eq!(running.get("/readyz").await.0, 503);
    assert_eq!(running.get("/healthz").await.0, 200);
    let (status, metrics) = running.get("/metrics").await;
    assert_eq!(status, 200);
    assert!(
        metrics.contains("balde_monitor_storage_up 0\n"),
        "{metrics}"
    );
    let (status, states) = running.get("/api/v1/states").await;
    assert_eq!(status, 200, "{states}");
    assert_eq!(running.dict.requests(), 0, "who leads is not known yet");
    mend().await;
    running.until_ready().await;
    running.until_every_sink_has("storage-recovered").await;
    running
        .until("polls", async |running| running.dict.requests() >= 2)
        .await;
    let (_, receiver) = running.end().await;
    for sink in SINKS {
        assert_eq!(receiver.keys(sink).len(), 2, "{sink}");
    }
}
