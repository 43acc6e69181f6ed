//! Titles and descriptions in Brazilian Portuguese. Severities, policies and errors of servers stay as
//! they are: people search for them.

use super::{Event, EventKind, ForecastResult, ResolveReason, percent, timestamp};
use crate::analyse::{Change, Confidence};
use crate::severity::Severity;

pub(super) fn title(event: &Event) -> String {
    let subject = title_subject(event);
    match &event.kind {
        EventKind::Raised { to, .. } => format!("{to}: {subject}"),
        EventKind::Lowered { from, to } => {
            format!("NÃO ESTÁ MAIS {from} (no pior caso {to}): {subject}")
        }
        EventKind::Resolved { from, .. } => format!("RESOLVIDO (estava {from}): {subject}"),
        EventKind::Reminder { .. } => format!("CONTINUA {}: {subject}", event.severity),
        EventKind::Predicted { .. } => format!("VAZIO EM BREVE: {subject}"),
        EventKind::ForecastOver {
            result: ForecastResult::CameTrue,
        } => format!("VAZIO COMO PREVISTO: {subject}"),
        EventKind::ForecastOver {
            result: ForecastResult::Averted,
        } => format!("NÃO HÁ MAIS PREVISÃO DE ESVAZIAR: {subject}"),
        EventKind::Stale { .. } => format!("SEM DADOS: {subject}"),
        EventKind::StillStale { .. } => format!("CONTINUA SEM DADOS: {subject}"),
        EventKind::Fresh { .. } => format!("DADOS DE VOLTA: {subject}"),
        EventKind::Changed(_) => format!("MUDANÇA: {subject}"),
        EventKind::Acknowledged { by, .. } => format!("RECONHECIDO por {by}: {subject}"),
        EventKind::Unacknowledged { by, .. } => {
            format!("RECONHECIMENTO DESFEITO por {by}: {subject}")
        }
        EventKind::Closed { from, by, .. } => {
            format!("ENCERRADO por {by} (estava {from}): {subject}")
        }
        EventKind::Silenced { by, .. } => format!("SILENCIADO por {by}: {subject}"),
        EventKind::SilenceEnded { by } => format!("SILÊNCIO ENCERRADO por {by}: {subject}"),
        EventKind::StorageFailed { cause, .. } => format!("O MONITOR NÃO CONSEGUE GRAVAR: {cause}"),
        EventKind::StorageStillFailing { since_us, cause } => {
            let since = format_time(*since_us);
            format!("O MONITOR CONTINUA SEM GRAVAR desde {since}: {cause}")
        }
        EventKind::StorageRecovered { .. } => "O MONITOR VOLTOU A GRAVAR".to_owned(),
        EventKind::Test { sink } => format!("TESTE: um operador verifica o destino {sink}"),
        EventKind::TestOver { sink } => format!("FIM DO TESTE: verificação do destino {sink}"),
    }
}

pub(super) fn description(event: &Event) -> String {
    let subject = subject(event);
    let left = left(event);
    let at = format_time(event.at_us);
    match &event.kind {
        EventKind::Raised { from, to } => {
            let advice = advice(*to);
            format!("{subject} passou de {from} para {to} em {at}. {left} {advice}")
        }
        EventKind::Lowered { from, to } => format!(
            "{subject} não está mais {from}: até {at} esteve no pior caso {to}, por tempo suficiente. {left}"
        ),
        EventKind::Resolved {
            from,
            reason: ResolveReason::Recovered,
        } => format!("{subject} voltou de {from} para NORMAL em {at}. {left}"),
        EventKind::Resolved {
            from,
            reason: ResolveReason::Vanished,
        } => format!(
            "{subject} estava {from}. A política não é mais listada desde {at}, por isso o alerta foi \
             encerrado."
        ),
        EventKind::Resolved {
            from,
            reason: ResolveReason::NotConfigured,
        } => format!(
            "{subject} estava {from}. Desde {at} não consta mais no arquivo do monitor, por isso o alerta \
             foi encerrado; não se sabe o nível atual."
        ),
        EventKind::Reminder { since_us } => {
            let (severity, since) = (event.severity, format_time(*since_us));
            let advice = advice(severity);
            format!("{subject} está {severity} desde {since}. {left} {advice}")
        }
        EventKind::Predicted {
            empty_at_us,
            confidence,
        } => {
            let empty_at = format_time(*empty_at_us);
            let confidence = match confidence {
                Confidence::Low => "baixa",
                Confidence::Medium => "média",
                Confidence::High => "alta",
            };
            format!(
                "{subject} ficará vazio em {empty_at} no ritmo atual de consumo (confiança: {confidence}). \
                 {left} Reduza as requisições desta política para evitar isso."
            )
        }
        EventKind::ForecastOver {
            result: ForecastResult::CameTrue,
        } => format!("{subject} está vazio desde {at}, como previsto. {left}"),
        EventKind::ForecastOver {
            result: ForecastResult::Averted,
        } => format!("Desde {at} não há mais previsão de esvaziar em breve: {subject}. {left}"),
        EventKind::Stale { newest_us, reason } => {
            let (newest, why) = (format_time(*newest_us), super::because(reason.as_deref()));
            format!("Não há dados do {subject} desde {newest}{why}. {STALE_ADVICE}")
        }
        EventKind::StillStale { newest_us, reason } => {
            let (newest, why) = (format_time(*newest_us), super::because(reason.as_deref()));
            format!("Continua sem dados do {subject} desde {newest}{why}. {STALE_ADVICE}")
        }
        EventKind::Fresh { newest_us } => {
            let newest = format_time(*newest_us);
            format!(
                "Há dados do {subject} de novo desde {at}. Os dados anteriores mais recentes eram de \
                 {newest}."
            )
        }
        EventKind::Changed(change) => format!(
            "Participante {}: {} (visto em {at}).",
            event.participant,
            changed(change)
        ),
        EventKind::Acknowledged { .. }
        | EventKind::Unacknowledged { .. }
        | EventKind::Closed { .. }
        | EventKind::Silenced { .. }
        | EventKind::SilenceEnded { .. } => by_operator(event, &subject, &left, &at),
        EventKind::StorageFailed { .. }
        | EventKind::StorageStillFailing { .. }
        | EventKind::StorageRecovered { .. }
        | EventKind::Test { .. }
        | EventKind::TestOver { .. } => about_monitor(&event.kind, &at),
    }
}

/// What the monitor says about itself: its database, and tests of its sinks.
fn about_monitor(kind: &EventKind, at: &str) -> String {
    match kind {
        EventKind::StorageFailed { since_us, cause } => {
            let since = format_time(*since_us);
            format!(
                "O monitor não consegue gravar nada desde {since}: {cause}. {WITHOUT_STORAGE} {STORAGE_ADVICE}"
            )
        }
        EventKind::StorageStillFailing { since_us, cause } => {
            let since = format_time(*since_us);
            format!(
                "O monitor continua sem gravar, desde {since}: {cause}. {WITHOUT_STORAGE} {STORAGE_ADVICE}"
            )
        }
        EventKind::StorageRecovered { since_us } => {
            let since = format_time(*since_us);
            format!("O monitor voltou a gravar em {at}. Não conseguia desde {since}.")
        }
        EventKind::Test { sink } => format!(
            "Isto é um teste. Um operador executou `balde monitor --test-sink {sink}` em {at}. Não há \
             nenhum problema, e nada precisa ser feito."
        ),
        EventKind::TestOver { sink } => {
            format!("O teste do destino {sink} terminou em {at}. Nada precisa ser feito.")
        }
        _ => String::new(),
    }
}

/// What somebody did about alerts.
fn by_operator(event: &Event, subject: &str, left: &str, at: &str) -> String {
    let place = event.kind.via().map(|via| format!(" no {}", via.name()));
    let place = place.unwrap_or_default();
    // Only a bucket has tokens.
    let left = event.policy.as_ref().map(|_| format!(" {left}"));
    let left = left.unwrap_or_default();
    match &event.kind {
        EventKind::Acknowledged { by, .. } => format!(
            "{by} reconheceu o alerta{place} em {at}: {subject}.{left} Não há lembretes até que \
             piore ou acabe."
        ),
        EventKind::Unacknowledged { by, .. } => format!(
            "{by} desfez o reconhecimento{place} em {at}: {subject}.{left} Os lembretes voltam a \
             ser enviados."
        ),
        EventKind::Closed { from, by, .. } => format!(
            "{by} encerrou o alerta{place} em {at}: {subject}, que estava {from}.{left} Se a \
             causa continuar, a próxima verificação abre um novo alerta."
        ),
        EventKind::Silenced {
            by,
            until_us,
            up_to,
        } => {
            let until = format_time(*until_us);
            format!("{by} silenciou alertas até {up_to}, até {until}: {subject}.")
        }
        EventKind::SilenceEnded { by } => format!("{by} encerrou o silêncio em {at}: {subject}."),
        _ => String::new(),
    }
}

/// The same sentence as on the dashboard.
pub(super) const WITHOUT_STORAGE: &str = "Níveis, alertas, envios, métricas, reconhecimentos e silêncios \
     continuam a partir da memória e são gravados quando o banco de dados voltar; histórico e incidentes \
     mais antigos não podem ser lidos até lá.";

const STORAGE_ADVICE: &str = "Um reinício perderia o que está na memória. Torne o banco de dados gravável; a \
     recuperação é automática.";

const STALE_ADVICE: &str = "Os baldes não são monitorados até que haja. Procure consultas com falha no \
     log do monitor e verifique a conexão com o DICT ou o gateway.";

const fn advice(severity: Severity) -> &'static str {
    match severity {
        Severity::Normal => "Nada precisa ser feito.",
        Severity::Warning => "Verifique o que está consumindo.",
        Severity::Critical => "Reduza as requisições desta política.",
        Severity::Exhausted => {
            "Requisições desta política são rejeitadas até que haja fichas. Pare as que podem esperar."
        }
    }
}

/// `15/11/2026 10:00:00 UTC`.
pub(crate) fn format_time(at_us: u64) -> String {
    let text = timestamp(at_us).strftime("%d/%m/%Y %H:%M:%S UTC");
    text.to_string()
}

/// Portuguese separates groups of digits by points.
fn grouped(number: u64) -> String {
    super::grouped(number).replace(',', ".")
}

fn signed(level: i64) -> String {
    let sign = if level < 0 { "-" } else { "" };
    format!("{sign}{}", grouped(level.unsigned_abs()))
}

/// `3.600 de 36.000 (10 %)`.
pub(crate) fn tokens(event: &Event) -> Option<String> {
    let (count, percent) = counted(event)?;
    Some(format!("{count}{percent}"))
}

fn counted(event: &Event) -> Option<(String, String)> {
    let level = event.level?;
    let Some(capacity) = event.capacity else {
        return Some((signed(level), String::new()));
    };
    let percent = percent(level, capacity).map(|percent| format!(" ({percent} %)"));
    let count = format!("{} de {}", signed(level), grouped(capacity));
    Some((count, percent.unwrap_or_default()))
}

fn title_subject(event: &Event) -> String {
    let who = match &event.policy {
        Some(policy) => format!("{policy} de {}", event.participant),
        None if super::is_of_all(event) => "todos os participantes".to_owned(),
        None if event.participant == super::MONITOR => "o banco de dados do monitor".to_owned(),
        None => format!("participante {}", event.participant),
    };
    let left = counted(event)
        .map(|(count, percent)| format!(", restam {count} fichas{percent}"))
        .unwrap_or_default();
    match &event.kind {
        EventKind::Changed(change) => format!("{who}, {}", changed(change)),
        EventKind::Resolved {
            reason: ResolveReason::Vanished,
            ..
        } => format!("{who} não é mais listada"),
        EventKind::Resolved {
            reason: ResolveReason::NotConfigured,
            ..
        } => format!("{who} não é mais monitorada"),
        EventKind::Predicted { empty_at_us, .. } => {
            format!("{who} em {}{left}", format_time(*empty_at_us))
        }
        EventKind::Stale { newest_us, reason } | EventKind::StillStale { newest_us, reason } => {
            let why = super::because(reason.as_deref());
            format!("{who} desde {}{why}", format_time(*newest_us))
        }
        _ => format!("{who}{left}"),
    }
}

fn subject(event: &Event) -> String {
    match &event.policy {
        Some(policy) if super::is_of_all(event) => {
            format!("o balde {policy} de todos os participantes")
        }
        Some(policy) => format!("O balde {policy} do participante {}", event.participant),
        None if super::is_of_all(event) => "todos os participantes".to_owned(),
        None if event.participant == super::MONITOR => "o banco de dados do monitor".to_owned(),
        None => format!("participante {}", event.participant),
    }
}

fn left(event: &Event) -> String {
    let left = match (event.level, event.capacity, counted(event)) {
        (Some(level @ ..0), Some(capacity), _) => format!(
            "Está {} fichas em dívida (capacidade {}).",
            grouped(level.unsigned_abs()),
            grouped(capacity)
        ),
        (_, _, Some((count, percent))) => format!("Restam {count} fichas{percent}."),
        _ => "Não se sabe quantas fichas restam.".to_owned(),
    };
    match super::recovery(event) {
        Some(time) => format!("{left} Sem novas requisições, volta a ficar cheio em {time}."),
        None => left,
    }
}

fn changed(change: &Change) -> String {
    match change {
        Change::Category { from, to } => format!("a categoria mudou de {from} para {to}"),
        Change::Capacity { policy, from, to } => format!(
            "a capacidade de {policy} mudou de {} para {} fichas",
            grouped(*from),
            grouped(*to)
        ),
        Change::Refill { policy, from, to } => format!(
            "a reposição de {policy} mudou de {} para {}",
            rate(*from),
            rate(*to)
        ),
        Change::PolicyAdded { policy } => format!("a política {policy} é nova"),
        Change::PolicyRemoved { policy } => format!("a política {policy} não é mais listada"),
    }
}

fn rate((tokens, period_us): (u64, u64)) -> String {
    let tokens = grouped(tokens);
    if period_us.is_multiple_of(1_000_000) {
        format!("{tokens} fichas a cada {} s", period_us / 1_000_000)
    } else {
        format!("{tokens} fichas a cada {period_us} µs")
    }
}
