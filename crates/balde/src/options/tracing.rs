//! The section `[tracing]`: where spans are exported to.

use std::fmt;
use std::time::Duration;

use balde_config::{Diagnostics, Section, Span};

use super::variables::{Variables, word};
#[cfg(feature = "otlp")]
use crate::telemetry::Otlp;

/// The same as the limits of [`Otlp`], which does not exist without the feature.
const QUEUE_MAX_MAX: u64 = 1 << 20;
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Grpc,
    Http,
}

#[derive(Clone, Default)]
#[cfg_attr(
    not(feature = "otlp"),
    expect(dead_code, reason = "validated without the feature, too")
)]
pub(super) struct TracingOptions {
    endpoint: String,
    protocol: Option<Protocol>,
    service_name: Option<String>,
    sample_one_in: Option<u64>,
    queue_max: Option<u64>,
    timeout: Option<Duration>,
}

impl TracingOptions {
    /// Reads `[tracing]`; `None` without the section, unless `RL_TRACING` is `on`. The variables
    /// `RL_TRACING` and, while tracing is on, those of OpenTelemetry take precedence.
    pub(super) fn read(
        root: Option<&mut Section<'_>>,
        variables: &Variables<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Self> {
        let mut options = Self::default();
        let mut is_on = false;
        let mut span = None;
        if let Some(mut section) = root.and_then(|root| root.table("tracing", diagnostics)) {
            let is_enabled = section.boolean("enabled", diagnostics);
            is_on = is_enabled.is_none_or(|is_enabled| is_enabled.value);
            let endpoint = section.string("endpoint", diagnostics);
            span = endpoint.map(|endpoint| endpoint.span).or(section.span());
            let words = [("grpc", Protocol::Grpc), ("http", Protocol::Http)];
            let protocol = section.choice("protocol", &words, diagnostics);
            let service_name = section.string("service_name", diagnostics);
            let one_in = section.integer("sample_one_in", 1..=u64::from(u32::MAX), diagnostics);
            let queue_max = section.integer("queue_max", 1..=QUEUE_MAX_MAX, diagnostics);
            let range = Duration::from_millis(1)..=TIMEOUT_MAX;
            let timeout = section.duration("timeout", range, diagnostics);
            section.finish(diagnostics);
            options = Self {
                endpoint: endpoint.map_or_else(String::new, |text| text.value.to_owned()),
                protocol: protocol.map(|protocol| protocol.value),
                service_name: service_name.map(|name| name.value.to_owned()),
                sample_one_in: one_in.map(|n| n.value),
                queue_max: queue_max.map(|spans| spans.value),
                timeout: timeout.map(|timeout| timeout.value),
            };
        }
        let words = [("on", true), ("off", false)];
        if let Some(chosen) = word(variables, "RL_TRACING", &words, diagnostics) {
            is_on = chosen;
        }
        if !is_on {
            return None;
        }
        let words = [("grpc", Protocol::Grpc), ("http/protobuf", Protocol::Http)];
        options.protocol = word(variables, PROTOCOL, &words, diagnostics).or(options.protocol);
        let name = variables.environment.read(SERVICE_NAME, diagnostics);
        options.service_name = name.or(options.service_name);
        if let Some(endpoint) = variables.environment.read(ENDPOINT, diagnostics) {
            options.endpoint = endpoint;
            span = None;
        }
        options.check_endpoint(span, diagnostics);
        Some(options)
    }

    /// The message does not repeat the address, because it may contain a password.
    fn check_endpoint(&self, span: Option<Span>, diagnostics: &mut Diagnostics) {
        let message = if self.endpoint.is_empty() {
            "there is no collector to send spans to: write endpoint = \"http://127.0.0.1:4317\" in \
             [tracing], or set OTEL_EXPORTER_OTLP_ENDPOINT"
        } else if self.endpoint.trim() == "http://" || !self.endpoint.starts_with("http://") {
            "the collector's address must be http://host:port; TLS is not supported: run a \
             collector on this host and let it forward the spans"
        } else {
            return;
        };
        match span {
            Some(span) => diagnostics.at(span, message),
            None => diagnostics.in_variable(ENDPOINT, message),
        }
    }

    #[cfg(feature = "otlp")]
    pub(super) fn otlp(&self) -> Otlp {
        let mut otlp = match self.protocol {
            None | Some(Protocol::Grpc) => Otlp::grpc(&self.endpoint),
            Some(Protocol::Http) => Otlp::http(&self.endpoint),
        };
        if let Some(name) = &self.service_name {
            otlp = otlp.service_name(name);
        }
        if let Some(n) = self.sample_one_in {
            otlp = otlp.sample_one_in(u32::try_from(n).unwrap_or(u32::MAX));
        }
        if let Some(spans) = self.queue_max {
            otlp = otlp.queue_max(usize::try_from(spans).unwrap_or(usize::MAX));
        }
        if let Some(timeout) = self.timeout {
            otlp = otlp.timeout(timeout);
        }
        otlp
    }
}

impl fmt::Debug for TracingOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may contain a password.
        f.debug_struct("TracingOptions")
            .field("protocol", &self.protocol)
            .field("service_name", &self.service_name)
            .field("sample_one_in", &self.sample_one_in)
            .finish_non_exhaustive()
    }
}
