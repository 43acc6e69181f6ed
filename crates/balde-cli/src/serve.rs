//! `balde serve`: runs the decision service from its configuration file, and reloads it on SIGHUP.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use balde_service::{Config, Service};

use crate::lifecycle::{reload_on_signal, until_shutdown};
use crate::output::{LogArgs, Output};
use crate::print::write_error;
use crate::service::{self, Hangups};
use crate::supervisor::Supervisor;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The service's configuration file; docs/service.toml shows every key
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    log: LogArgs,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let config = match Config::read(&args.config) {
        Ok(config) => config,
        Err(error) => {
            write_error(&format!("balde serve: \n{error}\n"));
            return ExitCode::FAILURE;
        }
    };
    let workers = config.server.workers;
    service::run_on("serve", workers, serve(args, config))
}

async fn serve(args: &Args, config: Config) -> anyhow::Result<()> {
    let output = Output::start(&args.log);
    let decisions = Service::build(&config).map_err(|error| anyhow!("\n{error}"))?;
    let bound = decisions.bind().await?;
    let shutdown = service::shutdown_signal();
    for (name, url) in bound.urls() {
        output.address(name, url);
    }
    if let Some(address) = bound.state_address() {
        output.address("metrics", format_args!("http://{address}/metrics"));
    }
    let draining = decisions.clone();
    let supervisor = Supervisor::new();
    supervisor.ready();
    let file = args.config.clone();
    let apply = move || reload(&decisions, &file);
    let reloads = reload_on_signal("serve", Hangups::new(), supervisor, output, apply);
    let reloads = tokio::spawn(reloads);
    let stop_being_ready = async { draining.drain().await };
    let shutdown = until_shutdown(shutdown, draining.drain_delay(), stop_being_ready, output);
    bound.run(shutdown).await;
    reloads.abort();
    output.tell("stopped", "stopped");
    Ok(())
}

/// Reads the file and applies it. A file that cannot be applied changes nothing.
fn reload(decisions: &Service, file: &Path) -> Result<(), String> {
    match Config::read(file) {
        Ok(config) => decisions.reload(&config).map_err(|error| error.to_string()),
        Err(error) => {
            decisions.reload_refused();
            Err(error.to_string())
        }
    }
}
