//! JSON over HTTP. `openapi.json` describes it, and is served at `/openapi.json`.
//!
//! | File | Holds |
//! |--|--|
//! | `routes.rs` | which request runs which command |
//! | `bodies.rs` | the bodies of requests |
//! | `reply.rs` | the bodies of answers, and problem documents |

mod bodies;
mod reply;
mod routes;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;

use crate::access::SharedAccess;
use crate::config::HttpConfig;
use crate::decisions::Decisions;
use crate::hyper_server;
use crate::input_budget::InputBudget;
use crate::listener::{Connection, Protocol};
use crate::metrics::ProtocolMetrics;

/// The `OpenAPI` document of this interface, as JSON.
pub const OPENAPI: &str = include_str!("openapi.json");

pub(crate) use reply::limit_state;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct HttpServer {
    decisions: Decisions,
    access: SharedAccess,
    metrics: Arc<ProtocolMetrics>,
    body_bytes_max: usize,
    input: InputBudget,
    idle_timeout: Duration,
}

impl HttpServer {
    pub(crate) fn new(
        config: &HttpConfig,
        decisions: Decisions,
        access: SharedAccess,
        metrics: Arc<ProtocolMetrics>,
    ) -> Self {
        Self {
            decisions,
            access,
            metrics,
            body_bytes_max: config.body_bytes_max,
            input: InputBudget::default(),
            idle_timeout: config.listener.idle_timeout,
        }
    }
}

impl Protocol for HttpServer {
    async fn serve(self: Arc<Self>, connection: Connection) {
        let Connection {
            stream, shutdown, ..
        } = connection;
        let service = service_fn(|request: Request<Incoming>| {
            let server = Arc::clone(&self);
            async move { Ok::<_, Infallible>(server.respond(request).await) }
        });
        hyper_server::serve(stream, service, self.idle_timeout, shutdown).await;
    }

    fn too_many(&self) -> &'static [u8] {
        hyper_server::TOO_MANY
    }

    fn alpn(&self) -> &'static [&'static [u8]] {
        &[b"h2", b"http/1.1"]
    }
}
