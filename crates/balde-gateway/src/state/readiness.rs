//! Whether a balancer should send requests: `GET /readyz`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::body::RequestBody;
use crate::limits::Limits;
use crate::upstream::Upstream;

/// The answer is computed at most this often, however many ask.
const AGE_MAX: Duration = Duration::from_secs(1);

/// The longest wait for Redis or an upstream.
const CHECK_MAX: Duration = Duration::from_secs(1);

/// Whether the gateway is ready for requests.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    is_draining: AtomicBool,
    last: Mutex<Option<(Instant, Checks)>>,
}

/// What was found. `None` where all is well.
#[derive(Clone, Debug, Default)]
struct Checks {
    /// What is wrong with Redis. Always `None` if the buckets are in memory.
    redis: Option<String>,
    /// The upstreams that cannot be reached.
    down: Vec<String>,
    upstreams: usize,
}

impl Readiness {
    /// From now on the gateway is not ready: it is about to end.
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Whether it is ready, and the document that says why not.
    pub(super) async fn report(
        &self,
        limits: Option<&Limits>,
        upstreams: &[Arc<Upstream<RequestBody>>],
    ) -> (bool, Value) {
        let checks = {
            let mut last = self.last.lock().await;
            match &*last {
                Some((at, checks)) if at.elapsed() < AGE_MAX => checks.clone(),
                _ => {
                    let checks = Checks::new(limits, upstreams).await;
                    *last = Some((Instant::now(), checks.clone()));
                    checks
                }
            }
        };
        let mut reasons = Vec::new();
        if self.is_draining() {
            reasons.push("the gateway is shutting down".to_owned());
        }
        if let Some(problem) = &checks.redis {
            reasons.push(format!("Redis is unavailable: {problem}"));
        }
        // With some upstreams up, the gateway still serves their routes.
        if !checks.down.is_empty() && checks.down.len() == checks.upstreams {
            reasons.push(format!("no upstream is up: {}", checks.down.join(", ")));
        }
        let is_ready = reasons.is_empty();
        let status = if is_ready { "ready" } else { "not ready" };
        let mut report = json!({ "status": status, "reasons": reasons });
        if !checks.down.is_empty() {
            report["upstreams_down"] = json!(checks.down);
        }
        (is_ready, report)
    }
}

impl Checks {
    async fn new(limits: Option<&Limits>, upstreams: &[Arc<Upstream<RequestBody>>]) -> Self {
        let redis = async {
            match timeout(CHECK_MAX, limits?.ping_redis()).await {
                Ok(answer) => answer.err(),
                Err(_) => Some("no answer within 1 s".to_owned()),
            }
        };
        let down = async {
            let mut checks = tokio::task::JoinSet::new();
            for upstream in upstreams {
                let upstream = Arc::clone(upstream);
                checks.spawn(async move {
                    let is_up = timeout(CHECK_MAX, upstream.is_reachable()).await;
                    (!is_up.unwrap_or(false)).then(|| upstream.config().name.clone())
                });
            }
            let mut down: Vec<String> = checks.join_all().await.into_iter().flatten().collect();
            down.sort_unstable();
            down
        };
        let (redis, down) = tokio::join!(redis, down);
        Self {
            redis,
            down,
            upstreams: upstreams.len(),
        }
    }
}
