//! Starts a monitor as a separate process.

use std::env;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use balde::{Clock, ManualClock};
use balde_monitor::{Config, Monitor, TimeSource};
use tokio::net::TcpListener;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

const CONFIG: &str = "BALDE_TEST_MONITOR";
const FOLDER: &str = "BALDE_TEST_FOLDER";
const SPEED: &str = "BALDE_TEST_SPEED";
const BEGAN_US: &str = "BALDE_TEST_BEGAN_US";
/// The address of the pages; a free port by default.
pub(crate) const LISTEN: &str = "BALDE_TEST_LISTEN";

/// The value of every environment variable that a config file names as a secret.
pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// An accelerated clock that all processes of a test share.
#[derive(Clone, Copy)]
pub(crate) struct FastTime {
    pub(crate) began_us: u64,
    pub(crate) speed: u32,
}

impl FastTime {
    pub(crate) fn begin(speed: u32) -> Self {
        Self {
            began_us: Clock::wall().now_us(),
            speed,
        }
    }

    pub(crate) fn now_us(self) -> u64 {
        let since_us = Clock::wall().now_us().saturating_sub(self.began_us);
        self.began_us + since_us * u64::from(self.speed)
    }
}

/// Starts a monitor with this config; its log is appended to a file in `folder`.
pub(crate) fn start(config: &str, folder: &Path, log: &str, time: FastTime) -> Child {
    command(config, folder, log, time).spawn().unwrap()
}

/// The command that starts a monitor.
pub(crate) fn command(config: &str, folder: &Path, log: &str, time: FastTime) -> Command {
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join(log))
        .unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args([
            "worker::runs_a_monitor_if_the_environment_says_so",
            "--exact",
            "--nocapture",
        ])
        .env(CONFIG, config)
        .env(FOLDER, folder)
        .env(SPEED, time.speed.to_string())
        .env(BEGAN_US, time.began_us.to_string())
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(Stdio::null());
    command
}

#[test]
fn runs_a_monitor_if_the_environment_says_so() {
    let Ok(config) = env::var(CONFIG) else {
        return;
    };
    let number = |name: &str| env::var(name).unwrap().parse::<u64>().unwrap();
    let time = FastTime {
        began_us: number(BEGAN_US),
        speed: u32::try_from(number(SPEED)).unwrap(),
    };
    tracing_subscriber::registry()
        .with(balde::telemetry::json_logs_to(std::io::stdout))
        .init();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(run(&config, Path::new(&env::var(FOLDER).unwrap()), time));
}

async fn run(config: &str, folder: &Path, time: FastTime) {
    let clock = ManualClock::at_us(time.now_us());
    let moved = clock.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            moved.set_us(time.now_us());
        }
    });
    let secret = |_variable: &str| Some(SECRET.to_owned());
    let config = Config::parse(config, "worker", folder, secret).unwrap();
    let time = TimeSource::manual(&clock, time.speed);
    let monitor = Monitor::build(&config, time).await.unwrap();
    let listen = env::var(LISTEN).map_or_else(
        |_| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        |address| address.parse().unwrap(),
    );
    let listener = TcpListener::bind(listen).await.unwrap();
    monitor
        .run(listener, "", std::future::pending())
        .await
        .unwrap();
}
