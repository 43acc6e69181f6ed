//! `balde up`: runs simulator, traffic and monitor in one process, in accelerated time.

mod clock;
mod day;
mod traffic;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use balde_dict::simulator;
use balde_monitor::{Config, Monitor, TimeSource};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::Level;

use crate::service::{self, print_line};
use clock::AcceleratedClock;

/// The simulated participant and its category: small enough for the effect of a scan to be visible.
const PARTICIPANT: &str = "12345678";
const CATEGORY: char = 'F';

/// The number of keys in the directory.
const ENTRIES: usize = 1_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address of the DICT simulator
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8085")]
    dict: SocketAddr,
    /// Address of the monitor
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9180")]
    monitor: SocketAddr,
    /// Factor by which time is accelerated: with 20, a working day of ten hours takes half an hour
    #[arg(long, value_name = "TIMES", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=60))]
    speed: u32,
    /// Keep the history in this file. By default it is deleted at the end
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Send no traffic
    #[arg(long)]
    quiet: bool,
    /// Log level: error, warn (adds alerts), info or debug
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log: Level,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    service::run("up", up(args))
}

async fn up(args: &Args) -> anyhow::Result<()> {
    service::log_at(args.log);
    let dict_listener = service::listen(args.dict, "--dict").await?;
    let monitor_listener = service::listen(args.monitor, "--monitor").await?;
    let dict = dict_listener.local_addr()?;
    let page = monitor_listener.local_addr()?;

    let folder = tempfile::tempdir().context("cannot create a folder for temporary files")?;
    let history = match &args.history {
        Some(file) => file.clone(),
        None => folder.path().join("monitor.db"),
    };
    let clock = AcceleratedClock::start(args.speed);
    let simulator = clock.simulator(PARTICIPANT, CATEGORY, ENTRIES).await?;
    let config = config(dict, page, &history)?;
    let time = TimeSource::manual(clock.manual(), args.speed);
    let monitor = Monitor::build(&config, time.clone()).await?;
    clock.catch_up(&monitor).await?;

    print_introduction(args, dict, page, &history);
    let (end, ended) = watch::channel(false);
    let until_ended = |mut ended: watch::Receiver<bool>| async move {
        let _ended_or_dropped = ended.wait_for(|is_over| *is_over).await;
    };
    let mut tasks = JoinSet::new();
    let serving = simulator::run(dict_listener, simulator, until_ended(ended.clone()));
    tasks.spawn(async move { serving.await.map_err(anyhow::Error::from) });
    if !args.quiet {
        let traffic = traffic::run(dict, PARTICIPANT, ENTRIES, time, until_ended(ended.clone()));
        tasks.spawn(async move {
            traffic.await;
            Ok(())
        });
    }
    let note = format!(
        "balde up: a simulated DICT at http://{dict}/api/v2/, with time accelerated {} times",
        args.speed
    );
    let run = monitor.run(monitor_listener, &note, service::shutdown_signal());
    let result = run.await;
    let _all_have_ended = end.send(true);
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    result?;
    print_line(format_args!("stopped"));
    Ok(())
}

fn config(dict: SocketAddr, page: SocketAddr, history: &std::path::Path) -> anyhow::Result<Config> {
    let text = format!(
        "[http]\nlisten = \"{page}\"\n\
         [history]\naddress = {}\n\
         [[participant]]\nispb = \"{PARTICIPANT}\"\ndict = \"http://{dict}/api/v2/\"\n",
        serde_json::to_string(&history.display().to_string())?,
    );
    let folder = std::path::Path::new("");
    Ok(Config::parse(&text, "balde up", folder, |_variable| None)?)
}

fn print_introduction(args: &Args, dict: SocketAddr, page: SocketAddr, history: &std::path::Path) {
    let (speed, minutes) = (args.speed, 600 / args.speed);
    print_line(format_args!(
        "DICT       http://{dict}/api/v2/   (simulated; inspection at http://{dict}/sim/)"
    ));
    print_line(format_args!(
        "monitor    http://{page}/          (metrics at /metrics, JSON at /api/v1/states)"
    ));
    print_line(format_args!("history    {}", history.display()));
    print_line(format_args!(
        "time       accelerated {speed} times: a working day takes about {minutes} minutes"
    ));
    if !args.quiet {
        print_line(format_args!(
            "traffic    payers all day, a scan every half hour, and a batch job every quarter of an hour"
        ));
    }
    print_line("");
    print_line(format_args!(
        "Open the page: KEYS_CHECK falls within seconds, an alert fires and is resolved. Or:"
    ));
    print_line(format_args!(
        "  curl -s http://{page}/api/v1/alerts?limit=5"
    ));
    print_line(format_args!(
        "  curl -s http://{page}/metrics | grep KEYS_CHECK"
    ));
    print_line(format_args!(
        "  curl -s 'http://{dict}/sim/buckets?participant={PARTICIPANT}'"
    ));
    print_line(format_args!("Ctrl-C stops it."));
    print_line("");
}
