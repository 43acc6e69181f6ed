//! A bulk import: generated records, written to the partitions of a store that has its own limits and
//! outages.
//!
//! ```sh
//! cargo run --release -p balde-throttle --example bulk_import -- --records 200000
//! cargo run --release -p balde-throttle --example bulk_import -- --virtual
//! ```
//!
//! `--records N` sets how many: five million by default, which take about five minutes. `--virtual` runs
//! in tokio's paused time, so that five million take seconds.

mod import;
mod progress;
mod store;
mod uniformity;

use std::process::ExitCode;

use import::{Import, RECORDS_DEFAULT};

fn main() -> ExitCode {
    let mut records = RECORDS_DEFAULT;
    let mut is_virtual = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.by_ref()) {
            ("--virtual", _) => is_virtual = true,
            ("--records", rest) => match rest.next().and_then(|text| text.parse().ok()) {
                Some(number) => records = number,
                None => return usage("--records needs a number"),
            },
            (other, _) => return usage(&format!("unknown argument {other}")),
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(is_virtual)
        .build()
        .expect("a runtime");
    let summary = runtime.block_on(async {
        let import = Import::new(records);
        let shown = tokio::spawn(progress::show(import.clone()));
        let summary = import.run().await;
        shown.abort();
        summary
    });
    eprintln!();
    println!("{summary}");
    ExitCode::SUCCESS
}

fn usage(why: &str) -> ExitCode {
    eprintln!("{why}\nbulk_import [--records N] [--virtual]");
    ExitCode::FAILURE
}
