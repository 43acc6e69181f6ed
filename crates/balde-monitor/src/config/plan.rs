//! Where to listen, what to keep, when to ask.

use std::fmt;
use std::net::SocketAddr;

use balde::options::{Faults, Section};
use balde_core::Limit;

use super::Reader;
use crate::history::Retention;
use crate::http::WriteAccess;
use crate::schedule::{Cron, PeakDetection, PollBudget, PollPlan, PollSchedule, TemporalSettings};

const LISTEN_DEFAULT: &str = "127.0.0.1:9180";
const HISTORY_DEFAULT: &str = "monitor.db";

/// Where to listen, and who may change something.
#[derive(Clone)]
pub struct HttpConfig {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The token that making and ending silences needs.
    pub token: Option<String>,
}

impl HttpConfig {
    /// Without a token, only a monitor that listens on this machine alone lets anybody write.
    pub fn write_access(&self) -> WriteAccess {
        match &self.token {
            Some(token) => WriteAccess::Token(token.clone()),
            None if self.listen.ip().is_loopback() => WriteAccess::Anyone,
            None => WriteAccess::Denied,
        }
    }
}

impl fmt::Debug for HttpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConfig")
            .field("listen", &self.listen)
            .finish_non_exhaustive()
    }
}

/// Who runs the cycles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleConfig {
    /// A loop in this process.
    Embedded,
    /// Workflows of a Temporal server.
    Temporal(TemporalSettings),
}

pub(super) fn http(
    section: Option<Section<'_>>,
    reader: &Reader<'_>,
    faults: &mut Faults<'_>,
) -> HttpConfig {
    let mut listen = LISTEN_DEFAULT.parse().expect("the default is an address");
    let mut token = None;
    if let Some(mut section) = section {
        if let Some(text) = section.text("listen", faults) {
            match text.value.parse() {
                Ok(address) => listen = address,
                Err(_) => faults.at(
                    Some(text.span),
                    "`listen` must be an address and a port, as 127.0.0.1:9180",
                ),
            }
        }
        token = reader.secret(&mut section, "token_env", faults);
        section.finish(faults);
    }
    HttpConfig { listen, token }
}

pub(super) fn history(
    section: Option<Section<'_>>,
    reader: &Reader<'_>,
    faults: &mut Faults<'_>,
) -> (String, Retention) {
    let mut retention = Retention::default();
    let mut address = None;
    if let Some(mut section) = section {
        address = reader.text_or_secret(&mut section, ("address", "address_env"), faults);
        if let Some(months) = section.number("retention_months", (1, 1_200), faults) {
            retention.months = u32::try_from(months.value).unwrap_or(u32::MAX);
        }
        if let Some(days) = section.number("thin_after_days", (0, 36_500), faults) {
            retention.thin_after_days = u32::try_from(days.value).unwrap_or(u32::MAX);
        }
        section.finish(faults);
    }
    let address = address.unwrap_or_else(|| HISTORY_DEFAULT.to_owned());
    if address.contains("://") {
        return (address, retention);
    }
    let file = address.strip_prefix("sqlite:").unwrap_or(&address);
    (reader.path(file).display().to_string(), retention)
}

pub(super) fn schedule(
    root: &mut Section<'_>,
    retention: Retention,
    faults: &mut Faults<'_>,
) -> (ScheduleConfig, PollPlan) {
    let mut plan = PollPlan {
        retention,
        ..PollPlan::default()
    };
    let mut kind = ScheduleConfig::Embedded;
    let Some(mut section) = root.table("schedule", faults) else {
        return (kind, plan);
    };
    let mut line = "*/5 * * * *".to_owned();
    let mut cron: Cron = line.parse().expect("the default is a cron line");
    if let Some(text) = section.text("cron", faults) {
        match text.value.parse() {
            Ok(parsed) => (cron, line) = (parsed, text.value.to_owned()),
            Err(error) => faults.at(Some(text.span), error.to_string()),
        }
    }
    let words = [
        ("seen", PeakDetection::Enabled),
        ("missed", PeakDetection::Disabled),
    ];
    let peaks = section.word("peaks", &words, faults);
    plan.schedule = PollSchedule::new(
        cron,
        peaks.map_or(PeakDetection::Enabled, |peaks| peaks.value),
    );
    let mut limit = "6/min burst 20".parse::<Limit>().expect("DICT's own");
    if let Some(text) = section.text("budget", faults) {
        match text.value.parse() {
            Ok(parsed) => limit = parsed,
            Err(error) => faults.at(Some(text.span), error.to_string()),
        }
    }
    let is_shared = section.flag("budget_is_shared", faults);
    plan.budget = match is_shared {
        Some(flag) if flag.value => PollBudget::Shared(limit),
        _ => PollBudget::PerParticipant(limit),
    };
    if let Some(reserve) = section.number("reserve", (0, limit.capacity() - 1), faults) {
        plan.reserve = reserve.value;
    }
    plan.reserve = plan.reserve.min(limit.capacity() - 1);
    let words = [("embedded", false), ("temporal", true)];
    if section
        .word("kind", &words, faults)
        .is_some_and(|kind| kind.value)
    {
        if cfg!(not(feature = "temporal")) {
            faults.at(
                section.span(),
                "this balde was built without Temporal; build it with --features temporal",
            );
        }
        let mut text = |key, default: &str| {
            let text = section.text(key, faults);
            text.map_or(default.to_owned(), |text| text.value.to_owned())
        };
        kind = ScheduleConfig::Temporal(TemporalSettings {
            address: text("temporal_address", "http://127.0.0.1:7233"),
            namespace: text("temporal_namespace", "default"),
            task_queue: text("temporal_task_queue", "dict-task-queue"),
            workflow_id: text("temporal_workflow_id", "monitor-rate-limits-cron"),
            cron: line,
        });
    }
    section.finish(faults);
    (kind, plan)
}
