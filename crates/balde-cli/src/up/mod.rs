//! `balde up`: runs simulator, gateway, traffic and monitor in one process, in accelerated time.

mod clock;
mod day;
mod picture;
mod traffic;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use balde::Clock;
use balde_gateway::Gateway;
use balde_monitor::{Config, Monitor, TimeSource};
use balde_simulator as simulator;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::output::{LogArgs, Output};
use crate::print::print_line;
use crate::service;
use clock::AcceleratedClock;

/// The simulated participant and its category: small enough for the effect of a scan to be visible.
const PARTICIPANT: &str = "12345678";
const CATEGORY: char = 'F';

/// The number of keys in the directory.
const ENTRIES: usize = 1_000;

/// `up` is for people: it shows alerts as sentences, and of the rest warnings only.
const LOG_HELP: &str = "Log level: error, warn, info or debug. In text, alerts are shown with all; error hides warnings";

#[derive(Debug, clap::Args)]
#[command(
    mut_arg("log_level", |arg| arg.default_value("warn").help(LOG_HELP)),
    mut_arg("log_format", |arg| arg.default_value("text"))
)]
pub(crate) struct Args {
    /// Address of the DICT simulator
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8085")]
    dict: SocketAddr,
    /// Address of the gateway in front of it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    gateway: SocketAddr,
    /// Address of the gateway's state endpoint, which the monitor reads
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8090")]
    state: SocketAddr,
    /// Address of the monitor
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9180")]
    monitor: SocketAddr,
    /// Address of a decision service beside them, which answers JSON. By default there is none
    #[arg(long, value_name = "ADDRESS")]
    serve: Option<SocketAddr>,
    /// Factor by which time is accelerated: with 20, a working day of ten hours takes half an hour
    #[arg(long, value_name = "TIMES", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=60))]
    speed: u32,
    /// Keep the history in this file. By default it is deleted at the end
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Send no traffic
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    log: LogArgs,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    service::run("up", up(args))
}

async fn up(args: &Args) -> anyhow::Result<()> {
    let output = Output::start_with_alerts(&args.log);
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
    let token = format!("{:032x}", fastrand::u128(..));
    let gateway = gateway_config(args, dict, &token)?;
    let gateway = Gateway::build_with(&gateway, Clock::manual(clock.manual()))?;
    let bound = gateway.bind().await;
    let bound = bound.context("set other addresses with --gateway and --state")?;
    let addresses = Addresses {
        dict,
        gateway: *bound.addresses().first().context("one listener")?,
        state: bound.state_address().context("a state endpoint")?,
        page,
    };
    let config = config(&addresses, &token, &history)?;
    let time = TimeSource::manual(clock.manual(), args.speed);
    let monitor = Monitor::build(&config, time.clone()).await?;
    clock.catch_up(&monitor).await?;

    let shutdown = service::shutdown_signal();
    if output.is_json() {
        tell_addresses(output, &addresses);
    } else {
        print_introduction(args, &addresses, &token, &history);
    }
    let decisions = match args.serve {
        Some(address) => Some(decision_service(address, output).await?),
        None => None,
    };
    let (end, ended) = watch::channel(false);
    let until_ended = |mut ended: watch::Receiver<bool>| async move {
        let _ended_or_dropped = ended.wait_for(|is_over| *is_over).await;
    };
    let mut tasks = JoinSet::new();
    let serving = simulator::run(dict_listener, simulator, until_ended(ended.clone()));
    tasks.spawn(async move { serving.await.map_err(anyhow::Error::from) });
    let serving = bound.run(until_ended(ended.clone()));
    tasks.spawn(async move {
        serving.await;
        Ok(())
    });
    if let Some(decisions) = decisions {
        let serving = decisions.run(until_ended(ended.clone()));
        tasks.spawn(async move {
            serving.await;
            Ok(())
        });
    }
    if !args.quiet {
        let target = traffic::Target {
            dict: addresses.gateway,
            orders: addresses.state,
            token,
            simulator: dict,
            participant: PARTICIPANT,
            entries: ENTRIES,
        };
        let traffic = traffic::run(target, time, until_ended(ended.clone()));
        tasks.spawn(async move {
            traffic.await;
            Ok(())
        });
    }
    // The second line is for pages in Portuguese.
    let (gateway, speed) = (addresses.gateway, args.speed);
    let note = format!(
        "balde up: a simulated DICT behind a gateway at http://{gateway}/api/v2/, with time accelerated \
         {speed} times\n\
         balde up: um DICT simulado atrás de um gateway em http://{gateway}/api/v2/, com o tempo \
         acelerado {speed} vezes"
    );
    let shutdown = async {
        shutdown.await;
    };
    let run = monitor.run(monitor_listener, &note, shutdown);
    let result = run.await;
    let _all_have_ended = end.send(true);
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    result?;
    output.tell("stopped", "stopped");
    Ok(())
}

/// A decision service with one limit, and a line that says how to ask it. Its time is not accelerated.
async fn decision_service(
    address: SocketAddr,
    output: Output,
) -> anyhow::Result<balde_service::Bound> {
    let text = format!("[limits.demo]\nlimit = \"1/s burst 5\"\n[http]\naddress = \"{address}\"\n");
    let folder = std::path::Path::new("");
    let config = balde_service::Config::parse(&text, "balde up", folder, |_variable| None)?;
    let bound = balde_service::Service::build(&config)?.bind().await;
    let bound = bound.context("set another address with --serve")?;
    for (_, url) in bound.urls() {
        output.address("service", format_args!("{url}v1/limits"));
        if !output.is_json() {
            print_line(format_args!(
                "  curl -s {url}v1/check -H 'Content-Type: application/json' -d '{{\"limit\":\"demo\",\"key\":\"me\"}}'"
            ));
        }
    }
    Ok(bound)
}

/// Where everything listens.
struct Addresses {
    dict: SocketAddr,
    gateway: SocketAddr,
    state: SocketAddr,
    page: SocketAddr,
}

/// A gateway in front of the simulator. Reconciliations follow real time: once in a simulated minute
/// or so.
fn gateway_config(
    args: &Args,
    dict: SocketAddr,
    token: &str,
) -> anyhow::Result<balde_gateway::Config> {
    let (gateway, state) = (args.gateway, args.state);
    let every = (60 / args.speed).max(1);
    let text = format!(
        "[[listener]]\naddress = \"{gateway}\"\n\
         [[upstream]]\nname = \"dict\"\nurl = \"http://{dict}\"\n\
         [[route]]\npath = \"/api\"\nupstream = \"dict\"\n\
         [[route]]\npath = \"/api-np\"\nupstream = \"dict\"\n\
         [state]\naddress = \"{state}\"\ntoken_env = \"TOKEN\"\n\
         [dict]\nupstream = \"dict\"\nparticipants = [\"{PARTICIPANT}\"]\nrefill = \"profile\"\n\
         category = \"{CATEGORY}\"\nreconcile_every = \"{every} s\"\n"
    );
    let folder = std::path::Path::new("");
    let variable = |name: &str| (name == "TOKEN").then(|| token.to_owned());
    let config = balde_gateway::Config::parse(&text, "balde up", folder, variable);
    Ok(config?)
}

fn config(addresses: &Addresses, token: &str, history: &std::path::Path) -> anyhow::Result<Config> {
    let Addresses { page, state, .. } = addresses;
    let text = format!(
        "[http]\naddress = \"{page}\"\n\
         [history]\naddress = {}\n\
         [[participant]]\nispb = \"{PARTICIPANT}\"\ngateway = \"http://{state}/balde/states\"\n\
         token_env = \"TOKEN\"\n",
        serde_json::to_string(&history.display().to_string())?,
    );
    let folder = std::path::Path::new("");
    let variable = |name: &str| (name == "TOKEN").then(|| token.to_owned());
    Ok(Config::parse(&text, "balde up", folder, variable)?)
}

/// The addresses as events of the log.
fn tell_addresses(output: Output, addresses: &Addresses) {
    let Addresses {
        dict,
        gateway,
        state,
        page,
    } = addresses;
    output.address("page", format_args!("http://{page}/"));
    output.address("gateway", format_args!("http://{gateway}/api/v2/"));
    output.address("DICT", format_args!("http://{dict}/api/v2/"));
    output.address("state", format_args!("http://{state}/balde/states"));
}

fn print_introduction(args: &Args, addresses: &Addresses, token: &str, history: &std::path::Path) {
    let Addresses {
        dict, state, page, ..
    } = addresses;
    let (speed, minutes) = (args.speed, 600 / args.speed);
    let history = history.display();
    let picture = picture::picture(addresses, !args.quiet);
    print_line(format_args!(
        "{picture}
page       http://{page}/
history    {history}
time       accelerated {speed} times: a working day takes about {minutes} minutes

Open the page: KEYS_CHECK falls within seconds, an alert fires and is resolved. Or:
  curl -s http://{page}/api/v1/alerts?limit=5
  curl -s http://{page}/metrics | grep KEYS_CHECK
  curl -s 'http://{dict}/sim/buckets?participant={PARTICIPANT}'
  curl -s -H 'Authorization: Bearer {token}' 'http://{state}/balde/states?participant={PARTICIPANT}'
Ctrl-C stops it. Alerts, with the accelerated time of the day (UTC):
"
    ));
}
