//! The fields of a message: names and values in the language of the texts.

use super::portuguese;
use super::wording::{Language, Wording};
use crate::alert::{Event, EventKind};

/// Returns the fields of a message, at most eight. Slack allows ten.
pub(crate) fn fields(event: &Event, wording: &Wording) -> Vec<(&'static str, String)> {
    let names = field_names(wording);
    let format_time = |at_us| format_time_in(wording, at_us);
    let mut fields = vec![(names.participant, event.participant.clone())];
    if let Some(policy) = &event.policy {
        fields.push((names.policy, policy.clone()));
    }
    fields.push((names.severity, event.severity.to_string()));
    if let Some(tokens) = tokens_in(wording, event) {
        fields.push((names.tokens_left, tokens));
    }
    if let Some(time) = super::recovery(event) {
        fields.push((names.full_again_in, time));
    }
    match &event.kind {
        EventKind::Reminder { since_us } => fields.push((names.since, format_time(*since_us))),
        EventKind::Stale { newest_us, .. } | EventKind::StillStale { newest_us, .. } => {
            fields.push((names.no_data_since, format_time(*newest_us)));
        }
        EventKind::Predicted { empty_at_us, .. } => {
            fields.push((names.empty_at, format_time(*empty_at_us)));
        }
        _ => {}
    }
    fields.push((names.time, format_time(event.at_us)));
    fields
}

/// The names of a message's fields.
struct FieldNames {
    participant: &'static str,
    policy: &'static str,
    severity: &'static str,
    tokens_left: &'static str,
    full_again_in: &'static str,
    since: &'static str,
    no_data_since: &'static str,
    empty_at: &'static str,
    time: &'static str,
}

const fn field_names(wording: &Wording) -> FieldNames {
    match wording.language() {
        Language::English => FieldNames {
            participant: "Participant",
            policy: "Policy",
            severity: "Severity",
            tokens_left: "Tokens left",
            full_again_in: "Full again in",
            since: "Since",
            no_data_since: "No data since",
            empty_at: "Empty at",
            time: "Time",
        },
        Language::Portuguese => FieldNames {
            participant: "Participante",
            policy: "Política",
            severity: "Severidade",
            tokens_left: "Fichas restantes",
            full_again_in: "Cheio de novo em",
            since: "Desde",
            no_data_since: "Sem dados desde",
            empty_at: "Vazio em",
            time: "Horário",
        },
    }
}

fn format_time_in(wording: &Wording, at_us: u64) -> String {
    match wording.language() {
        Language::English => super::format_time(at_us),
        Language::Portuguese => portuguese::format_time(at_us),
    }
}

fn tokens_in(wording: &Wording, event: &Event) -> Option<String> {
    match wording.language() {
        Language::English => super::tokens(event),
        Language::Portuguese => portuguese::tokens(event),
    }
}
