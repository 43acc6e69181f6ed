//! The bulk import of the examples, in virtual time: five million records, forty partitions, some of
//! them down for a minute.

#[path = "../../examples/bulk_import/import.rs"]
mod import;
#[path = "../../examples/bulk_import/progress.rs"]
mod progress;
#[path = "../../examples/bulk_import/store.rs"]
mod store;

use std::time::Duration;

use import::{Import, RECORDS_DEFAULT};
use store::PARTITIONS;

#[tokio::test(start_paused = true)]
async fn five_million_records_arrive_once_each_at_the_pace_that_the_store_allows() {
    let import = Import::new(RECORDS_DEFAULT);
    let shown = tokio::spawn(progress::show(import.clone()));
    let watched = {
        let import = import.clone();
        tokio::spawn(async move {
            // In the middle of the first bad minute.
            tokio::time::sleep(Duration::from_secs(50)).await;
            progress::line(&import, import.written(), 20_000)
        })
    };
    let summary = import.run().await;
    shown.abort();
    println!("{summary}");

    assert_eq!(summary.records, RECORDS_DEFAULT);
    let step = PARTITIONS as u64;
    for partition in 0..PARTITIONS {
        let (records, sum) = import.stored(partition);
        let rows = RECORDS_DEFAULT / step;
        assert_eq!(records, rows, "partition {partition}");
        let expected = rows * (rows - 1) / 2 * step + rows * partition as u64;
        assert_eq!(sum, expected, "partition {partition}: each record once");
    }

    let line = watched.await.unwrap();
    assert!(line.contains("degraded: p03"), "{line}");
    assert!(line.contains("left"), "{line}");
    // 250 s at the global rate, if nothing went wrong. The partition that was down in the second
    // minute is the last: when the others are done it has some 35,000 records left to write, at its
    // own 1,000 a second.
    let took = summary.took;
    assert!(took >= Duration::from_secs(250), "{took:?}");
    assert!(took <= Duration::from_secs(295), "{took:?}");
    assert!(summary.failures > 0 && summary.refusals > 0, "{summary:?}");
    assert_eq!(summary.pushbacks, 0, "never faster than the store allows");
}
