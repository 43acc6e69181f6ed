//! `balde gateway`: runs the gateway from its configuration file, and reloads it on SIGHUP.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use balde_gateway::{Config, Gateway};

use crate::output::{LogArgs, Output};
use crate::print::{print_error, write_error};
use crate::service::{self, Hangups, ShutdownSignal};
use crate::supervisor::Supervisor;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The gateway's configuration file; docs/gateway.toml shows every key
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    log: LogArgs,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let config = match Config::read(&args.config) {
        Ok(config) => config,
        Err(error) => {
            write_error(&format!("balde gateway: \n{error}\n"));
            return ExitCode::FAILURE;
        }
    };
    let workers = config.server.workers;
    service::run_on("gateway", workers, serve(args, config))
}

async fn serve(args: &Args, config: Config) -> anyhow::Result<()> {
    let output = Output::start(&args.log);
    let gateway = Gateway::build(&config).map_err(|error| anyhow!("\n{error}"))?;
    let bound = gateway.bind().await?;
    let shutdown = service::shutdown_signal();
    let listeners = bound.addresses().into_iter().zip(&config.listeners);
    for (address, listener) in listeners {
        let scheme = match listener.identity {
            Some(_) => "https",
            None => "http",
        };
        output.address("gateway", format_args!("{scheme}://{address}/"));
    }
    if let Some(address) = bound.state_address() {
        output.address("state", format_args!("http://{address}/balde/states"));
        output.address("metrics", format_args!("http://{address}/metrics"));
    }
    let draining = gateway.clone();
    let hangups = Hangups::new();
    let supervisor = Supervisor::new();
    supervisor.ready();
    let file = args.config.clone();
    let reloads = tokio::spawn(reload_on_signal(hangups, gateway, file, supervisor, output));
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

/// Goes on serving until balancers have noticed that the gateway is about to end.
async fn drain(gateway: &Gateway, output: Output) {
    let delay = gateway.drain_delay();
    if delay.is_zero() {
        return;
    }
    gateway.drain();
    output.tell(
        "draining",
        format_args!("not ready: shutting down in {delay:?}"),
    );
    tokio::time::sleep(delay).await;
}

/// Reloads the file on every SIGHUP. A file that cannot be applied changes nothing.
async fn reload_on_signal(
    mut hangups: Hangups,
    gateway: Gateway,
    file: PathBuf,
    mut supervisor: Supervisor,
    output: Output,
) {
    loop {
        hangups.next().await;
        Supervisor::reloading();
        let result = reload(&gateway, &file, output);
        supervisor.reloaded(match &result {
            Ok(()) => Ok(()),
            Err(reason) => Err(reason),
        });
    }
}

fn reload(gateway: &Gateway, file: &Path, output: Output) -> Result<(), String> {
    let applied = match Config::read(file) {
        Ok(config) => gateway.reload(&config).map_err(|error| error.to_string()),
        Err(error) => {
            gateway.reload_refused();
            Err(error.to_string())
        }
    };
    match &applied {
        Ok(()) => {
            output.tell("reloaded", "the configuration was reloaded");
        }
        Err(error) => {
            print_error(format_args!(
                "balde gateway: not reloaded, the old configuration stays\n{error}"
            ));
            tracing::error!(
                event_type = "reload_refused",
                "the old configuration stays: {error}"
            );
        }
    }
    applied
}
