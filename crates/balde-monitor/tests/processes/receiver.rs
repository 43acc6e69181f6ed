//! A receiver of alerts that records their keys and fails some requests.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use tokio::net::TcpListener;

/// The keys of the events by sink, in the order of arrival, repetitions included.
type Arrived = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

#[derive(Clone)]
pub(crate) struct Receiver {
    arrived: Arrived,
    address: SocketAddr,
}

#[derive(Clone)]
struct Handler {
    arrived: Arrived,
    chance: Arc<Mutex<fastrand::Rng>>,
    failure_percent: u32,
}

impl Receiver {
    /// Fails `failure_percent` of the requests: half of them before and half after recording the key,
    /// like a receiver whose response is lost.
    pub(crate) async fn start(seed: u64, failure_percent: u32) -> Self {
        let arrived = Arrived::default();
        let handler = Handler {
            arrived: Arc::clone(&arrived),
            chance: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
            failure_percent,
        };
        let app = Router::new()
            .route("/{sink}", post(take))
            .with_state(handler);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { arrived, address }
    }

    pub(crate) fn url(&self, sink: &str) -> String {
        format!("http://{}/{sink}", self.address)
    }

    /// The keys that arrived at a sink, repetitions included.
    pub(crate) fn keys(&self, sink: &str) -> Vec<String> {
        let arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.get(sink).cloned().unwrap_or_default()
    }
}

async fn take(
    State(handler): State<Handler>,
    Path(sink): Path<String>,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, &'static str) {
    serde_json::from_str::<serde_json::Value>(&body).expect("a body is JSON");
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    let (fails, keeps) = {
        let mut chance = handler
            .chance
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let fails = chance.u32(0..100) < handler.failure_percent;
        (fails, !fails || chance.bool())
    };
    if keeps {
        let mut arrived = handler
            .arrived
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        arrived.entry(sink).or_default().push(key);
    }
    if fails {
        return (StatusCode::INTERNAL_SERVER_ERROR, "no");
    }
    (StatusCode::ACCEPTED, "ok")
}
