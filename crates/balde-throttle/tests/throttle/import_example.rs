//! The example `bulk_import` in virtual time: five million records, forty partitions, some of them down
//! for a minute.

#[path = "../../examples/bulk_import/import.rs"]
mod import;
#[path = "../../examples/bulk_import/progress.rs"]
mod progress;
#[path = "../../examples/bulk_import/store.rs"]
mod store;
#[path = "../../examples/bulk_import/uniformity.rs"]
mod uniformity;

use std::time::Duration;

use import::{Import, RECORDS_DEFAULT};
use store::PARTITIONS;

#[tokio::test(start_paused = true)]
async fn five_million_records_are_written_once_each_at_the_stores_rate() {
    let import = Import::new(RECORDS_DEFAULT);
    let shown = tokio::spawn(progress::show(import.clone()));
    let watched = {
        let import = import.clone();
        tokio::spawn(async move {
            // In the middle of the first long outage.
            tokio::time::sleep(Duration::from_secs(50)).await;
            progress::line(&import)
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
    // 250 s at the global rate without outages. The partition that was down in the second minute is
    // the last: when the others are done it has some 35,000 records left to write, at its own 1,000 a
    // second.
    let took = summary.took;
    assert!(took >= Duration::from_secs(250), "{took:?}");
    assert!(took <= Duration::from_secs(295), "{took:?}");
    assert!(summary.failures > 0 && summary.refusals > 0, "{summary:?}");
    let uniformity = summary.uniformity.expect("it ran for minutes");
    assert!(uniformity.seconds > 200, "{uniformity}");
    assert!(uniformity.deviation <= 300, "{uniformity}");
    assert_eq!(summary.pushbacks, 0, "never faster than the store allows");
}
