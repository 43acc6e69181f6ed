//! The JSON API, which `openapi.json` describes. Times are microseconds since 1970; tokens are integers.

use std::collections::BTreeMap;
use std::fmt;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Extension, Query, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::App;
use super::access::Caller;
use super::view::{AcknowledgedView, StorageFailureView, View};
use crate::alert::{Silence, WITHOUT_STORAGE};
use crate::cycle::Components;
use crate::history::{Backlog, EventFilter, HistoryError, Incident, Series};
use crate::sample::{BucketId, Sample};
use crate::severity::Severity;
use crate::source::{GatewayReport, Source};

/// The most rows of one response.
const ROWS_MAX: usize = 1_000;

/// The most incidents of one response: each comes with its timeline.
const INCIDENTS_MAX: usize = 100;

/// The most points of one series, and the default.
const POINTS_MAX: usize = 20_000;
const POINTS_DEFAULT: usize = 10_000;

/// The largest number in requests, and the latest time: the largest integer that every reader of JSON knows exactly.
pub(super) const WHOLE_MAX: u64 = (1 << 53) - 1;

const MINUTE_US: u64 = 60_000_000;
const DAY_US: u64 = 24 * 60 * MINUTE_US;

/// An error response, sent as problem+json.
pub(super) struct ApiError {
    status: StatusCode,
    detail: String,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, detail: &str) -> Self {
        Self {
            status,
            detail: detail.to_owned(),
        }
    }

    /// Too many queries are running.
    pub(super) fn busy() -> Self {
        let detail = "too many queries are running; try again in a moment, or ask for less";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    pub(super) fn bad(detail: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            detail: detail.into(),
        }
    }
}

impl ApiError {
    /// The database does not answer: one sentence for all pages.
    pub(super) fn unavailable(cause: &str) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            detail: format!("{cause}. {WITHOUT_STORAGE}"),
        }
    }
}

/// The header field of a response from memory, because the database does not answer.
const FROM_MEMORY: HeaderName = HeaderName::from_static("balde-from-memory");

/// What the database has, or else what memory has, which is marked as such.
fn stored_or<T: Serialize>(stored: Option<T>, from_memory: impl FnOnce() -> T) -> Response {
    if let Some(stored) = stored {
        return Json(stored).into_response();
    }
    let mark = [(FROM_MEMORY, HeaderValue::from_static("true"))];
    (mark, Json(from_memory())).into_response()
}

impl From<HistoryError> for ApiError {
    fn from(error: HistoryError) -> Self {
        match error {
            HistoryError::Unavailable { .. } => Self::unavailable(&error.to_string()),
            error => Self::new(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({
            "title": self.status.canonical_reason(),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let kind = [("content-type", "application/problem+json")];
        (self.status, kind, body.to_string()).into_response()
    }
}

pub(super) async fn not_found() -> ApiError {
    ApiError {
        status: StatusCode::NOT_FOUND,
        detail:
            "no such path; there are /, /metrics, /healthz, /readyz, /openapi.json and, under /api/v1/, states, \
                 history, alerts, incidents, refusals, status, me, stream, silences, acknowledgements and \
                 pagerduty"
                .to_owned(),
    }
}

#[derive(Serialize)]
pub(super) struct States {
    note: String,
    #[serde(flatten)]
    view: View,
}

/// The current state of every bucket.
pub(super) async fn states(State(app): State<App>) -> Json<States> {
    Json(States::of(&app).await)
}

impl States {
    async fn of(app: &App) -> Self {
        Self {
            note: app.0.note.clone(),
            view: View::clone(&*app.view().await),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    participant: String,
    policy: String,
    #[serde(default, deserialize_with = "whole")]
    from_us: Option<u64>,
    #[serde(default, deserialize_with = "whole")]
    until_us: Option<u64>,
    points: Option<usize>,
}

/// The document that describes this API.
pub(super) async fn openapi() -> Response {
    let kind = [("content-type", "application/json")];
    (kind, include_str!("openapi.json")).into_response()
}

pub(super) type QueryResult<T> = Result<Query<T>, QueryRejection>;

pub(super) fn checked<T>(query: QueryResult<T>) -> Result<T, ApiError> {
    match query {
        Ok(Query(query)) => Ok(query),
        Err(error) => Err(ApiError::bad(error.body_text())),
    }
}

/// The body of a request. One that is JSON, but not what was expected, is as wrong as one that is not.
pub(super) fn checked_body<T>(body: Result<Json<T>, JsonRejection>) -> Result<T, ApiError> {
    body.map(|Json(body)| body).map_err(|error| {
        let status = match error.status() {
            StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
            status => status,
        };
        ApiError::new(status, &error.body_text())
    })
}

/// Reads a whole number, in a query or in JSON, where `1.0` is one, too.
pub(super) fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    struct Whole;

    impl Visitor<'_> for Whole {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a whole number from 0 to {WHOLE_MAX}")
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
            let unexpected = Unexpected::Unsigned(number);
            let error = || E::invalid_value(unexpected, &self);
            (number <= WHOLE_MAX).then_some(number).ok_or_else(error)
        }

        fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
            match number.to_string().parse() {
                Ok(number) => self.visit_u64(number),
                Err(_) => Err(E::invalid_value(Unexpected::Float(number), &self)),
            }
        }
    }

    deserializer.deserialize_u64(Whole).map(Some)
}

/// One bucket over time, by default over the last day.
pub(super) async fn history(
    State(app): State<App>,
    query: QueryResult<HistoryQuery>,
) -> Result<Response, ApiError> {
    let query = checked(query)?;
    let components = app.0.cycle.components();
    let bucket = BucketId::new(query.participant, query.policy);
    let bucket = bucket.map_err(|error| ApiError::bad(error.to_string()))?;
    // The end is exclusive; one more includes a sample taken just now.
    let until_us = query.until_us;
    let until_us = until_us.unwrap_or_else(|| components.time.now_us().saturating_add(1));
    let from_us = query.from_us.unwrap_or(until_us.saturating_sub(DAY_US));
    if from_us > until_us {
        return Err(ApiError::bad("from_us is after until_us; exchange them"));
    }
    let points = query.points.unwrap_or(POINTS_DEFAULT);
    if !(1..=POINTS_MAX).contains(&points) {
        return Err(ApiError::bad(format!("points must be 1 to {POINTS_MAX}")));
    }
    let series = components
        .history
        .series(&bucket, from_us, until_us, points);
    let stored = app.stored(Box::pin(series)).await?;
    // Memory has what forecasts need, which is about an hour.
    Ok(stored_or(stored, || {
        let samples = app.0.cycle.samples_in_memory(&bucket);
        let is_asked = |sample: &&Sample| (from_us..until_us).contains(&sample.taken_us());
        Series::of_samples(samples.iter().filter(is_asked))
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AlertsQuery {
    participant: Option<String>,
    policy: Option<String>,
    severity: Option<String>,
    #[serde(default, deserialize_with = "whole")]
    from_us: Option<u64>,
    #[serde(default, deserialize_with = "whole")]
    before_us: Option<u64>,
    limit: Option<usize>,
}

/// The alert events, the newest first.
pub(super) async fn alerts(
    State(app): State<App>,
    query: QueryResult<AlertsQuery>,
) -> Result<Response, ApiError> {
    let query = checked(query)?;
    let severity = query.severity.map(|name| severity(&name)).transpose()?;
    let filter = EventFilter {
        participant: query.participant,
        policy: query.policy,
        severity,
        from_us: query.from_us,
        before_us: query.before_us,
    };
    let rows = query.limit.unwrap_or(100).clamp(1, ROWS_MAX);
    let components = app.0.cycle.components();
    let events = components.history.events(&filter, rows);
    let stored = app.stored(Box::pin(events)).await?;
    if let Some(stored) = &stored {
        app.0.recent.remember_events(stored);
    }
    Ok(stored_or(stored, || {
        let unstored = app.0.cycle.unstored_events();
        app.0.recent.events(unstored, &filter, rows)
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitQuery {
    limit: Option<usize>,
}

/// The incidents with their timelines, the newest first.
pub(super) async fn incidents(
    State(app): State<App>,
    query: QueryResult<LimitQuery>,
) -> Result<Response, ApiError> {
    let rows = checked(query)?.limit.unwrap_or(50).clamp(1, INCIDENTS_MAX);
    let components = app.0.cycle.components();
    let incidents = components.history.incidents(rows);
    let stored = app.stored(Box::pin(incidents)).await?;
    if let Some(stored) = &stored {
        app.0.recent.remember_incidents(stored);
    }
    let silences = app.0.cycle.silences().await;
    let views = |incidents: Vec<Incident>| -> Vec<IncidentView> {
        let incidents = incidents.into_iter();
        let views = incidents.map(|incident| IncidentView::new(incident, &silences));
        views.collect()
    };
    Ok(stored_or(stored.map(views), || {
        let unstored = app.0.cycle.unstored_events();
        views(app.0.recent.incidents(&unstored, rows))
    }))
}

/// An incident, and who works on it.
#[derive(Serialize)]
struct IncidentView {
    #[serde(flatten)]
    incident: Incident,
    /// The acknowledgement of an open incident.
    acknowledged: Option<AcknowledgedView>,
}

impl IncidentView {
    fn new(incident: Incident, silences: &[Silence]) -> Self {
        let is_open = incident.closed_us.is_none();
        let acknowledged = AcknowledgedView::of(silences, &incident.episode);
        Self {
            acknowledged: acknowledged.filter(|_| is_open),
            incident,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RefusalsQuery {
    participant: String,
    policy: String,
}

/// What a gateway has refused of a policy since this monitor began to ask it, as pairs of a time and
/// the refusals of the minutes before it. Empty for a participant that is read from DICT, which does
/// not report refusals.
pub(super) async fn refusals(
    State(app): State<App>,
    query: QueryResult<RefusalsQuery>,
) -> Result<Json<Vec<(u64, u64)>>, ApiError> {
    let query = checked(query)?;
    let source = app.0.cycle.components().sources.get(&query.participant);
    let gateway = source.and_then(Source::gateway);
    Ok(Json(gateway.map_or_else(Vec::new, |gateway| {
        gateway.refusals(&query.policy)
    })))
}

/// Who the caller is, and what it may do.
pub(super) async fn me(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Json<serde_json::Value> {
    Json(json!({
        "name": caller.name,
        "role": caller.role,
        "by": caller.by,
        "write_access": app.0.access.needs(),
    }))
}

/// The monitor's own status.
pub(super) async fn status(State(app): State<App>) -> Json<serde_json::Value> {
    Json(status_value(&app).await)
}

/// The same as text, for the live stream.
pub(super) async fn status_text(app: &App) -> String {
    status_value(app).await.to_string()
}

async fn status_value(app: &App) -> serde_json::Value {
    let components = app.0.cycle.components();
    let (_, backlog) = app.counts_and_backlog().await;
    let gateway = |(participant, source): (&String, &Source)| {
        let report = source.gateway()?.report();
        Some((participant.clone(), report))
    };
    let gateways = components.sources.iter().filter_map(gateway);
    let gateways: BTreeMap<String, Option<GatewayReport>> = gateways.collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now_us": components.time.now_us(),
        "is_leader": app.0.status.is_leader(),
        "write_access": app.0.access.needs(),
        "participants": app.0.status.participants(),
        "certificates": app.0.status.certificates(),
        "sinks": sinks(components, &backlog),
        "backlog": backlog,
        "gateways": gateways,
        "storage_failure": StorageFailureView::of(&app.0.cycle),
    })
}

/// Every configured sink, and those that only have a backlog.
fn sinks(components: &Components, backlog: &[Backlog]) -> Vec<serde_json::Value> {
    let mut sinks = Vec::new();
    for (name, counters) in components.dispatcher.counters() {
        let waits = backlog.iter().find(|backlog| backlog.sink == name);
        sinks.push(json!({
            "sink": name,
            "delivered": counters.delivered(),
            "failed": counters.failed(),
            "waiting": waits.map_or(0, |waits| waits.waiting) + counters.waiting_in_memory(),
            "oldest_us": waits.and_then(|waits| waits.oldest_us),
            "last_error": waits.and_then(|waits| waits.last_error.as_ref()),
        }));
    }
    for waits in backlog {
        if components
            .dispatcher
            .counters()
            .all(|(name, _)| name != waits.sink)
        {
            sinks.push(json!({
                "sink": waits.sink, "delivered": 0, "failed": 0, "waiting": waits.waiting,
                "oldest_us": waits.oldest_us,
                "last_error": "this sink is not configured; add a sink of that name",
            }));
        }
    }
    sinks
}

pub(super) fn severity(name: &str) -> Result<Severity, ApiError> {
    Severity::named(&name.to_uppercase())
        .ok_or_else(|| ApiError::bad("a severity is NORMAL, WARNING, CRITICAL or EXHAUSTED"))
}
