//! The sections `[http]`, `[history]` and `[schedule]`.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use balde_config::{Diagnostics, Section};

use super::Resolver;
use super::access;
use super::participants::check_identity;
use crate::history::Retention;
use crate::http::{Access, AuthenticatingProxy, Role};
use crate::schedule::{Cron, PeakDetection, PollBudget, PollPlan, PollSchedule, TemporalSettings};

const LISTEN_DEFAULT: &str = "127.0.0.1:9180";
const HISTORY_DEFAULT: &str = "monitor.db";

/// The address to listen on, and who may read and change what.
#[derive(Clone)]
pub struct HttpConfig {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// A token with which everything is allowed, and which several people may use.
    pub token: Option<String>,
    /// Further tokens, each with a name and a role.
    pub tokens: Vec<(String, Role, String)>,
    /// The authenticating proxy that is believed.
    pub sso: Option<AuthenticatingProxy>,
    /// Whether clients that are not authenticated may read.
    pub is_read_by_anyone: bool,
    /// The address under which people open the pages, without a slash at its end.
    pub public_url: Option<String>,
    /// The names under which the pages are served, besides addresses and `localhost`.
    pub hosts: Vec<String>,
    /// The certificate chain and the key of the pages, as PEM. Without them there is no TLS.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl HttpConfig {
    /// Who may read and change what. Without any token and without a proxy, every client may do
    /// everything if the monitor listens on a loopback address, and otherwise every client may read.
    pub fn access(&self) -> Access {
        let is_configured = self.token.is_some() || !self.tokens.is_empty() || self.sso.is_some();
        let anonymous = match (self.is_read_by_anyone, is_configured) {
            (false, _) => None,
            (true, false) if self.listen.ip().is_loopback() => Some(Role::Admin),
            (true, _) => Some(Role::Read),
        };
        let mut access = Access::anonymous(anonymous);
        if let Some(token) = &self.token {
            access = access.with_token(None, Role::Admin, token.clone());
        }
        for (name, role, token) in &self.tokens {
            access = access.with_token(Some(name), *role, token.clone());
        }
        match &self.sso {
            Some(proxy) => access.with_proxy(proxy.clone()),
            None => access,
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

/// What runs the poll cycles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleConfig {
    /// A loop in this process.
    Embedded,
    /// Workflows of a Temporal server.
    Temporal(Box<TemporalSettings>),
}

pub(super) fn http(
    section: Option<Section<'_>>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> HttpConfig {
    let mut listen = LISTEN_DEFAULT.parse().expect("the default is an address");
    let mut token = None;
    let mut hosts = Vec::new();
    let mut identity = None;
    let mut callers = access::Callers::default();
    if let Some(mut section) = section {
        if let Some(text) = section.string("address", diagnostics) {
            match listen_address(text.value) {
                Some(address) => listen = address,
                None => diagnostics.at(
                    text.span,
                    "`address` must be an address and a port, such as 127.0.0.1:9180 or localhost:9180",
                ),
            }
        }
        token = resolver.secret(&mut section, ("token_env", "token_file"), diagnostics);
        for host in section.strings("hosts", diagnostics) {
            if host.value.is_empty() || host.value.contains(['/', ':', ' ']) {
                let message = "`hosts` are names without scheme and port, such as monitor.example";
                diagnostics.at(host.span, message);
            }
            hosts.push(host.value.to_owned());
        }
        callers = access::read(&mut section, resolver, diagnostics);
        hosts.extend(callers.public_host.clone());
        let certificate = resolver.bytes(&mut section, "certificate", diagnostics);
        let key = resolver.bytes(&mut section, "key", diagnostics);
        if section.contains("certificate") != section.contains("key") {
            let message = "`certificate` and `key` are used together: write both or neither";
            diagnostics.at(section.span(), message);
        }
        section.renamed(&[("listen", "address")]);
        identity = certificate.zip(key);
        if let Some((chain, key)) = &identity
            && let Err(message) = check_identity(chain, key)
        {
            diagnostics.at(section.span(), message);
        }
        section.finish(diagnostics);
    }
    HttpConfig {
        listen,
        token,
        tokens: callers.tokens,
        sso: callers.sso,
        is_read_by_anyone: callers.is_read_by_anyone,
        public_url: callers.public_url,
        hosts,
        identity,
    }
}

/// An address and a port; `localhost` is 127.0.0.1.
fn listen_address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().ok()?))),
        None => text.parse().ok(),
    }
}

pub(super) fn history(
    section: Option<Section<'_>>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> (String, Retention) {
    let mut retention = Retention::default();
    let mut address = None;
    if let Some(mut section) = section {
        address = resolver.string_or_secret(
            &mut section,
            ("address", "address_env", "address_file"),
            diagnostics,
        );
        if let Some(months) = months(&mut section, diagnostics) {
            retention.months = months;
        }
        if let Some(days) = thin_after_days(&mut section, diagnostics) {
            retention.thin_after_days = days;
        }
        section.finish(diagnostics);
    }
    let address = address.unwrap_or_else(|| HISTORY_DEFAULT.to_owned());
    if address.contains("://") {
        return (address, retention);
    }
    let file = address.strip_prefix("sqlite:").unwrap_or(&address);
    (resolver.path(file).display().to_string(), retention)
}

/// `retention`: a number of months.
fn months(section: &mut Section<'_>, diagnostics: &mut Diagnostics) -> Option<u32> {
    let text = section.string("retention", diagnostics)?;
    let number = text
        .value
        .trim()
        .trim_end_matches('s')
        .strip_suffix("month");
    let months = number.and_then(|number| number.trim_end().parse().ok());
    let months = months.filter(|months| (1..=1_200).contains(months));
    if months.is_none() {
        let message = "`retention` must be \"1 month\" to \"1200 months\"";
        diagnostics.at(text.span, message);
    }
    months
}

/// `thin_after`: whole days, or zero for `never`.
fn thin_after_days(section: &mut Section<'_>, diagnostics: &mut Diagnostics) -> Option<u32> {
    const DAY: Duration = Duration::from_secs(86_400);
    let value = section.get("thin_after")?;
    if value.as_str() == Some("never") {
        return Some(0);
    }
    let after = value.duration(DAY..=DAY * 36_500, diagnostics)?;
    if after.value.as_secs() % DAY.as_secs() > 0 {
        let message = "`thin_after` must be whole days, such as \"31 days\", or \"never\"";
        diagnostics.at(after.span, message);
    }
    u32::try_from(after.value.as_secs() / DAY.as_secs()).ok()
}

pub(super) fn schedule(
    root: &mut Section<'_>,
    retention: Retention,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> (ScheduleConfig, PollPlan) {
    let mut plan = PollPlan {
        retention,
        ..PollPlan::default()
    };
    let mut kind = ScheduleConfig::Embedded;
    let Some(mut section) = root.table("schedule", diagnostics) else {
        return (kind, plan);
    };
    let mut line = "*/5 * * * *".to_owned();
    let mut cron: Cron = line.parse().expect("the default is a cron line");
    if let Some(text) = section.string("cron", diagnostics) {
        match text.value.parse() {
            Ok(parsed) => (cron, line) = (parsed, text.value.to_owned()),
            Err(error) => diagnostics.at(text.span, error.to_string()),
        }
    }
    let peaks = section.boolean("detect_spikes", diagnostics);
    section.renamed(&[("peaks", "detect_spikes")]);
    plan.schedule = PollSchedule::new(
        cron,
        match peaks.map(|peaks| peaks.value) {
            Some(false) => PeakDetection::Disabled,
            Some(true) | None => PeakDetection::Enabled,
        },
    );
    let mut budget = PollBudget::default();
    for (key, limit) in [
        ("list_budget", &mut budget.list),
        ("read_budget", &mut budget.read),
    ] {
        if let Some(read) = section.limit(key, diagnostics) {
            *limit = read.value;
        }
    }
    for (key, share_pct) in [
        ("list_share", &mut budget.list_share_pct),
        ("read_share", &mut budget.read_share_pct),
    ] {
        if let Some(read) = section.percent(key, 1..=100, diagnostics) {
            *share_pct = u32::try_from(read.value).unwrap_or(100);
        }
    }
    if let Some(is_shared) = section.boolean("budget_is_shared", diagnostics) {
        budget.is_shared = is_shared.value;
    }
    plan.budget = budget;
    let words = [("embedded", false), ("temporal", true)];
    if section
        .choice("kind", &words, diagnostics)
        .is_some_and(|kind| kind.value)
    {
        if cfg!(not(feature = "temporal")) {
            diagnostics.at(
                section.span(),
                "this build does not include Temporal; build it with --features temporal",
            );
        }
        let certificate = resolver.bytes(&mut section, "temporal_certificate", diagnostics);
        let key = resolver.bytes(&mut section, "temporal_key", diagnostics);
        if section.contains("temporal_certificate") != section.contains("temporal_key") {
            let message = "`temporal_certificate` and `temporal_key` are used together";
            diagnostics.at(section.span(), message);
        }
        let ca = resolver.bytes(&mut section, "temporal_ca", diagnostics);
        let keys = ("temporal_api_key_env", "temporal_api_key_file");
        let api_key = resolver.secret(&mut section, keys, diagnostics);
        let server_name = section.string("temporal_server_name", diagnostics);
        let mut text = |key, default: &str| {
            let text = section.string(key, diagnostics);
            text.map_or(default.to_owned(), |text| text.value.to_owned())
        };
        let settings = TemporalSettings {
            address: text("temporal_address", "http://127.0.0.1:7233"),
            namespace: text("temporal_namespace", "default"),
            task_queue: text("temporal_task_queue", "dict-task-queue"),
            workflow_id: text("temporal_workflow_id", "monitor-rate-limits-cron"),
            cron: line,
            identity: certificate.zip(key),
            ca,
            server_name: server_name.map(|name| name.value.to_owned()),
            api_key,
        };
        if settings.needs_tls() && !settings.address.starts_with("https://") {
            let message = "a client certificate, `temporal_ca` or an API key needs TLS: write \
                           `temporal_address` with https://";
            diagnostics.at(section.span(), message);
        }
        kind = ScheduleConfig::Temporal(Box::new(settings));
    }
    section.finish(diagnostics);
    (kind, plan)
}
