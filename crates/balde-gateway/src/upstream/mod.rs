//! The servers that requests are forwarded to: connection pools and health.

mod body_slots;
mod connector;
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
pub(crate) use pool::TunnelPermit;
pub(crate) use sending::Sending;

use self::connector::Connector;
use self::health::{Health, Permit};
use self::pool::Pool;
use crate::config::UpstreamConfig;
use crate::tls::TlsError;

/// An upstream with its pool of connections.
pub(crate) struct Upstream<B> {
    config: UpstreamConfig,
    pool: Arc<Pool<B>>,
    health: Arc<Health>,
    body_slots: BodySlots,
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
    pub(crate) fn new(config: UpstreamConfig) -> Result<Self, TlsError> {
        let health = Arc::new(Health::new());
        let connector = Connector::new(&config, &health)?;
        let pool = Arc::new(Pool::new(&config, connector));
        Ok(Self {
            body_slots: BodySlots::new(config.connections_max, config.connect_timeout),
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

    /// Whether it is not known to be down.
    pub(crate) fn is_up(&self) -> bool {
        self.health.is_up()
    }

    /// Sends a request and waits for the head of its response. `sending` says how far the request came,
    /// also if this future is dropped.
    pub(crate) async fn send(
        &self,
        request: Request<B>,
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
            Err(SendError::Timeout) => self.health.timed_out(),
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
