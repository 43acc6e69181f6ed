//! The language of texts, and the page that they link to.

use super::portuguese;
use crate::alert::{Event, EventKind, MONITOR};
use crate::severity::Severity;

/// The language of the texts that people read. Names that programs compare, such as severities and
/// policies, are the same in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Language {
    /// English.
    #[default]
    English,
    /// The Portuguese of Brazil.
    Portuguese,
}

/// How alerts are worded: their language, and where the runbook is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a wording does nothing until sinks use it"]
pub struct Wording {
    language: Language,
    runbook_url: Option<String>,
    public_url: Option<String>,
}

impl Wording {
    /// Texts in a language.
    pub fn new(language: Language) -> Self {
        Self {
            language,
            runbook_url: None,
            public_url: None,
        }
    }

    /// Sets the address of the runbook's page, to which the anchor of an alert is added.
    pub fn runbook_url(mut self, url: impl Into<String>) -> Self {
        self.runbook_url = Some(url.into());
        self
    }

    /// Sets the address of the monitor's pages, without a slash at its end, to which the page of an
    /// alert is added.
    pub fn public_url(mut self, url: impl Into<String>) -> Self {
        self.public_url = Some(url.into());
        self
    }

    /// Returns the address of the alert's bucket on the dashboard, or of the page of alerts if the
    /// alert concerns no single bucket; `None` if the monitor's public address is not configured.
    pub fn dashboard(&self, event: &Event) -> Option<String> {
        let url = self.public_url.as_ref()?;
        Some(match &event.policy {
            Some(policy) if event.participant != MONITOR => {
                let (participant, policy) = (encoded(&event.participant), encoded(policy));
                format!("{url}/#/policy/{participant}/{policy}")
            }
            _ => format!("{url}/#/alerts"),
        })
    }

    /// Returns the name of the link to the dashboard.
    pub(crate) const fn dashboard_word(&self) -> &'static str {
        match self.language {
            Language::English => "dashboard",
            Language::Portuguese => "painel",
        }
    }

    pub(crate) const fn language(&self) -> Language {
        self.language
    }

    /// Returns a one-line title, for notifications and lists.
    pub fn title(&self, event: &Event) -> String {
        match self.language {
            Language::English => super::title(event),
            Language::Portuguese => portuguese::title(event),
        }
    }

    /// Returns the description: what happened to which bucket, when, how many tokens are left, and
    /// what to do about it.
    pub fn description(&self, event: &Event) -> String {
        match self.language {
            Language::English => super::description(event),
            Language::Portuguese => portuguese::description(event),
        }
    }

    /// Returns the address of the runbook's section, if the runbook has one.
    pub(crate) fn link(&self, event: &Event) -> Option<String> {
        let url = self.runbook_url.as_ref()?;
        Some(format!("{url}#{}", anchor(event)))
    }

    /// Returns where the runbook has the alert: an address, or the page in balde's documentation.
    pub fn runbook(&self, event: &Event) -> String {
        let page = match self.language {
            Language::English => "docs/runbook.md",
            Language::Portuguese => "docs/pt-BR/runbook.md",
        };
        let link = self.link(event);
        link.unwrap_or_else(|| format!("{page}#{}", anchor(event)))
    }
}

/// Encodes what is not a letter, a digit or one of `-_.~`, as JavaScript's `encodeURIComponent` does.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(encode).collect()
}

/// The section of the runbook: that of the Prometheus rule about the same thing. Anchors are stable.
fn anchor(event: &Event) -> &'static str {
    match &event.kind {
        EventKind::Predicted { .. } | EventKind::ForecastOver { .. } => "dictbucketpredictedempty",
        EventKind::Stale { .. } | EventKind::StillStale { .. } | EventKind::Fresh { .. } => {
            "baldemonitorstale"
        }
        EventKind::Changed(_) => "dictlimitschanged",
        EventKind::StorageFailed { .. }
        | EventKind::StorageStillFailing { .. }
        | EventKind::StorageRecovered { .. } => "baldemonitorcannotstore",
        EventKind::Test { .. } | EventKind::TestOver { .. } => "testalert",
        EventKind::Acknowledged { .. }
        | EventKind::Unacknowledged { .. }
        | EventKind::Closed { .. }
            if event.policy.is_none() =>
        {
            if event.participant == MONITOR {
                "baldemonitorcannotstore"
            } else {
                "baldemonitorstale"
            }
        }
        EventKind::Raised { .. }
        | EventKind::Lowered { .. }
        | EventKind::Resolved { .. }
        | EventKind::Reminder { .. }
        | EventKind::Acknowledged { .. }
        | EventKind::Unacknowledged { .. }
        | EventKind::Closed { .. }
        | EventKind::Silenced { .. }
        | EventKind::SilenceEnded { .. } => match event.severity {
            Severity::Normal | Severity::Warning => "dictbucketwarning",
            Severity::Critical => "dictbucketcritical",
            Severity::Exhausted => "dictbucketexhausted",
        },
    }
}
