//! A whole monitor that runs sixty times as fast as real time, and gateways whose answers a test sets.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Query, State};
use axum::routing::get;
use balde::ManualClock;
use balde_monitor::{Config, Monitor, TimeSource};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const PARTICIPANT: &str = "12345678";
/// The second participant, whose gateway sends hostile texts.
pub(crate) const HOSTILE: &str = "87654321";
/// The third, whose gateway sends a level that is no number.
pub(crate) const BROKEN: &str = "11111111";

/// Runs a script if any page takes it for HTML. Policies have no slash in their names.
pub(crate) const PAYLOAD: &str = "<img src=x onerror=\"window.hacked=1\">";

const SPEED: u32 = 60;
/// 16 November 2026, 12:00.
pub(crate) const NOW_US: u64 = 1_794_830_400_000_000;

/// Policies as DICT has them: name, capacity, refill per minute.
const POLICIES: [(&str, u64, u64); 8] = [
    ("CLAIMS_READ", 18_000, 600),
    ("CLAIMS_WRITE", 36_000, 1_200),
    ("ENTRIES_READ_PARTICIPANT_ANTISCAN", 500, 250),
    ("ENTRIES_UPDATE", 600, 600),
    ("ENTRIES_WRITE", 36_000, 1_200),
    ("INFRACTION_REPORTS_LIST_WITHOUT_ROLE", 50, 10),
    ("KEYS_CHECK", 70, 70),
    ("POLICIES_LIST", 20, 6),
];

type Answers = Arc<Mutex<BTreeMap<String, Value>>>;

pub(crate) struct Live {
    answers: Answers,
    pub(crate) address: SocketAddr,
    clock: ManualClock,
    ticking: JoinHandle<()>,
    running: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) folder: TempDir,
}

impl Live {
    pub(crate) async fn start() -> Self {
        Self::with("", "").await
    }

    /// With more lines in `[http]`, and a note on the page.
    pub(crate) async fn with(http: &str, note: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::in_folder(folder, http, note).await
    }

    pub(crate) async fn in_folder(folder: TempDir, http: &str, note: &str) -> Self {
        let answers = Answers::default();
        let gateway = gateway(Arc::clone(&answers)).await;
        let clock = ManualClock::at_us(NOW_US);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = config(gateway, http, folder.path());
        let time = TimeSource::manual(&clock, SPEED);
        let mut live = Self {
            answers,
            address,
            clock: clock.clone(),
            ticking: tokio::spawn(advance(clock)),
            running: tokio::spawn(async {}),
            stop: None,
            folder,
        };
        live.set_levels(&[]);
        live.set_hostile();
        let monitor = Monitor::build(&config, time).await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let note = note.to_owned();
        live.stop = Some(stop);
        live.running = tokio::spawn(async move {
            let until = async {
                let _stopped_or_dropped = stopped.await;
            };
            monitor.run(listener, &note, until).await.unwrap();
        });
        live
    }

    pub(crate) fn url(&self, page: &str) -> String {
        format!("http://{}/{page}", self.address)
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    /// What the first participant's gateway says from now on. Buckets that are not named are full.
    pub(crate) fn set_levels(&self, levels: &[(&str, i64)]) {
        let policy = |(name, capacity, refill): &(&str, u64, u64)| {
            let level = levels.iter().find(|(other, _)| other == name);
            let full = i64::try_from(*capacity).unwrap();
            let level = level.map_or(full, |(_, level)| *level);
            json!({
                "policy": name, "level": level, "capacity": capacity, "refill_tokens": refill,
                "period_us": 60_000_000, "refusals": if level <= 0 { 17 } else { 0 },
                "refusals_minutes": 5, "is_shadow": false,
            })
        };
        let policies: Vec<Value> = POLICIES.iter().map(policy).collect();
        // The payers' policies have no bucket in the list.
        let mut refusals = vec![json!({"policy": "ENTRIES_READ_USER_ANTISCAN", "refusals": 75})];
        refusals.extend(policies.iter().filter(|row| row["refusals"] != 0).cloned());
        let answer = json!({"category": "F", "policies": policies, "waiting": 3,
            "refusals_minutes": 5, "refusals": refusals,
            "duties": {
            "hours": 24, "lookups": 9_043, "not_found": 111, "refused": 340, "orders": 8_472,
            "worst_payer_lookups": 20,
            "not_found_permille": 12, "lookups_per_order_permille": 1_067,
            "worst_payers": [{"payer_hash": "8336797217346ed47b470e3e67b2d7fe", "lookups": 111,
                "not_found": 111, "not_found_permille": 1_000, "refused": 295, "orders": 0}],
        }});
        self.set(PARTICIPANT, answer);
    }

    fn set_hostile(&self) {
        let bucket = json!({
            "policy": PAYLOAD, "level": -5, "capacity": 20, "refill_tokens": 1,
            "period_us": 60_000_000, "refusals": 4, "refusals_minutes": 5,
        });
        let duties = json!({
            "hours": 24, "lookups": 30, "not_found": 30, "orders": 0, "not_found_permille": 1_000,
            "lookups_per_order_permille": null,
            "worst_payers": [{"payer_hash": PAYLOAD, "lookups": 30, "not_found": 30,
                "not_found_permille": 1_000, "orders": 0}],
        });
        self.set(
            HOSTILE,
            json!({"category": "H", "policies": [bucket], "duties": duties}),
        );
        let bucket = json!({
            "policy": "P", "level": PAYLOAD, "capacity": 20, "refill_tokens": 1,
            "period_us": 60_000_000,
        });
        self.set(BROKEN, json!({"policies": [bucket]}));
    }

    pub(crate) fn set(&self, participant: &str, answer: Value) {
        let mut answers = self.answers.lock().unwrap();
        answers.insert(participant.to_owned(), answer);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.ticking.abort();
        self.running.abort();
    }
}

async fn advance(clock: ManualClock) {
    let mut last = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let now = Instant::now();
        clock.advance((now - last) * SPEED);
        last = now;
    }
}

async fn gateway(answers: Answers) -> SocketAddr {
    let respond = |State(answers): State<Answers>,
                   Query(query): Query<BTreeMap<String, String>>| async move {
        let answers = answers.lock().unwrap();
        let answer = query.get("participant").and_then(|name| answers.get(name));
        answer.map(ToString::to_string).unwrap_or_default()
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new()
        .route("/states", get(respond))
        .with_state(answers);
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

fn config(gateway: SocketAddr, http: &str, folder: &Path) -> Config {
    let participant = |ispb: &str| {
        format!("[[participant]]\nispb = \"{ispb}\"\ngateway = \"http://{gateway}/states\"\n")
    };
    let participants: String = [PARTICIPANT, HOSTILE, BROKEN].map(participant).concat();
    // Nobody listens on port 1, so that something waits for a sink.
    let text = format!(
        "[http]\n{http}\n[history]\naddress = \"monitor.db\"\n{participants}\
         [[sink]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"http://127.0.0.1:1/alerts\"\nsecret_env = \"SECRET\"\n"
    );
    let secret = |_: &str| Some("a-token-for-tests".to_owned());
    Config::parse(&text, "browser test", folder, secret).unwrap()
}
