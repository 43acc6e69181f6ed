//! Counters of the service: connections and requests of each protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use balde::telemetry::{Metrics, MetricsWriter, dropped_log_lines};

use crate::decisions::{Answer, CommandError};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestResult {
    /// The tokens were given, or a command without tokens was run.
    Allowed,
    /// The tokens were refused.
    Refused,
    /// The request was wrong.
    Invalid,
    /// The service could not decide.
    Failed,
}

impl RequestResult {
    /// How an answer to a command counts.
    pub(crate) fn new(answer: &Result<Answer, CommandError>) -> Self {
        match answer {
            Ok(answer) if answer.is_refusal() => Self::Refused,
            Ok(_) => Self::Allowed,
            Err(error) if error.is_failure() => Self::Failed,
            Err(_) => Self::Invalid,
        }
    }
}

const RESULTS: [&str; 4] = ["allowed", "refused", "invalid", "failed"];

/// The protocols, in the order of [`ServiceMetrics`].
const PROTOCOLS: [&str; 4] = ["http", "resp", "rls", "proxy"];

/// The counters of one protocol.
#[derive(Debug)]
pub(crate) struct ProtocolMetrics {
    name: &'static str,
    results: [AtomicU64; RESULTS.len()],
    connections: AtomicI64,
    refused_connections: AtomicU64,
}

impl ProtocolMetrics {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            results: Default::default(),
            connections: AtomicI64::new(0),
            refused_connections: AtomicU64::new(0),
        }
    }

    pub(crate) fn count(&self, result: RequestResult) {
        self.results[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_refused_connection(&self) {
        self.refused_connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection until the guard is dropped.
    pub(crate) fn open_connection(&self) -> impl Drop + use<'_> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        OpenConnection(self)
    }

    pub(crate) fn connections(&self) -> u64 {
        u64::try_from(self.connections.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub(crate) fn requests(&self) -> u64 {
        let counts = self.results.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

struct OpenConnection<'m>(&'m ProtocolMetrics);

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All counters of a service.
#[derive(Debug)]
pub(crate) struct ServiceMetrics {
    pub(crate) http: Arc<ProtocolMetrics>,
    pub(crate) resp: Arc<ProtocolMetrics>,
    pub(crate) rls: Arc<ProtocolMetrics>,
    pub(crate) proxy: Arc<ProtocolMetrics>,
    reloads: [AtomicU64; 2],
    is_reload_refused: AtomicBool,
}

impl ServiceMetrics {
    pub(crate) fn registered(metrics: &Metrics) -> Arc<Self> {
        let [http, resp, rls, proxy] = PROTOCOLS.map(|name| Arc::new(ProtocolMetrics::new(name)));
        let service = Arc::new(Self {
            http,
            resp,
            rls,
            proxy,
            reloads: Default::default(),
            is_reload_refused: AtomicBool::new(false),
        });
        let source = Arc::clone(&service);
        metrics.add_source(move |writer| source.write(writer));
        service
    }

    pub(crate) fn count_reload(&self, is_applied: bool) {
        self.reloads[usize::from(is_applied)].fetch_add(1, Ordering::Relaxed);
        self.is_reload_refused.store(!is_applied, Ordering::Relaxed);
    }

    fn protocols(&self) -> [&ProtocolMetrics; PROTOCOLS.len()] {
        [&self.http, &self.resp, &self.rls, &self.proxy]
    }

    fn write(&self, writer: &mut MetricsWriter<'_>) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let lines = self.protocols().into_iter().flat_map(|protocol| {
            let results = RESULTS.iter().zip(&protocol.results);
            results.map(move |(result, count)| {
                (
                    [("protocol", protocol.name), ("result", result)],
                    load(count),
                )
            })
        });
        writer.counter(
            "balde_service_requests",
            "Requests by protocol and result.",
            lines,
        );
        let lines = self
            .protocols()
            .map(|protocol| ([("protocol", protocol.name)], protocol.connections()));
        writer.gauge("balde_service_connections", "Open connections.", lines);
        let lines = self.protocols().map(|protocol| {
            let refused = load(&protocol.refused_connections);
            ([("protocol", protocol.name)], refused)
        });
        writer.counter(
            "balde_service_refused_connections",
            "Connections that were closed because there were too many.",
            lines,
        );
        let reloads = [
            ([("result", "refused")], load(&self.reloads[0])),
            ([("result", "applied")], load(&self.reloads[1])),
        ];
        writer.counter(
            "balde_service_reloads",
            "Reloads of the file, by result.",
            reloads,
        );
        let none: &[(&str, &str)] = &[];
        let is_refused = u64::from(self.is_reload_refused.load(Ordering::Relaxed));
        writer.gauge(
            "balde_service_reload_refused",
            "1 if the last reload was refused, and an older file is in force.",
            [(none, is_refused)],
        );
        writer.counter(
            "balde_log_lines_dropped",
            "Log lines that were dropped because standard output did not keep up.",
            [(none, dropped_log_lines())],
        );
    }
}
