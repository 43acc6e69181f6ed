//! A monitor that runs in this process and can be shut down.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use balde_monitor::{Config, Monitor, RunError, TimeSource};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::worker::SECRET;

/// The longest time that a shutdown may take, even on a busy machine.
const END_WITHIN: Duration = Duration::from_secs(60);

pub(crate) struct Running {
    end: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), RunError>>,
}

impl Running {
    pub(crate) async fn start(config: &str, folder: &Path) -> Self {
        let secret = |_variable: &str| Some(SECRET.to_owned());
        let config = Config::parse(config, "test", folder, secret).unwrap();
        let monitor = Monitor::build(&config, TimeSource::system()).await.unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (end, ending) = oneshot::channel();
        let shutdown = async {
            let _sent_or_dropped = ending.await;
        };
        Self {
            end,
            ended: tokio::spawn(monitor.run(listener, "", shutdown)),
        }
    }

    /// Waits for it to end by itself.
    pub(crate) async fn ended(self) -> Result<(), RunError> {
        let ended = tokio::time::timeout(END_WITHIN, self.ended).await;
        ended.expect("it ends").expect("it does not panic")
    }

    /// Tells it to end, and waits until it has.
    pub(crate) async fn end(self) -> Result<(), RunError> {
        let Self { end, ended } = self;
        let (unused, _) = oneshot::channel();
        drop(end);
        let stopping = Self { end: unused, ended };
        stopping.ended().await
    }
}
