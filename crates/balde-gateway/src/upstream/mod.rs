//! The servers that requests are forwarded to: connection pools and health.

mod body_slots;
mod connector;
mod failure_log;
mod fair_line;
mod health;
mod pool;
mod sending;

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;

pub(crate) use body_slots::{BodySlots, NotReady};
pub(crate) use connector::ConnectError;
pub(crate) use failure_log::{FailureCause, FailureLog};
pub(crate) use fair_line::ClientId;
pub(crate) use pool::TunnelPermit;
pub(crate) use sending::Sending;

use self::connector::Connector;
use self::health::{Health, Permit};
use self::pool::Pool;
use crate::config::UpstreamConfig;
use crate::held_responses::CutReason;
use balde_net::tls::TlsError;

/// An upstream with its pool of connections.
pub(crate) struct Upstream<B> {
    config: UpstreamConfig,
    pool: Arc<Pool<B>>,
    health: Arc<Health>,
    body_slots: BodySlots,
    failures: FailureLog,
}

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The request was not sent: the upstream has not seen any byte of it.
    NotSent(ConnectError),
    /// There was no response in time. The upstream may have processed the request.
    Timeout,
    /// The connection was lost, or the response is not HTTP. The upstream may have processed the
    /// request.
    Lost,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(error) => error.fmt(f),
            Self::Timeout => f.write_str("the upstream did not respond in time"),
            Self::Lost => f.write_str("the connection to the upstream was lost"),
        }
    }
}

impl<B> Upstream<B>
where
    B: Body<Data = Bytes> + From<Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Creates an upstream with at most `connections_max` connections.
    pub(crate) fn new(config: UpstreamConfig, connections_max: usize) -> Result<Self, TlsError> {
        let health = Arc::new(Health::new());
        let connector = Connector::new(&config, &health)?;
        let pool = Arc::new(Pool::new(&config, connections_max, connector));
        Ok(Self {
            body_slots: BodySlots::new(connections_max, config.connect_timeout),
            failures: FailureLog::new(&config.name, config.authority.as_str()),
            config,
            pool,
            health,
        })
    }

    pub(crate) fn config(&self) -> &UpstreamConfig {
        &self.config
    }

    pub(crate) fn body_slots(&self) -> &BodySlots {
        &self.body_slots
    }

    /// What is logged about requests without a response.
    pub(crate) fn failures(&self) -> &FailureLog {
        &self.failures
    }

    /// Whether it is not known to be down.
    pub(crate) fn is_up(&self) -> bool {
        self.health.is_up()
    }

    /// Whether a connection can be opened, and it was not found to be down a moment ago.
    pub(crate) async fn is_reachable(&self) -> bool {
        self.pool.is_reachable().await && !self.health.is_down_now()
    }

    /// How many responses were cut because their clients were slow.
    pub(crate) fn cuts(&self, reason: CutReason) -> u64 {
        self.pool.held_responses().cuts(reason)
    }

    /// Sends a request, which is taken, and waits for the head of its response. `sending` says how far the request came,
    /// also if this future is dropped.
    ///
    /// Only a request that was complete says anything about the upstream's health: without an answer to
    /// part of a request, it may be the client who is slow.
    pub(crate) async fn send(
        &self,
        request: &mut Option<Request<B>>,
        sending: &Sending,
    ) -> Result<Response<Incoming>, SendError> {
        let _probe = match self.health.permit() {
            Permit::Go => None,
            Permit::Probe => Some(Probe(&self.health)),
            Permit::Down => return Err(SendError::NotSent(ConnectError::Down)),
        };
        let sent = self.pool.send(request, sending).await;
        match &sent {
            Ok(_) => self.health.answered(),
            Err(SendError::Timeout) if sending.is_complete() => self.health.timed_out(),
            Err(_) => {}
        }
        sent
    }
}

/// The request that finds out whether an upstream is back. The next one may, when it has ended.
struct Probe<'h>(&'h Health);

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        self.0.probe_ended();
    }
}

impl<B> fmt::Debug for Upstream<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
