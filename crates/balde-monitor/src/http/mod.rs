//! The HTTP server: the web page, the JSON API, metrics and health checks.

mod access;
mod api;
mod dashboard;
mod metrics;
mod stream;
mod view;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use balde::telemetry::METRICS_CONTENT_TYPE;
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use crate::cycle::Cycle;
use crate::history::HistoryError;
use crate::status::Status;

pub use access::WriteAccess;
pub use view::{BucketView, BurnRateView, ForecastView, ParticipantView, View};

/// How long a view is cached for all clients.
const VIEW_AGE_MAX: Duration = Duration::from_millis(500);

/// The HTTP application of one monitor. Clones share all state.
#[derive(Clone, Debug)]
pub struct App(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    cycle: Cycle,
    status: Arc<Status>,
    write_access: WriteAccess,
    note: String,
    view: Mutex<Option<(Instant, Arc<View>)>>,
    feed: stream::Feed,
}

impl App {
    /// Creates the application. `write_access` decides who may create and end silences; `note` is
    /// shown on the page.
    pub fn new(
        cycle: Cycle,
        status: Arc<Status>,
        write_access: WriteAccess,
        note: impl Into<String>,
    ) -> Self {
        Self(Arc::new(Inner {
            cycle,
            status,
            write_access,
            note: note.into(),
            view: Mutex::default(),
            feed: stream::Feed::default(),
        }))
    }

    /// Builds the router with all routes.
    pub fn router(self) -> Router {
        Router::new()
            .route("/", get(dashboard::page))
            .route("/dashboard/{*path}", get(dashboard::file))
            .route("/metrics", get(metrics_page))
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/api/v1/states", get(api::states))
            .route("/api/v1/history", get(api::history))
            .route("/api/v1/alerts", get(api::alerts))
            .route("/api/v1/incidents", get(api::incidents))
            .route("/api/v1/status", get(api::status))
            .route("/api/v1/stream", get(stream::stream))
            .route("/api/v1/silences", get(api::silences).post(api::silence))
            .route("/api/v1/silences/{id}", delete(api::end_silence))
            .fallback(api::not_found)
            .with_state(self)
    }

    /// The current view, cached for [`VIEW_AGE_MAX`], so that many clients cost the database no more
    /// than one.
    async fn view(&self) -> Result<Arc<View>, HistoryError> {
        let mut cached = self.0.view.lock().await;
        if let Some((at, view)) = &*cached
            && at.elapsed() < VIEW_AGE_MAX
        {
            return Ok(Arc::clone(view));
        }
        let view = Arc::new(View::of(&self.0.cycle).await?);
        *cached = Some((Instant::now(), Arc::clone(&view)));
        Ok(view)
    }
}

/// Serves the application until `shutdown` completes.
pub async fn serve(
    listener: TcpListener,
    app: App,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    axum::serve(listener, app.router())
        .with_graceful_shutdown(shutdown)
        .await
}

/// The liveness check: the scheduling loop is running.
async fn healthz(State(app): State<App>) -> Response {
    if app.0.status.is_loop_running() {
        "ok\n".into_response()
    } else {
        let why = "the scheduling loop has been stalled for a minute\n";
        (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
    }
}

/// The readiness check: the database can be read.
async fn readyz(State(app): State<App>) -> Response {
    match app.0.cycle.components().history.ping().await {
        Ok(()) if app.0.status.is_leader() => "ok, leader\n".into_response(),
        Ok(()) => "ok, standby\n".into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}

async fn metrics_page(State(app): State<App>) -> Result<Response, api::ApiError> {
    let components = app.0.cycle.components();
    let page = metrics::MetricsPage {
        view: &*app.view().await?,
        counts: &components.history.alert_counts().await?,
        poll_statuses: &app.0.status.participants(),
        backlog: &components.history.backlog().await?,
        dispatcher: &components.dispatcher,
        is_leader: app.0.status.is_leader(),
    };
    let kind = HeaderValue::from_static(METRICS_CONTENT_TYPE);
    let kind = [(CONTENT_TYPE, kind)];
    Ok((kind, page.text()).into_response())
}
