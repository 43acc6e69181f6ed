//! `balde monitor`

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use balde_monitor::{Config, Monitor, TimeSource};
use tracing::Level;

use crate::running::{self, say};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The monitor's file; docs/monitor.toml is one with every key
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// What to log: error, warn (alerts, too), info or debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: Level,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    running::until_done("monitor", monitor(args))
}

async fn monitor(args: &Args) -> anyhow::Result<()> {
    let config = Config::read(&args.config).map_err(|error| anyhow!("\n{error}"))?;
    running::log_at(args.log);
    let listener = running::listen(config.http.listen, "listen in [http]").await?;
    let monitor = Monitor::build(&config, TimeSource::system()).await?;
    let address = listener.local_addr()?;
    say(format_args!("page       http://{address}/"));
    say(format_args!("metrics    http://{address}/metrics"));
    monitor.run(listener, "", running::told_to_end()).await?;
    Ok(())
}
