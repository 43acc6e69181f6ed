//! A monitor in this process, and how to end it.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use balde_monitor::{Config, Monitor, RunError, TimeSource};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::worker::SECRET;

/// Whatever else a busy machine does, a monitor ends within this.
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
            let _gone_is_an_end_too = ending.await;
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
        let (nobody, _) = oneshot::channel();
        drop(end);
        let told = Self { end: nobody, ended };
        told.ended().await
    }
}
