//! `balde monitor`: runs the monitor from its configuration file.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use balde_monitor::{Config, Monitor, TimeSource};
use tracing::Level;

use crate::service::{self, print_line};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The monitor's configuration file; docs/monitor.toml shows every key
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Log level: error, warn (adds alerts), info or debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: Level,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    service::run("monitor", monitor(args))
}

async fn monitor(args: &Args) -> anyhow::Result<()> {
    let config = Config::read(&args.config).map_err(|error| anyhow!("\n{error}"))?;
    service::log_at(args.log);
    let listener = service::listen(config.http.listen, "listen in [http]").await?;
    let monitor = Monitor::build(&config, TimeSource::system()).await?;
    let address = listener.local_addr()?;
    print_line(format_args!("page       http://{address}/"));
    print_line(format_args!("metrics    http://{address}/metrics"));
    monitor
        .run(listener, "", service::shutdown_signal())
        .await?;
    Ok(())
}
