//! `balde up`

mod day;
mod traffic;
mod world;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use balde_dict::simulator;
use balde_monitor::{Config, Monitor, TimeSource};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::Level;

use crate::running::{self, say};
use world::World;

/// The participant whose day it is, and its category: small enough for a scan to be seen.
const PARTICIPANT: &str = "12345678";
const CATEGORY: char = 'F';

/// How many keys there are to look up.
const ENTRIES: usize = 1_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the simulated DICT listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8085")]
    dict: SocketAddr,
    /// Where the monitor listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9180")]
    monitor: SocketAddr,
    /// How many times faster than the world's time everything goes: 20 makes a working day of ten
    /// hours half an hour long
    #[arg(long, value_name = "TIMES", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=60))]
    speed: u32,
    /// Keep the history in this file; else in one that goes with this process
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// No traffic: send your own
    #[arg(long)]
    quiet: bool,
    /// What to log: error, warn (alerts, too), info or debug
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log: Level,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    running::until_done("up", up(args))
}

async fn up(args: &Args) -> anyhow::Result<()> {
    running::log_at(args.log);
    let dict_listener = running::listen(args.dict, "--dict").await?;
    let monitor_listener = running::listen(args.monitor, "--monitor").await?;
    let dict = dict_listener.local_addr()?;
    let page = monitor_listener.local_addr()?;

    let folder = tempfile::tempdir().context("no room for temporary files")?;
    let history = match &args.history {
        Some(file) => file.clone(),
        None => folder.path().join("monitor.db"),
    };
    let world = World::start(args.speed);
    let simulator = world.simulator(PARTICIPANT, CATEGORY, ENTRIES).await?;
    let config = config(dict, page, &history)?;
    let time = TimeSource::manual(world.clock(), args.speed);
    let monitor = Monitor::build(&config, time.clone()).await?;
    world.catch_up(&monitor).await?;

    introduce(args, dict, page, &history);
    let (end, ended) = watch::channel(false);
    let until_the_end = |mut ended: watch::Receiver<bool>| async move {
        let _either_way = ended.wait_for(|is_over| *is_over).await;
    };
    let mut parts = JoinSet::new();
    let serving = simulator::run(dict_listener, simulator, until_the_end(ended.clone()));
    parts.spawn(async move { serving.await.map_err(anyhow::Error::from) });
    if !args.quiet {
        let traffic = traffic::run(
            dict,
            PARTICIPANT,
            ENTRIES,
            time,
            until_the_end(ended.clone()),
        );
        parts.spawn(async move {
            traffic.await;
            Ok(())
        });
    }
    let note = format!(
        "balde up: a simulated DICT at http://{dict}/api/v2/, time {} times faster than outside",
        args.speed
    );
    let outcome = monitor.run(monitor_listener, &note, running::told_to_end());
    let outcome = outcome.await;
    let _nobody_may_be_left = end.send(true);
    while let Some(part) = parts.join_next().await {
        part??;
    }
    outcome?;
    say(format_args!("ended"));
    Ok(())
}

fn config(dict: SocketAddr, page: SocketAddr, history: &std::path::Path) -> anyhow::Result<Config> {
    let text = format!(
        "[http]\nlisten = \"{page}\"\n\
         [history]\naddress = {}\n\
         [[participant]]\nispb = \"{PARTICIPANT}\"\ndict = \"http://{dict}/api/v2/\"\n",
        serde_json::to_string(&history.display().to_string())?,
    );
    let here = std::path::Path::new("");
    Ok(Config::parse(&text, "balde up", here, |_variable| None)?)
}

fn introduce(args: &Args, dict: SocketAddr, page: SocketAddr, history: &std::path::Path) {
    let (speed, minutes) = (args.speed, 600 / args.speed);
    say(format_args!(
        "DICT       http://{dict}/api/v2/   (simulated; inspection at http://{dict}/sim/)"
    ));
    say(format_args!(
        "monitor    http://{page}/          (metrics at /metrics, JSON at /api/v1/states)"
    ));
    say(format_args!("history    {}", history.display()));
    say(format_args!(
        "time       {speed} times faster than outside: a working day takes some {minutes} minutes"
    ));
    if !args.quiet {
        say(format_args!(
            "traffic    payers all day, a scan, and a batch job every quarter of an hour"
        ));
    }
    say("");
    say(format_args!(
        "Open the page: KEYS_CHECK falls within seconds, an alert fires and is resolved. Or:"
    ));
    say(format_args!(
        "  curl -s http://{page}/api/v1/alerts?limit=5"
    ));
    say(format_args!(
        "  curl -s http://{page}/metrics | grep KEYS_CHECK"
    ));
    say(format_args!(
        "  curl -s 'http://{dict}/sim/buckets?participant={PARTICIPANT}'"
    ));
    say(format_args!("Ctrl-C ends it."));
    say("");
}
