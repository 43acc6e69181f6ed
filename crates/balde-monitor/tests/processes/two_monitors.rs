//! Two monitors on one PostgreSQL: one polls, the other takes over when it is killed, and no alert is
//! sent twice.

use std::collections::BTreeSet;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::fake_dict::{Answer, FakeDict};
use crate::postgres::Postgres;
use crate::receiver::Receiver;
use crate::worker::{self, FastTime};

const SPEED: u32 = 20;
/// The interval of the default schedule.
const INTERVAL_US: u64 = 300_000_000;
const PATIENCE: Duration = Duration::from_secs(120);

/// A monitor, and a DICT that only this monitor polls.
struct Side {
    dict: FakeDict,
    child: Child,
}

fn buckets(level: i64) -> Answer {
    Answer::Buckets(vec![("CLAIMS_LIST_WITHOUT_ROLE", level, 50, 10)])
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}: timed out");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_polls_and_the_other_takes_over_within_an_interval() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let address = postgres.database();
    let receiver = Receiver::start(1, 0).await;
    let folder = tempfile::tempdir().unwrap();
    let time = FastTime::begin(SPEED);
    let mut sides = Vec::new();
    for name in ["one", "other"] {
        let dict = FakeDict::start(buckets(50)).await;
        let config = format!(
            "[history]\naddress = \"{address}\"\n[alerts]\npredict_within = '0 s'\n\
             [[participant]]\nispb = \"12345678\"\ndict = \"{}\"\n\
             [[sink]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"{}\"\nsecret_env = \"S\"\n",
            dict.url(),
            receiver.url("hook"),
        );
        let child = worker::start(&config, folder.path(), name, time);
        sides.push(Side { dict, child });
    }
    let requests =
        |sides: &[Side]| -> Vec<u64> { sides.iter().map(|side| side.dict.requests()).collect() };
    until("one monitor polls", || {
        requests(&sides).iter().any(|requests| *requests >= 3)
    })
    .await;
    let leader = usize::from(requests(&sides)[1] > 0);
    assert_eq!(requests(&sides)[1 - leader], 0, "only the leader polls");

    // The bucket is emptied while the first one leads.
    for side in &sides {
        side.dict.answer(buckets(0));
    }
    until("an alert", || !receiver.keys("hook").is_empty()).await;
    assert_eq!(
        requests(&sides)[1 - leader],
        0,
        "still only the leader polls"
    );

    // The leader is killed and the other takes over.
    let killed_us = time.now_us();
    sides[leader].child.kill().unwrap();
    sides[leader].child.wait().unwrap();
    until("a takeover", || requests(&sides)[1 - leader] > 0).await;
    let took_us = time.now_us() - killed_us;
    println!("taken over after {} virtual seconds", took_us / 1_000_000);
    assert!(took_us <= INTERVAL_US, "within one interval");

    // The resolution is sent once.
    for side in &sides {
        side.dict.answer(buckets(50));
    }
    // By key: if a monitor is killed between a delivery and its commit, the other delivers again.
    let kinds = || -> Vec<String> {
        let keys: BTreeSet<String> = receiver.keys("hook").into_iter().collect();
        let kind = |key: &String| key.rsplit('/').next().unwrap().to_owned();
        keys.iter().map(kind).collect()
    };
    until("the resolution", || {
        kinds().iter().any(|kind| kind == "resolved")
    })
    .await;
    for side in &mut sides {
        // One of them has been killed already.
        let _ = side.child.kill();
        let _ = side.child.wait();
    }
    let kinds = kinds();
    let count = |kind: &str| kinds.iter().filter(|one| *one == kind).count();
    assert_eq!(count("raised-EXHAUSTED"), 1, "{kinds:?}");
    assert_eq!(count("resolved"), 1, "{kinds:?}");
}
