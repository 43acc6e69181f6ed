//! The HTTP server: the web page, the JSON API, metrics and health checks.

mod access;
mod api;
mod authenticate;
mod changes;
mod dashboard;
mod metrics;
mod origin;
mod pager_duty;
mod recent;
mod server;
mod stream;
mod view;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use balde::telemetry::METRICS_CONTENT_TYPE;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};

use crate::alert::WITHOUT_STORAGE;
use crate::cycle::Cycle;
use crate::history::{AlertCount, Backlog, HistoryError};
use crate::sink::{Secret, format_time};
use crate::status::Status;

pub use access::{Access, AuthenticatingProxy, Role};
pub use view::{
    AcknowledgedView, BucketView, BurnRateView, ForecastView, OpenAlertView, ParticipantView,
    RECENT_MAX, SilencedView, StorageFailureView, View,
};

/// How long a view is cached for all clients.
const VIEW_AGE_MAX: Duration = Duration::from_millis(500);

/// The most queries of clients that run at a time, of the four that the database serves.
const QUERIES_MAX: usize = 2;

/// The longest that such a query waits for its turn.
const QUERY_WAIT_MAX: Duration = Duration::from_secs(5);

/// The most bytes of a request body.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// The longest that the readiness check waits for the database.
const PING_MAX: Duration = Duration::from_secs(2);

/// The HTTP application of one monitor. Clones share all state.
#[derive(Clone, Debug)]
pub struct App(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    cycle: Cycle,
    status: Arc<Status>,
    access: Access,
    /// The secrets of `PagerDuty`'s webhooks.
    pager_duty: pager_duty::Webhooks,
    note: String,
    /// The names, besides addresses and `localhost`, under which the pages are served.
    hosts: Vec<String>,
    /// The address under which people open the pages.
    public_url: Option<String>,
    tls: Option<Arc<rustls::ServerConfig>>,
    /// Permits for queries whose cost depends on the client.
    queries: Semaphore,
    /// The view that was read last, and when.
    view: parking_lot::Mutex<Option<(Instant, Arc<View>)>>,
    /// Locked while a view is read.
    reading: Arc<Mutex<()>>,
    feed: stream::Feed,
    /// Permits for event streams, which last as long as their clients like.
    event_streams: Arc<Semaphore>,
    /// The counts and backlogs that were last read, shown while the database cannot be read.
    last_read: parking_lot::Mutex<(Vec<AlertCount>, Vec<Backlog>)>,
    /// The newest alerts and incidents, for the same.
    recent: recent::Recent,
}

impl App {
    /// Creates the application. `access` decides who may read and change what; `note` is shown on the
    /// page.
    pub fn new(cycle: Cycle, status: Arc<Status>, access: Access, note: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            cycle,
            status,
            access,
            pager_duty: pager_duty::Webhooks::default(),
            note: note.into(),
            hosts: Vec::new(),
            public_url: None,
            tls: None,
            queries: Semaphore::new(QUERIES_MAX),
            view: parking_lot::Mutex::default(),
            reading: Arc::default(),
            feed: stream::Feed::default(),
            event_streams: Arc::new(Semaphore::new(server::event_streams_max())),
            last_read: parking_lot::Mutex::default(),
            recent: recent::Recent::default(),
        }))
    }

    /// Serves the pages under these names, too. Addresses and `localhost` are always accepted.
    #[must_use]
    pub fn with_hosts(mut self, hosts: Vec<String>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.hosts = hosts;
        }
        self
    }

    /// Accepts webhooks of `PagerDuty` that are signed with one of these secrets.
    #[must_use]
    pub fn with_pager_duty(mut self, secrets: Vec<Secret>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.pager_duty = pager_duty::Webhooks::new(secrets);
        }
        self
    }

    /// Takes writes of pages under this address for its own, besides those under the name that the
    /// request has: a proxy may replace the name.
    #[must_use]
    pub fn with_public_url(mut self, url: Option<String>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.public_url = url;
        }
        self
    }

    /// Serves the pages with TLS only.
    #[must_use]
    pub fn with_tls(mut self, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.tls = tls;
        }
        self
    }

    fn public_url(&self) -> Option<&str> {
        self.0.public_url.as_deref()
    }

    fn hosts(&self) -> &[String] {
        &self.0.hosts
    }

    /// Waits for a permit to run a query whose cost depends on the client. Few run at a time, so
    /// that the states and the health checks never wait for them, and few wait.
    async fn query(&self) -> Result<SemaphorePermit<'_>, api::ApiError> {
        let permit = tokio::time::timeout(QUERY_WAIT_MAX, self.0.queries.acquire()).await;
        match permit {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(api::ApiError::busy()),
        }
    }

    /// Builds the router with all routes.
    pub fn router(self) -> Router {
        Router::new()
            .route("/", get(dashboard::page))
            .route("/dashboard/{*path}", get(dashboard::file))
            .route("/openapi.json", get(api::openapi))
            .route("/metrics", get(metrics_page))
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/api/v1/states", get(api::states))
            .route("/api/v1/history", get(api::history))
            .route("/api/v1/alerts", get(api::alerts))
            .route("/api/v1/incidents", get(api::incidents))
            .route("/api/v1/refusals", get(api::refusals))
            .route("/api/v1/status", get(api::status))
            .route("/api/v1/stream", get(stream::stream))
            .route("/api/v1/me", get(api::me))
            .route(
                "/api/v1/acknowledgements",
                post(changes::acknowledge).delete(changes::unacknowledge),
            )
            .route(
                "/api/v1/silences",
                get(changes::silences).post(changes::silence),
            )
            .route("/api/v1/silences/{id}", delete(changes::end_silence))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .route(
                pager_duty::PATH,
                post(pager_duty::receive).layer(DefaultBodyLimit::max(pager_duty::BODY_BYTES_MAX)),
            )
            .fallback(api::not_found)
            .layer(middleware::from_fn_with_state(
                self.clone(),
                authenticate::check,
            ))
            .layer(middleware::from_fn_with_state(self.clone(), origin::check))
            .layer(middleware::map_response(dashboard::secure))
            .with_state(self)
    }

    /// The current view, cached for [`VIEW_AGE_MAX`], so that many clients cost the database no more
    /// than one. While a new one takes long, the one before is shown.
    async fn view(&self) -> Arc<View> {
        let cached = || self.0.view.lock().clone();
        let last = match cached() {
            Some((at, view)) if at.elapsed() < VIEW_AGE_MAX => return view,
            Some((_, view)) => view,
            None => {
                let _reading = self.0.reading.lock().await;
                return match cached() {
                    Some((_, view)) => view,
                    None => self.read_view().await,
                };
            }
        };
        let health = self.0.cycle.components().history.health();
        let Ok(reading) = Arc::clone(&self.0.reading).try_lock_owned() else {
            // Another request reads it.
            let _read_or_late =
                tokio::time::timeout(health.patience(), self.0.reading.lock()).await;
            return cached().map_or(last, |(_, view)| view);
        };
        let app = self.clone();
        let read = tokio::spawn(async move {
            let _reading = reading;
            app.read_view().await
        });
        if let Ok(Ok(view)) = tokio::time::timeout(health.patience(), read).await {
            return view;
        }
        health.suspect();
        last
    }

    async fn read_view(&self) -> Arc<View> {
        let view = Arc::new(View::of(&self.0.cycle).await);
        *self.0.view.lock() = Some((Instant::now(), Arc::clone(&view)));
        view
    }

    /// Reads from the database; `None` if it does not answer. A query may take long; a database that
    /// does not answer at all is noticed within a tenth of a second.
    async fn stored<T>(
        &self,
        reading: impl Future<Output = Result<T, HistoryError>>,
    ) -> Result<Option<T>, api::ApiError> {
        let history = &self.0.cycle.components().history;
        let reading = async {
            let _permit = self.query().await?;
            match reading.await {
                Ok(read) => Ok(Some(read)),
                Err(HistoryError::Unavailable { .. }) => {
                    history.health().suspect();
                    Ok(None)
                }
                Err(error) => Err(api::ApiError::from(error)),
            }
        };
        tokio::select! {
            biased;
            read = reading => read,
            () = history.health().unresponsive(|| history.ping()) => Ok(None),
        }
    }

    /// Makes the next reader, and the live streams, see what an operator changed.
    async fn forget_view(&self) {
        let reading = self.0.reading.lock().await;
        *self.0.view.lock() = None;
        drop(reading);
        self.0.feed.recompute_all();
        self.0.status.record_change();
    }

    /// The policies that the newest polls list.
    async fn policies(&self) -> BTreeSet<String> {
        let view = self.view().await;
        let participants = view.participants.iter();
        let buckets = participants.flat_map(|participant| &participant.buckets);
        buckets.map(|bucket| bucket.policy.clone()).collect()
    }

    /// The counts and backlogs, as last read if the database is unavailable.
    async fn counts_and_backlog(&self) -> (Vec<AlertCount>, Vec<Backlog>) {
        let history = &self.0.cycle.components().history;
        if history.health().failure().is_none() {
            let read = async {
                Ok::<_, HistoryError>((history.alert_counts().await?, history.backlog().await?))
            };
            if let Ok(Ok(read)) = tokio::time::timeout(history.health().patience(), read).await {
                read.clone_into(&mut self.0.last_read.lock());
                return read;
            }
            history.health().suspect();
        }
        self.0.last_read.lock().clone()
    }
}

/// Serves the application until `shutdown` completes.
pub async fn serve(
    listener: TcpListener,
    app: App,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let tls = app.0.tls.clone();
    let recent = tokio::spawn(recent::keep_fresh(app.clone()));
    let served = server::serve(listener, app.router(), tls, shutdown).await;
    recent.abort();
    served
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

/// The readiness check: the database accepts writes.
async fn readyz(State(app): State<App>) -> Response {
    let history = &app.0.cycle.components().history;
    if let Some(failure) = history.health().failure() {
        let why = format!(
            "the database accepts no writes since {}: {}. {WITHOUT_STORAGE}\n",
            format_time(failure.since_us),
            failure.cause
        );
        return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    }
    match tokio::time::timeout(PING_MAX, history.ping()).await {
        Ok(Ok(())) if app.0.status.is_leader() => "ok, leader\n".into_response(),
        Ok(Ok(())) => "ok, standby\n".into_response(),
        answer => {
            history.health().suspect();
            let why = answer.map_or_else(
                |_| "the database does not respond".to_owned(),
                |result| {
                    result
                        .err()
                        .map(|error| error.to_string())
                        .unwrap_or_default()
                },
            );
            (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{why}. {WITHOUT_STORAGE}\n"),
            )
                .into_response()
        }
    }
}

async fn metrics_page(State(app): State<App>) -> Response {
    let components = app.0.cycle.components();
    let ((counts, backlog), view) = tokio::join!(app.counts_and_backlog(), app.view());
    let page = metrics::MetricsPage {
        view: &view,
        counts: &counts,
        poll_statuses: &app.0.status.participants(),
        certificates: &app.0.status.certificates(),
        coverage: &app.0.status.coverage(),
        backlog: &backlog,
        dispatcher: &components.dispatcher,
        is_leader: app.0.status.is_leader(),
        unstored: app.0.cycle.unstored(),
    };
    let kind = HeaderValue::from_static(METRICS_CONTENT_TYPE);
    let kind = [(CONTENT_TYPE, kind)];
    (kind, page.text()).into_response()
}
