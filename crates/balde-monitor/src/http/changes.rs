//! What operators change through the API: acknowledgements and silences.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};

use super::App;
use super::access::{Caller, Role};
use super::api::{ApiError, QueryResult, WHOLE_MAX, checked, checked_body, severity, whole};
use crate::alert::{self, Event, OpenAlert, Silence, Via};
use crate::cycle::Stored;
use crate::history::SilenceChange;

const MINUTE_US: u64 = 60_000_000;

/// The longest silence that the role `acknowledge` may create.
const SILENCE_BY_ACKNOWLEDGERS_MAX_US: u64 = 24 * 60 * MINUTE_US;

/// The name of somebody whose name is not known.
const SOMEBODY: &str = "an operator";

/// The longest name that callers may give themselves, in characters.
const NAME_CHARS_MAX: usize = 100;

/// A silence or an acknowledgement, and whether the database has it already.
#[derive(Serialize)]
struct Changed<'a> {
    #[serde(flatten)]
    silence: &'a Silence,
    is_stored: bool,
}

impl Changed<'_> {
    fn response(silence: &Silence, stored: Stored) -> Response {
        let is_stored = stored == Stored::InDatabase;
        let body = Json(Changed { silence, is_stored });
        (StatusCode::CREATED, body).into_response()
    }
}

/// The silences that are active or in the future.
pub(super) async fn silences(State(app): State<App>) -> Json<Vec<Silence>> {
    Json(app.0.cycle.silences().await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSilence {
    id: Option<String>,
    participant: Option<String>,
    policy: Option<String>,
    /// The worst severity that it covers.
    up_to: String,
    #[serde(default, deserialize_with = "whole")]
    from_us: Option<u64>,
    #[serde(default, deserialize_with = "whole")]
    until_us: Option<u64>,
    #[serde(default, deserialize_with = "whole")]
    minutes: Option<u64>,
    /// Who silences.
    by: Option<String>,
}

type JsonResult<T> = Result<Json<T>, JsonRejection>;

/// Creates a silence.
pub(super) async fn silence(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: JsonResult<NewSilence>,
) -> Result<Response, ApiError> {
    require(&caller, Role::Acknowledge)?;
    let new = checked_body(body)?;
    let by = name_of(&caller, new.by.as_deref())?;
    let components = app.0.cycle.components();
    let now_us = components.time.now_us();
    let from_us = new.from_us.unwrap_or(now_us);
    let until_us = match (new.until_us, new.minutes) {
        (Some(us), None) => us,
        (None, Some(minutes)) => from_us.saturating_add(minutes.saturating_mul(MINUTE_US)),
        _ => return Err(ApiError::bad("set either until_us or minutes")),
    };
    if until_us > WHOLE_MAX {
        return Err(ApiError::bad(format!("a time is at most {WHOLE_MAX} µs")));
    }
    if until_us <= now_us {
        let detail =
            "the end of the silence is in the past; set until_us or minutes to a later time";
        return Err(ApiError::new(StatusCode::CONFLICT, detail));
    }
    let is_narrow = new.participant.is_some()
        && new.policy.is_some()
        && until_us.saturating_sub(now_us) <= SILENCE_BY_ACKNOWLEDGERS_MAX_US;
    if !is_narrow {
        require(&caller, Role::Admin)?;
    }
    let id = match new.id {
        Some(id) if is_id(&id) => id,
        Some(_) => return Err(ApiError::bad("an id is 1 to 64 letters, digits, - or _")),
        None => format!("{:016x}", fastrand::u64(..)),
    };
    let silence = Silence::new(&id, severity(&new.up_to)?, from_us, until_us);
    let silence = silence.map_err(|error| ApiError::bad(error.to_string()))?;
    let mut silence = silence.created_by(&by);
    if let Some(participant) = new.participant {
        if !components.sources.contains_key(&participant) {
            let known = components.sources.keys().map(String::as_str);
            return Err(unknown("participant", &participant, known));
        }
        silence = silence.of_participant(participant);
    }
    if let Some(policy) = new.policy {
        let known = app.policies().await;
        if !known.is_empty() && !known.contains(&policy) {
            let known = known.iter().map(String::as_str);
            return Err(unknown("policy", &policy, known));
        }
        silence = silence.of_policy(policy);
    }
    let event = alert::silenced(&silence, &by, now_us);
    let change = SilenceChange::Add(silence.clone());
    let stored = app.change(change, event).await?;
    Ok(Changed::response(&silence, stored))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewAcknowledgement {
    /// The episode of the open alert, as in the states.
    episode: String,
    /// Who acknowledges it.
    by: Option<String>,
}

/// Acknowledges an open alert.
pub(super) async fn acknowledge(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: JsonResult<NewAcknowledgement>,
) -> Result<Response, ApiError> {
    require(&caller, Role::Acknowledge)?;
    let new = checked_body(body)?;
    let by = name_of(&caller, new.by.as_deref())?;
    let alert = app.open_alert(&new.episode).await?;
    let (silence, stored) = app.acknowledge(&alert, &by, None).await?;
    Ok(Changed::response(&silence, stored))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UndoQuery {
    episode: String,
    by: Option<String>,
}

/// Takes an acknowledgement back: reminders are sent again.
pub(super) async fn unacknowledge(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    query: QueryResult<UndoQuery>,
) -> Result<StatusCode, ApiError> {
    require(&caller, Role::Acknowledge)?;
    let query = checked(query)?;
    let by = name_of(&caller, query.by.as_deref())?;
    let alert = app.open_alert(&query.episode).await?;
    if app.unacknowledge(&alert, &by, None).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    let detail = "nobody has acknowledged this alert";
    Err(ApiError::new(StatusCode::NOT_FOUND, detail))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndQuery {
    by: Option<String>,
}

/// Ends a silence.
pub(super) async fn end_silence(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<String>, PathRejection>,
    query: QueryResult<EndQuery>,
) -> Result<StatusCode, ApiError> {
    require(&caller, Role::Acknowledge)?;
    let Path(id) = id.map_err(|error| ApiError::bad(error.body_text()))?;
    let query = checked(query)?;
    let by = name_of(&caller, query.by.as_deref())?;
    let now_us = app.0.cycle.components().time.now_us();
    let silences = app.0.cycle.silences().await;
    let Some(silence) = silences.iter().find(|silence| silence.id() == id) else {
        let detail = "there is no active silence with this id";
        return Err(ApiError::new(StatusCode::NOT_FOUND, detail));
    };
    if silence.participant().is_none() || silence.policy().is_none() {
        require(&caller, Role::Admin)?;
    }
    let event = alert::silence_ended(silence, &by, now_us);
    let change = SilenceChange::End { id, at_us: now_us };
    app.change(change, event).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl App {
    /// The alert whose episode is open.
    pub(super) async fn open_alert(&self, episode: &str) -> Result<OpenAlert, ApiError> {
        let found = self.0.cycle.find_open_alert(|open| open == episode).await?;
        found.ok_or_else(|| {
            let detail = "no open alert has this episode; it may be over";
            ApiError::new(StatusCode::NOT_FOUND, detail)
        })
    }

    /// Acknowledges an alert. One that is acknowledged already stays so, by whoever was last.
    pub(super) async fn acknowledge(
        &self,
        alert: &OpenAlert,
        by: &str,
        via: Option<Via>,
    ) -> Result<(Silence, Stored), ApiError> {
        let now_us = self.0.cycle.components().time.now_us();
        let silence = Silence::acknowledgement(alert, by, now_us);
        let event = alert::acknowledged(alert, by, via, now_us);
        let change = SilenceChange::Add(silence.clone());
        let stored = self.change(change, event).await?;
        Ok((silence, stored))
    }

    /// Takes an acknowledgement back. Returns false if there is none.
    pub(super) async fn unacknowledge(
        &self,
        alert: &OpenAlert,
        by: &str,
        via: Option<Via>,
    ) -> Result<bool, ApiError> {
        let now_us = self.0.cycle.components().time.now_us();
        let silences = self.0.cycle.silences().await;
        let is_of_alert =
            |silence: &&Silence| silence.acknowledged_episode() == Some(&alert.episode);
        let Some(silence) = silences.iter().find(is_of_alert) else {
            return Ok(false);
        };
        let event = alert::unacknowledged(alert, by, via, now_us);
        let change = SilenceChange::End {
            id: silence.id().to_owned(),
            at_us: now_us,
        };
        self.change(change, event).await?;
        Ok(true)
    }

    async fn change(&self, change: SilenceChange, event: Event) -> Result<Stored, ApiError> {
        let stored = self.0.cycle.change(change, event.clone()).await?;
        if stored == Stored::InDatabase {
            self.0.recent.remember(&event);
        }
        self.forget_view().await;
        Ok(stored)
    }
}

/// The name under which a change is recorded: the authenticated one, else the one that was sent.
fn name_of(caller: &Caller, sent: Option<&str>) -> Result<String, ApiError> {
    if let Some(name) = &caller.name {
        return Ok(name.clone());
    }
    let by = sent.unwrap_or(SOMEBODY);
    let is_long = by.chars().nth(NAME_CHARS_MAX).is_some();
    if by.trim().is_empty() || is_long || by.chars().any(char::is_control) {
        return Err(ApiError::bad(format!(
            "`by` is 1 to {NAME_CHARS_MAX} characters without control characters"
        )));
    }
    Ok(by.trim().to_owned())
}

/// Fails if the caller has a lower role.
fn require(caller: &Caller, role: Role) -> Result<(), ApiError> {
    if caller.role.is_some_and(|own| own >= role) {
        return Ok(());
    }
    let own = caller.role.map_or("none", Role::name);
    let detail = format!(
        "this needs the role `{}`, and the caller has `{own}`; send a token of [http] as \
         Authorization: Bearer …, or sign in at the proxy that [http.sso] names",
        role.name()
    );
    Err(ApiError::new(StatusCode::FORBIDDEN, &detail))
}

/// The error of a name that nothing has, with the name that was probably meant.
fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> ApiError {
    let known: Vec<&str> = known.collect();
    let hint = balde_config::nearest(name, &known);
    let hint = hint.map_or(String::new(), |hint| format!("; did you mean {hint}?"));
    let detail = format!("no {what} {name} is monitored{hint}");
    ApiError::new(StatusCode::NOT_FOUND, &detail)
}

fn is_id(id: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=64).contains(&id.len()) && id.bytes().all(is_allowed)
}
