//! What all verbs that run until they are told to end have in common.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;

use balde::telemetry::json_logs_at;
use tokio::net::TcpListener;
use tracing::Level;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Runs `work` on a runtime of its own, and tells what went wrong.
pub(crate) fn until_done(verb: &str, work: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    let outcome = tokio::runtime::Runtime::new()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(work));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("balde {verb}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Logs go to standard output, a JSON object to a line.
pub(crate) fn log_at(level: Level) {
    tracing_subscriber::registry()
        .with(json_logs_at(level, io::stdout))
        .init();
}

/// A listener, or what is in the way and which option leads around it.
pub(crate) async fn listen(address: SocketAddr, option: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::AddrInUse => "something else listens there already",
            io::ErrorKind::PermissionDenied => "this user may not listen there",
            io::ErrorKind::AddrNotAvailable => "that is no address of this machine",
            _ => return anyhow::anyhow!("cannot listen on {address}: {error}"),
        };
        anyhow::anyhow!("cannot listen on {address}: {advice}; name another address with {option}")
    })
}

/// A line on standard output. Whoever closed it does not want to read it.
pub(crate) fn say(line: impl std::fmt::Display) {
    let _nobody_reads = writeln!(io::stdout(), "{line}");
}

/// Ctrl-C, or what a service manager sends. Told again, the process ends at once.
pub(crate) async fn told_to_end() {
    told().await;
    tokio::spawn(async {
        told().await;
        eprintln!("told twice: ended at once");
        std::process::exit(130);
    });
}

async fn told() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    let _as_good_as_told = tokio::signal::ctrl_c().await;
}
