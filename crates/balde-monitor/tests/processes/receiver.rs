//! Whoever is told: takes bodies in, now and then fails, and keeps what arrived.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use tokio::net::TcpListener;

/// By sink: the keys of events in the order of their arrival, repetitions included.
type Arrived = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

#[derive(Clone)]
pub(crate) struct Receiver {
    arrived: Arrived,
    address: SocketAddr,
}

#[derive(Clone)]
struct Desk {
    arrived: Arrived,
    chance: Arc<Mutex<fastrand::Rng>>,
    fails_of_hundred: u32,
}

impl Receiver {
    /// Fails `fails_of_hundred` of a hundred requests: half of those before, half after it has kept
    /// what came, as a receiver does whose answer is lost.
    pub(crate) async fn start(seed: u64, fails_of_hundred: u32) -> Self {
        let arrived = Arrived::default();
        let desk = Desk {
            arrived: Arc::clone(&arrived),
            chance: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
            fails_of_hundred,
        };
        let app = Router::new().route("/{sink}", post(take)).with_state(desk);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { arrived, address }
    }

    pub(crate) fn url(&self, sink: &str) -> String {
        format!("http://{}/{sink}", self.address)
    }

    /// What arrived at a sink, repetitions included.
    pub(crate) fn keys(&self, sink: &str) -> Vec<String> {
        let arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.get(sink).cloned().unwrap_or_default()
    }
}

async fn take(
    State(desk): State<Desk>,
    Path(sink): Path<String>,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, &'static str) {
    serde_json::from_str::<serde_json::Value>(&body).expect("a body is JSON");
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    let (fails, keeps) = {
        let mut chance = desk.chance.lock().unwrap_or_else(PoisonError::into_inner);
        let fails = chance.u32(0..100) < desk.fails_of_hundred;
        (fails, !fails || chance.bool())
    };
    if keeps {
        let mut arrived = desk.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.entry(sink).or_default().push(key);
    }
    if fails {
        return (StatusCode::INTERNAL_SERVER_ERROR, "no");
    }
    (StatusCode::ACCEPTED, "ok")
}
