//! A state endpoint with one bucket, whose level a test sets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::Router;
use axum::routing::get;
use serde_json::json;
use tokio::net::TcpListener;

pub(crate) const PARTICIPANT: &str = "12345678";
pub(crate) const POLICY: &str = "KEYS_CHECK";

pub(crate) struct Source {
    pub(crate) address: SocketAddr,
    level: Arc<AtomicI64>,
}

impl Source {
    pub(crate) async fn start(level: i64) -> Self {
        let level = Arc::new(AtomicI64::new(level));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shown = Arc::clone(&level);
        let respond = move || {
            let level = shown.load(Ordering::Relaxed);
            async move {
                let bucket = json!({"policy": POLICY, "level": level, "capacity": 70,
                    "refill_tokens": 70, "period_us": 60_000_000});
                json!({"category": "F", "policies": [bucket]}).to_string()
            }
        };
        let app = Router::new().route("/states", get(respond));
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, level }
    }

    pub(crate) fn set(&self, level: i64) {
        self.level.store(level, Ordering::Relaxed);
    }

    /// The section of a monitor's file that reads it.
    pub(crate) fn section(&self) -> String {
        let address = self.address;
        format!(
            "[[participant]]\nispb = \"{PARTICIPANT}\"\ngateway = \"http://{address}/states\"\n"
        )
    }
}
