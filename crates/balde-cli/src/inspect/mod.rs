//! `balde inspect`: reads buckets out of Redis and changes nothing.
//!
//! | File | Holds |
//! |--|--|
//! | `args` | the arguments, and the store that they name |
//! | `find` | one bucket by its key, or many by a bounded scan |
//! | `render` | tables and JSON |

mod args;
mod find;
mod render;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use balde::RedisStore;

pub(crate) use args::Args;

use self::args::Wanted;
use self::find::Found;
use crate::print::write_output;
use crate::service;

/// Moves the cursor home and clears the screen, so that `--watch` redraws in place.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub(crate) fn run(args: &Args) -> ExitCode {
    service::run("inspect", async {
        let wanted = args.wanted()?;
        let (store, address) = args.store()?;
        let shown = show(args, &store, wanted).await;
        shown.map_err(|failure| failure.context(format!("Redis at {address}")))
    })
}

async fn show(args: &Args, store: &RedisStore, wanted: Wanted<'_>) -> anyhow::Result<()> {
    let mut wanted = wanted;
    loop {
        let found = find::find(args, store, &wanted).await?;
        print(args, &wanted, &found)?;
        if !args.watch {
            return Ok(());
        }
        // A key is looked for by its hash once.
        if let (Wanted::Hash { .. }, [bucket]) = (&wanted, found.buckets.as_slice()) {
            wanted = Wanted::Key {
                limiter: bucket.limiter.clone(),
                hash_tag: bucket.hash_tag.clone(),
                key: bucket.key.clone(),
            };
        }
        tokio::select! {
            () = tokio::time::sleep(args.interval()) => {}
            _ = service::shutdown_signal() => return Ok(()),
        }
    }
}

fn print(args: &Args, wanted: &Wanted<'_>, found: &Found) -> std::io::Result<()> {
    let text = if args.json {
        render::json(wanted, found, args.watch)
    } else {
        render::text(wanted, found)
    };
    let clear = if args.watch && !args.json && std::io::stdout().is_terminal() {
        CLEAR
    } else {
        ""
    };
    write_output(&format!("{clear}{text}"))
}
