//! Reloads and the end of the gateway and of the service, which only differ in what they reload.

use std::future::Future;
use std::time::Duration;

use crate::output::Output;
use crate::print::print_error;
use crate::service::{Hangups, ShutdownSignal};
use crate::supervisor::Supervisor;

/// Reloads the file on every SIGHUP. `apply` reads and applies it, or says why it cannot; then nothing
/// changes.
pub(crate) async fn reload_on_signal(
    command: &'static str,
    mut hangups: Hangups,
    mut supervisor: Supervisor,
    output: Output,
    apply: impl Fn() -> Result<(), String>,
) {
    loop {
        hangups.next().await;
        Supervisor::reloading();
        let applied = apply();
        match &applied {
            Ok(()) => output.tell("reloaded", "the configuration was reloaded"),
            Err(error) => {
                print_error(format_args!(
                    "balde {command}: not reloaded, the old configuration stays\n{error}"
                ));
                tracing::error!(
                    event_type = "reload_refused",
                    "the old configuration stays: {error}"
                );
            }
        }
        supervisor.reloaded(applied.as_ref().copied().map_err(String::as_str));
    }
}

/// Waits for the signal that ends the process. After SIGTERM it is served on for `delay`, no longer ready,
/// until balancers have noticed; `stop_being_ready` begins that.
pub(crate) async fn until_shutdown(
    signal: impl Future<Output = ShutdownSignal>,
    delay: Duration,
    stop_being_ready: impl Future<Output = ()>,
    output: Output,
) {
    let signal = signal.await;
    Supervisor::stopping();
    if signal == ShutdownSignal::Terminate && !delay.is_zero() {
        stop_being_ready.await;
        output.tell(
            "draining",
            format_args!("not ready: shutting down in {delay:?}"),
        );
        tokio::time::sleep(delay).await;
    }
}
