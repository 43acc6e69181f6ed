//! Two monitors on one `PostgreSQL` and one Temporal server: one is the leader, and the other takes
//! over when it is killed.

use std::collections::BTreeSet;
use std::process::Child;

use crate::fake_dict::{Answer, FakeDict};
use crate::postgres::Postgres;
use crate::receiver::Receiver;
use crate::server::Server;
use crate::until;
use crate::worker::{self, FastTime};

/// A monitor, and a DICT that only this monitor polls.
struct Side {
    dict: FakeDict,
    child: Child,
}

fn buckets(level: i64) -> Answer {
    Answer::Buckets(vec![("ENTRIES_WRITE", level, 1_000, 0)])
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_leads_and_the_other_takes_over() {
    let (Some(postgres), Some(mut server)) = (Postgres::shared(), Server::planned()) else {
        return;
    };
    server.start().await;
    let address = postgres.database();
    let receiver = Receiver::start(1, 0).await;
    let folder = tempfile::tempdir().unwrap();
    let time = FastTime::begin(1);
    let mut sides = Vec::new();
    for name in ["one", "other"] {
        let dict = FakeDict::start(buckets(200)).await;
        let config = format!(
            "[history]\naddress = \"{address}\"\n\
             [schedule]\nkind = \"temporal\"\ntemporal_address = \"{}\"\n\
             [alerts]\nresolve_after = '0 s'\npredict_within = '0 s'\n\
             [[participant]]\nispb = \"12345678\"\ndict = \"{}\"\n\
             [[sink]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"{}\"\nsecret_env = \"S\"\n",
            server.address(),
            dict.url(),
            receiver.url("hook"),
        );
        let child = worker::start(&config, folder.path(), name, time);
        sides.push(Side { dict, child });
    }
    let sent = |kind: &str| {
        let keys: BTreeSet<String> = receiver.keys("hook").into_iter().collect();
        keys.iter().filter(|key| key.ends_with(kind)).count()
    };
    until("an alert", async || sent("raised-WARNING") > 0).await;
    let leader = usize::from(sides[1].dict.requests() > 0);
    assert_eq!(
        sides[1 - leader].dict.requests(),
        0,
        "only the leader polls"
    );

    sides[leader].child.kill().unwrap();
    sides[leader].child.wait().unwrap();
    let other = &mut sides[1 - leader];
    other.dict.answer(buckets(0));
    until("the other takes over", async || other.dict.requests() > 0).await;
    until("and sends the next alert", async || sent("EXHAUSTED") > 0).await;
    other.child.kill().unwrap();
    other.child.wait().unwrap();
    assert_eq!(sent("raised-WARNING"), 1);
    assert_eq!(sent("EXHAUSTED"), 1);
}
