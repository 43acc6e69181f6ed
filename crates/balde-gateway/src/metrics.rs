//! Counters of the gateway: requests, latencies, upstream errors, refusals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use balde::telemetry::{DurationHistogram, Metrics, MetricsWriter};
use parking_lot::{Mutex, RwLock};

/// Upper bounds of the latencies.
const BOUNDS: [Duration; 12] = [
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(1_000),
    Duration::from_millis(5_000),
    Duration::from_millis(30_000),
];

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// How many minutes of refusals are remembered.
pub(crate) const REFUSAL_MINUTES: usize = 5;

/// The most pairs of a participant and a policy whose refusals are counted apart. Those of further
/// participants count for the policy without a participant.
const REFUSED_PAIRS_MAX: usize = 20_000;

const MINUTE_US: u64 = 60_000_000;

/// The counters of a route.
#[derive(Debug, Default)]
pub(crate) struct RouteMetrics {
    by_class: [AtomicU64; CLASSES.len()],
    latencies: [AtomicU64; BOUNDS.len() + 1],
    latency_sum_us: AtomicU64,
}

impl RouteMetrics {
    pub(crate) fn count(&self, status: u16, took: Duration) {
        let class = usize::from(status / 100).clamp(1, CLASSES.len()) - 1;
        self.by_class[class].fetch_add(1, Ordering::Relaxed);
        let bucket = BOUNDS.partition_point(|bound| *bound < took);
        self.latencies[bucket].fetch_add(1, Ordering::Relaxed);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.latency_sum_us.fetch_add(us, Ordering::Relaxed);
    }
}

/// Why an upstream gave no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamFailure {
    /// It is known to be down.
    Down,
    /// No connection was opened.
    Connect,
    /// There was no response in time.
    Timeout,
    /// The connection was lost.
    Lost,
}

const FAILURES: [&str; 4] = ["down", "connect", "timeout", "lost"];

/// The counters of an upstream.
#[derive(Debug, Default)]
pub(crate) struct UpstreamMetrics {
    failures: [AtomicU64; FAILURES.len()],
    /// Responses with status 429.
    pub(crate) refused: AtomicU64,
    /// Requests that were sent on a second connection.
    pub(crate) retried: AtomicU64,
}

impl UpstreamMetrics {
    pub(crate) fn count(&self, failure: UpstreamFailure) {
        self.failures[failure as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// All counters of a gateway. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct GatewayMetrics(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    routes: RwLock<BTreeMap<String, Arc<RouteMetrics>>>,
    upstreams: RwLock<BTreeMap<String, Arc<UpstreamMetrics>>>,
    refusals: Mutex<RefusalsByPolicy>,
    reloads: [AtomicU64; 2],
    /// Whether the last reload was refused.
    is_reload_refused: AtomicBool,
    pub(crate) connections: AtomicU64,
}

/// By policy and participant, which is empty for requests that name none.
#[derive(Debug, Default)]
struct RefusalsByPolicy {
    policies: BTreeMap<String, BTreeMap<String, Refusals>>,
    pairs: usize,
}

/// The refusals of a policy: all, and those of each of the last minutes.
#[derive(Debug, Default)]
struct Refusals {
    all: u64,
    minutes: [(u64, u64); REFUSAL_MINUTES],
}

impl Refusals {
    fn count(&mut self, minute: u64) {
        self.all += 1;
        let index = usize::try_from(minute).unwrap_or(0) % REFUSAL_MINUTES;
        let (of, count) = &mut self.minutes[index];
        if *of != minute {
            (*of, *count) = (minute, 0);
        }
        *count += 1;
    }

    fn recent(&self, minute: u64) -> u64 {
        let oldest = minute.saturating_sub(REFUSAL_MINUTES as u64 - 1);
        let minutes = self.minutes.iter();
        let recent = minutes.filter(|(of, _)| (oldest..=minute).contains(of));
        recent.map(|(_, count)| count).sum()
    }
}

impl RefusalsByPolicy {
    fn entry(&mut self, participant: &str, policy: &str) -> &mut Refusals {
        if !self.policies.contains_key(policy) {
            self.policies.insert(policy.to_owned(), BTreeMap::new());
        }
        let participants = self.policies.get_mut(policy).expect("just inserted");
        let is_new = !participants.contains_key(participant);
        let participant = if is_new && self.pairs >= REFUSED_PAIRS_MAX {
            ""
        } else {
            participant
        };
        if !participants.contains_key(participant) {
            participants.insert(participant.to_owned(), Refusals::default());
            self.pairs += 1;
        }
        participants.get_mut(participant).expect("just inserted")
    }
}

impl GatewayMetrics {
    /// Creates counters that appear on the page of `metrics`.
    pub(crate) fn registered(metrics: &Metrics) -> Self {
        let counters = Self::default();
        let source = counters.clone();
        metrics.add_source(move |writer| source.write(writer));
        counters
    }

    pub(crate) fn route(&self, name: &str) -> Arc<RouteMetrics> {
        let mut routes = self.0.routes.write();
        Arc::clone(routes.entry(name.to_owned()).or_default())
    }

    pub(crate) fn upstream(&self, name: &str) -> Arc<UpstreamMetrics> {
        let mut upstreams = self.0.upstreams.write();
        Arc::clone(upstreams.entry(name.to_owned()).or_default())
    }

    /// Counts a refusal of a participant's request, or of one that names none, at a time in
    /// microseconds.
    pub(crate) fn count_refusal(&self, participant: Option<&str>, policy: &str, now_us: u64) {
        let mut refusals = self.0.refusals.lock();
        let refusals = refusals.entry(participant.unwrap_or_default(), policy);
        refusals.count(now_us / MINUTE_US);
    }

    /// The refusals of a policy within the last [`REFUSAL_MINUTES`]: those of a participant, or
    /// without one those of all requests.
    pub(crate) fn recent_refusals(
        &self,
        participant: Option<&str>,
        policy: &str,
        now_us: u64,
    ) -> u64 {
        let refusals = self.0.refusals.lock();
        let participants = refusals.policies.get(policy).into_iter().flatten();
        let counted = participants.filter(|(name, _)| participant.is_none_or(|own| own == *name));
        counted
            .map(|(_, refusals)| refusals.recent(now_us / MINUTE_US))
            .sum()
    }

    pub(crate) fn count_reload(&self, is_applied: bool) {
        self.0
            .is_reload_refused
            .store(!is_applied, Ordering::Relaxed);
        self.0.reloads[usize::from(!is_applied)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_opened(&self) {
        self.0.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_closed(&self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }

    fn write(&self, writer: &mut MetricsWriter<'_>) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let routes = self.0.routes.read();
        let lines = routes.iter().flat_map(|(name, route)| {
            let classes = CLASSES.iter().zip(&route.by_class);
            classes.map(move |(class, count)| {
                ([("route", name.as_str()), ("status", *class)], load(count))
            })
        });
        writer.counter(
            "gateway_requests",
            "Requests by route and class of the response's status.",
            lines,
        );
        let counts: Vec<(&str, Vec<u64>, Duration)> = routes
            .iter()
            .map(|(name, route)| {
                let counts = route.latencies.iter().map(load).collect();
                let sum = Duration::from_micros(load(&route.latency_sum_us));
                (name.as_str(), counts, sum)
            })
            .collect();
        let lines = counts.iter().map(|(name, counts, sum)| {
            let histogram = DurationHistogram {
                bounds: &BOUNDS,
                counts,
                sum: *sum,
            };
            ([("route", *name)], histogram)
        });
        writer.durations(
            "gateway_request_duration",
            "Time until the head of the response was ready.",
            lines,
        );
        let upstreams = self.0.upstreams.read();
        let lines = upstreams.iter().flat_map(|(name, upstream)| {
            let failures = FAILURES.iter().zip(&upstream.failures);
            failures.map(move |(failure, count)| {
                (
                    [("upstream", name.as_str()), ("error", *failure)],
                    load(count),
                )
            })
        });
        writer.counter(
            "gateway_upstream_errors",
            "Requests without a response of the upstream, by reason.",
            lines,
        );
        let lines = upstreams
            .iter()
            .map(|(name, upstream)| ([("upstream", name.as_str())], load(&upstream.refused)));
        writer.counter(
            "gateway_upstream_refusals",
            "Responses of the upstream with status 429.",
            lines,
        );
        let lines = upstreams
            .iter()
            .map(|(name, upstream)| ([("upstream", name.as_str())], load(&upstream.retried)));
        writer.counter(
            "gateway_upstream_retries",
            "Requests that were sent once more, because their connection had been closed.",
            lines,
        );
        let refusals = self.0.refusals.lock();
        let lines = refusals.policies.iter().flat_map(|(policy, participants)| {
            participants.iter().map(move |(participant, refusals)| {
                let mut labels = vec![("policy", policy.as_str())];
                if !participant.is_empty() {
                    labels.insert(0, ("participant", participant.as_str()));
                }
                (labels, refusals.all)
            })
        });
        writer.counter(
            "gateway_refusals",
            "Requests that the gateway refused, by the policy that refused and the participant.",
            lines,
        );
        self.write_process(writer);
    }

    fn write_process(&self, writer: &mut MetricsWriter<'_>) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let [applied, refused] = &self.0.reloads;
        writer.counter(
            "gateway_reloads",
            "Reloads of the configuration file, by result.",
            [
                ([("result", "applied")], load(applied)),
                ([("result", "refused")], load(refused)),
            ],
        );
        let none: &[(&str, &str)] = &[];
        let is_refused = self.0.is_reload_refused.load(Ordering::Relaxed);
        writer.gauge(
            "gateway_last_reload_successful",
            "0 if the last reload of the configuration file was refused, else 1.",
            [(none, u64::from(!is_refused))],
        );
        writer.gauge(
            "gateway_client_connections",
            "Open connections of clients.",
            [(none, load(&self.0.connections))],
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_remembered_for_some_minutes_and_by_participant() {
        let metrics = GatewayMetrics::default();
        let minute = |number: u64| (1_000 + number) * MINUTE_US;
        let recent =
            |participant, number| metrics.recent_refusals(participant, "p", minute(number));
        metrics.count_refusal(Some("A"), "p", minute(0));
        metrics.count_refusal(Some("A"), "p", minute(4));
        metrics.count_refusal(Some("B"), "p", minute(4));
        metrics.count_refusal(None, "p", minute(4));
        assert_eq!((recent(Some("A"), 4), recent(Some("B"), 4)), (2, 1));
        assert_eq!((recent(Some("C"), 4), recent(None, 4)), (0, 4));
        assert_eq!(recent(Some("A"), 5), 1);
        metrics.count_refusal(Some("A"), "p", minute(5));
        assert_eq!(recent(Some("A"), 5), 2);
        assert_eq!(recent(None, 100), 0);
        assert_eq!(metrics.recent_refusals(None, "other", minute(5)), 0);
    }

    #[test]
    fn participants_that_are_counted_apart_are_bounded() {
        let metrics = GatewayMetrics::default();
        for number in 0..REFUSED_PAIRS_MAX + 10 {
            metrics.count_refusal(Some(&number.to_string()), "p", MINUTE_US);
        }
        let refusals = metrics.0.refusals.lock();
        assert_eq!(refusals.policies["p"].len(), REFUSED_PAIRS_MAX + 1);
        assert_eq!(refusals.policies["p"][""].all, 10);
    }
}
