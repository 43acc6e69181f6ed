//! `balde serve`: runs the decision service from its configuration file, and reloads it on SIGHUP.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use balde_service::{Config, Service};

use crate::output::{LogArgs, Output};
use crate::print::{print_error, write_error};
use crate::service::{self, Hangups, ShutdownSignal};
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
    let hangups = Hangups::new();
    let supervisor = Supervisor::new();
    supervisor.ready();
    let file = args.config.clone();
    let reloads = tokio::spawn(reload_on_signal(
        hangups, decisions, file, supervisor, output,
    ));
    let shutdown = async {
        let signal = shutdown.await;
        Supervisor::stopping();
        if signal == ShutdownSignal::Terminate {
            drain(&draining, output).await;
        }
    };
    bound.run(shutdown).await;
    reloads.abort();
    output.tell("stopped", "stopped");
    Ok(())
}

/// Goes on serving until balancers have noticed that the service is about to end.
async fn drain(decisions: &Service, output: Output) {
    let delay = decisions.drain_delay();
    if delay.is_zero() {
        return;
    }
    decisions.drain().await;
    output.tell(
        "draining",
        format_args!("not ready: shutting down in {delay:?}"),
    );
    tokio::time::sleep(delay).await;
}

/// Reloads the file on every SIGHUP. A file that cannot be applied changes nothing.
async fn reload_on_signal(
    mut hangups: Hangups,
    decisions: Service,
    file: PathBuf,
    mut supervisor: Supervisor,
    output: Output,
) {
    loop {
        hangups.next().await;
        Supervisor::reloading();
        let result = reload(&decisions, &file, output);
        supervisor.reloaded(match &result {
            Ok(()) => Ok(()),
            Err(reason) => Err(reason),
        });
    }
}

fn reload(decisions: &Service, file: &Path, output: Output) -> Result<(), String> {
    let applied = match Config::read(file) {
        Ok(config) => decisions.reload(&config).map_err(|error| error.to_string()),
        Err(error) => {
            decisions.reload_refused();
            Err(error.to_string())
        }
    };
    match &applied {
        Ok(()) => output.tell("reloaded", "the configuration was reloaded"),
        Err(error) => {
            print_error(format_args!(
                "balde serve: not reloaded, the old configuration stays\n{error}"
            ));
            tracing::error!(
                event_type = "reload_refused",
                "the old configuration stays: {error}"
            );
        }
    }
    applied
}
