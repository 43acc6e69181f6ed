//! What all commands that run until a signal have in common.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use tokio::net::TcpListener;

use crate::print::{flush_lines, print_error};

/// Runs `work` on a new runtime, and prints its error to standard error.
pub(crate) fn run(command: &str, work: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    run_on(command, None, work)
}

/// [`run`] with a number of threads; one per processor by default.
pub(crate) fn run_on(
    command: &str,
    workers: Option<usize>,
    work: impl Future<Output = anyhow::Result<()>>,
) -> ExitCode {
    raise_descriptors_limit();
    let mut builder = match workers {
        Some(1) => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if let Some(workers) = workers.filter(|workers| *workers > 1) {
        builder.worker_threads(workers);
    }
    let result = builder
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(work));
    flush_lines();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(format_args!("balde {command}: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Raises the soft limit on file descriptors to the hard one. The soft limit is low for the sake of
/// programs that use `select`.
fn raise_descriptors_limit() {
    #[cfg(target_os = "linux")]
    if let Some(limits) = balde::http::descriptor_limits()
        && limits.soft < limits.hard
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let hard = Some(limits.hard).filter(|hard| *hard != u64::MAX);
        let raised = Rlimit {
            current: hard,
            maximum: hard,
        };
        // Where a sandbox forbids it, the soft limit stays, and connections are limited to it.
        let _as_before = setrlimit(Resource::Nofile, raised);
    }
}

/// Binds a listener. The error names the option that sets another address.
pub(crate) async fn listen(address: SocketAddr, option: &str) -> anyhow::Result<TcpListener> {
    balde::http::listen(address).await.map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::AddrInUse => "another process listens there already",
            io::ErrorKind::PermissionDenied => "this user lacks the permission to listen there",
            io::ErrorKind::AddrNotAvailable => "this machine does not have that address",
            _ => return anyhow::anyhow!("cannot listen on {address}: {error}"),
        };
        anyhow::anyhow!("cannot listen on {address}: {advice}; set another address with {option}")
    })
}

/// Parses the address of an option; `localhost` is 127.0.0.1.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let address = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    let parsed = address.parse();
    parsed.map_err(|_| "expected an address and a port, such as 127.0.0.1:8085".to_owned())
}

/// SIGHUP, which makes a service read its file again. Signals count from the creation on.
pub(crate) struct Hangups {
    #[cfg(unix)]
    signals: Option<tokio::signal::unix::Signal>,
}

impl Hangups {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(unix)]
            signals: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok(),
        }
    }

    /// Waits for the next signal; for ever where there are none.
    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        if let Some(signals) = &mut self.signals
            && signals.recv().await.is_some()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

/// A signal that ends a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShutdownSignal {
    /// Ctrl-C: somebody waits.
    Interrupt,
    /// SIGTERM: a supervisor, such as systemd or Kubernetes, ends the service.
    Terminate,
}

/// Waits for Ctrl-C or SIGTERM, from the call on. A second signal ends the process at once, with exit
/// code 130.
pub(crate) fn shutdown_signal() -> impl Future<Output = ShutdownSignal> {
    let received = signal_received();
    async {
        let signal = received.await;
        tokio::spawn(async {
            signal_received().await;
            print_error("second signal received: exiting without a graceful shutdown");
            std::process::exit(130);
        });
        signal
    }
}

fn signal_received() -> impl Future<Output = ShutdownSignal> {
    #[cfg(unix)]
    let signals = {
        use tokio::signal::unix::{SignalKind, signal};
        (
            signal(SignalKind::interrupt()),
            signal(SignalKind::terminate()),
        )
    };
    async move {
        #[cfg(unix)]
        if let (Ok(mut interrupt), Ok(mut terminate)) = signals {
            return tokio::select! {
                _ = interrupt.recv() => ShutdownSignal::Interrupt,
                _ = terminate.recv() => ShutdownSignal::Terminate,
            };
        }
        // Where no handler can be installed, shutting down is the safe answer.
        let _error = tokio::signal::ctrl_c().await;
        ShutdownSignal::Interrupt
    }
}
