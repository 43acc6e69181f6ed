//! The Prometheus metrics of the buckets and of the monitor itself.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use balde::telemetry::{dropped_log_lines, prometheus_text};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::view::{BucketView, View};
use crate::coverage::Coverage;
use crate::cycle::Unstored;
use crate::delivery::Dispatcher;
use crate::history::{AlertCount, Backlog};
use crate::severity::Severity;
use crate::status::PollStatus;

type Ratio = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BucketLabels {
    participant: String,
    policy: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AlertLabels {
    participant: String,
    policy: String,
    severity: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ParticipantLabels {
    participant: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PollLabels {
    participant: String,
    outcome: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SinkLabels {
    sink: String,
}

/// The data of the metrics page.
pub(super) struct MetricsPage<'a> {
    pub(super) view: &'a View,
    pub(super) counts: &'a [AlertCount],
    pub(super) poll_statuses: &'a BTreeMap<String, PollStatus>,
    pub(super) certificates: &'a BTreeMap<String, u64>,
    pub(super) coverage: &'a BTreeMap<String, Vec<Coverage>>,
    pub(super) backlog: &'a [Backlog],
    pub(super) dispatcher: &'a Dispatcher,
    pub(super) is_leader: bool,
    pub(super) unstored: Unstored,
}

impl MetricsPage<'_> {
    /// Renders the page as text.
    pub(super) fn text(&self) -> String {
        let mut registry = Registry::default();
        self.buckets(&mut registry);
        self.alerts(&mut registry);
        self.polls(&mut registry);
        self.deliveries(&mut registry);
        let leader = Gauge::<i64>::default();
        leader.set(i64::from(self.is_leader));
        let help = "1 if this monitor is the leader, which polls and delivers";
        registry.register("balde_monitor_leader", help, leader);
        self.storage(&mut registry);
        let dropped = Counter::<u64, AtomicU64>::default();
        dropped.inc_by(dropped_log_lines());
        let help = "Log lines that were dropped because standard output did not keep up";
        registry.register("balde_log_lines_dropped", help, dropped);
        let mut openmetrics = String::new();
        let encoded = prometheus_client::encoding::text::encode(&mut openmetrics, &registry);
        encoded.expect("writing into a string does not fail");
        prometheus_text(&openmetrics)
    }

    fn buckets(&self, registry: &mut Registry) {
        let tokens = Family::<BucketLabels, Gauge>::default();
        let capacity = Family::<BucketLabels, Gauge>::default();
        let utilisation = Family::<BucketLabels, Ratio>::default();
        let ratio = Family::<BucketLabels, Ratio>::default();
        let severity = Family::<BucketLabels, Gauge>::default();
        let burn = Family::<BucketLabels, Ratio>::default();
        let empty = Family::<BucketLabels, Ratio>::default();
        let recovery = Family::<BucketLabels, Ratio>::default();
        let predicted = Family::<BucketLabels, Gauge>::default();
        let sampled = Family::<BucketLabels, Ratio>::default();
        // Stale levels are left out, because they are no longer known to be true.
        for participant in self.view.participants.iter().filter(|one| !one.is_stale) {
            for bucket in &participant.buckets {
                let labels = BucketLabels {
                    participant: participant.participant.clone(),
                    policy: bucket.policy.clone(),
                };
                tokens.get_or_create(&labels).set(bucket.level);
                let most = i64::try_from(bucket.capacity).unwrap_or(i64::MAX);
                capacity.get_or_create(&labels).set(most);
                let percent = hundredths(bucket.utilisation_bp);
                utilisation.get_or_create(&labels).set(percent);
                let share = ten_thousandths(bucket.utilisation_bp);
                ratio.get_or_create(&labels).set(share);
                severity.get_or_create(&labels).set(bucket.severity as i64);
                let is_predicted = i64::from(bucket.is_predicted);
                predicted.get_or_create(&labels).set(is_predicted);
                let at = seconds(bucket.sampled_us);
                sampled.get_or_create(&labels).set(at);
                if let Some(rate) = per_second(bucket) {
                    burn.get_or_create(&labels).set(rate);
                }
                if let Some(us) = bucket.recovery_us {
                    recovery.get_or_create(&labels).set(seconds(us));
                }
                let forecast = bucket.time_to_empty.as_ref();
                if let Some(us) = forecast.and_then(|forecast| forecast.expected_us) {
                    empty.get_or_create(&labels).set(seconds(us));
                }
            }
        }
        let name = "dict_rate_limit_available_tokens";
        registry.register(
            name,
            "Tokens left in the bucket; negative when in debt",
            tokens,
        );
        let help = "Capacity of the bucket in tokens";
        registry.register("dict_rate_limit_capacity", help, capacity);
        let help = "Share of capacity in use, in percent; above 100 when in debt";
        registry.register("dict_rate_limit_utilization_pct", help, utilisation);
        let help = "Share of capacity in use, from 0 to 1; above 1 when in debt";
        registry.register("dict_rate_limit_utilization_ratio", help, ratio);
        let help = "Severity of the bucket: 0 NORMAL, 1 WARNING, 2 CRITICAL, 3 EXHAUSTED";
        registry.register("dict_rate_limit_severity", help, severity);
        let name = "dict_rate_limit_burn_tokens_per_second";
        registry.register(
            name,
            "Tokens consumed per second within the shortest window",
            burn,
        );
        let name = "dict_rate_limit_time_to_empty_seconds";
        let help = "Forecast time until the bucket is empty at the current rate; absent without a forecast";
        registry.register(name, help, empty);
        let name = "dict_rate_limit_recovery_seconds";
        let help = "Time until the bucket is full again if nothing more is consumed; absent if it never refills";
        registry.register(name, help, recovery);
        let help = "1 while the monitor's alert that the bucket will be empty soon is open";
        registry.register("dict_rate_limit_predicted", help, predicted);
        let help = "Time of the newest sample of the bucket";
        registry.register("dict_rate_limit_sample_timestamp_seconds", help, sampled);
    }

    fn storage(&self, registry: &mut Registry) {
        let gauge = |value: usize| {
            let gauge = Gauge::<i64>::default();
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
            gauge
        };
        let failure = self.view.storage_failure.as_ref();
        let help = "1 if the database accepts writes, 0 while the monitor goes on from memory";
        let is_up = gauge(usize::from(failure.is_none()));
        registry.register("balde_monitor_storage_up", help, is_up);
        let help = "Polls that wait in memory because the database accepts no writes";
        let polls = gauge(self.unstored.polls);
        registry.register("balde_monitor_unstored_polls", help, polls);
        let help =
            "Events that were sent, but not recorded, because the database accepts no writes";
        let events = gauge(self.unstored.events);
        registry.register("balde_monitor_unstored_events", help, events);
    }

    fn alerts(&self, registry: &mut Registry) {
        let alerts = Family::<AlertLabels, Counter>::default();
        // Every counter exists from the start: the first alert is an increase from 0, too.
        for participant in &self.view.participants {
            let policies = participant.buckets.iter().map(|one| one.policy.as_str());
            let severities = [Severity::Warning, Severity::Critical, Severity::Exhausted];
            for policy in policies.chain([""]) {
                for severity in severities {
                    let _zero = alerts.get_or_create(&AlertLabels {
                        participant: participant.participant.clone(),
                        policy: policy.to_owned(),
                        severity: severity.name(),
                    });
                }
            }
        }
        for count in self.counts {
            let labels = AlertLabels {
                participant: count.participant.clone(),
                policy: count.policy.clone().unwrap_or_default(),
                severity: count.severity.name(),
            };
            alerts.get_or_create(&labels).inc_by(count.alerts);
        }
        let help = "Alerts raised, including predicted alerts and stale data";
        registry.register("dict_rate_limit_alerts", help, alerts);
    }

    fn polls(&self, registry: &mut Registry) {
        let polls = Family::<PollLabels, Counter>::default();
        let took = Family::<ParticipantLabels, Ratio>::default();
        for (participant, status) in self.poll_statuses {
            let of = |outcome: &str| PollLabels {
                participant: participant.clone(),
                outcome: outcome.to_owned(),
            };
            polls.get_or_create(&of("success")).inc_by(status.successes);
            for (label, failures) in &status.failures {
                polls.get_or_create(&of(label)).inc_by(*failures);
            }
            if let Some(us) = status.last_duration_us {
                let labels = ParticipantLabels {
                    participant: participant.clone(),
                };
                took.get_or_create(&labels).set(seconds(us));
            }
        }
        let answered = Family::<ParticipantLabels, Ratio>::default();
        let stale = Family::<ParticipantLabels, Gauge>::default();
        for participant in &self.view.participants {
            let labels = ParticipantLabels {
                participant: participant.participant.clone(),
            };
            stale
                .get_or_create(&labels)
                .set(i64::from(participant.is_stale));
            let us = participant.last_poll_us.unwrap_or(0);
            answered.get_or_create(&labels).set(seconds(us));
        }
        let coverage = Family::<BucketLabels, Ratio>::default();
        for (participant, one) in self.coverage.iter().flat_map(|(participant, buckets)| {
            buckets.iter().map(move |bucket| (participant, bucket))
        }) {
            let labels = BucketLabels {
                participant: participant.clone(),
                policy: one.policy.clone(),
            };
            let interval = seconds(one.interval_us);
            coverage.get_or_create(&labels).set(interval);
        }
        let help = "Longest time that the bucket can be at WARNING or worse without being seen";
        registry.register("balde_monitor_coverage_seconds", help, coverage);
        let expiry = Family::<ParticipantLabels, Ratio>::default();
        for (participant, us) in self.certificates {
            let labels = ParticipantLabels {
                participant: participant.clone(),
            };
            expiry.get_or_create(&labels).set(seconds(*us));
        }
        let help = "When the first certificate of the participant's client chain expires";
        registry.register(
            "balde_monitor_certificate_expiry_timestamp_seconds",
            help,
            expiry,
        );
        let help = "Polls by outcome: success or the label of the error";
        registry.register("balde_monitor_polls", help, polls);
        let help = "Duration of the last successful poll";
        registry.register("balde_monitor_poll_duration_seconds", help, took);
        let help = "Time of the newest stored poll; 0 before the first";
        registry.register(
            "balde_monitor_last_success_timestamp_seconds",
            help,
            answered,
        );
        let help = "1 if the newest poll of the participant is too old";
        registry.register("balde_monitor_stale", help, stale);
    }

    fn deliveries(&self, registry: &mut Registry) {
        let of = |sink: &str| SinkLabels {
            sink: sink.to_owned(),
        };
        let delivered = Family::<SinkLabels, Counter>::default();
        let failed = Family::<SinkLabels, Counter>::default();
        let refused = Family::<SinkLabels, Counter>::default();
        let waiting = Family::<SinkLabels, Gauge>::default();
        for (sink, counters) in self.dispatcher.counters() {
            let labels = of(sink);
            delivered
                .get_or_create(&labels)
                .inc_by(counters.delivered());
            failed.get_or_create(&labels).inc_by(counters.failed());
            refused.get_or_create(&labels).inc_by(counters.rejected());
            let in_memory = i64::try_from(counters.waiting_in_memory()).unwrap_or(i64::MAX);
            waiting.get_or_create(&labels).set(in_memory);
        }
        for backlog in self.backlog {
            let messages = i64::try_from(backlog.waiting).unwrap_or(i64::MAX);
            waiting.get_or_create(&of(&backlog.sink)).inc_by(messages);
        }
        let help = "Alerts delivered since the start";
        registry.register("balde_monitor_deliveries", help, delivered);
        let help = "Failed delivery attempts since the start";
        registry.register("balde_monitor_delivery_failures", help, failed);
        let help = "Delivery attempts that the receiver rejected permanently";
        registry.register("balde_monitor_delivery_rejections", help, refused);
        let help = "Alerts waiting for delivery";
        registry.register("balde_monitor_pending_deliveries", help, waiting);
    }
}

/// The burn rate of the shortest window; `None` for a bucket that was full all the time.
#[expect(clippy::float_arithmetic, reason = "Prometheus counts in floats")]
#[expect(clippy::cast_precision_loss, reason = "a rate is no count")]
fn per_second(bucket: &BucketView) -> Option<f64> {
    let burn = bucket
        .burn_rates
        .first()
        .filter(|burn| !burn.is_upper_bound)?;
    Some(burn.expected_milli_per_minute as f64 / 60_000.0)
}

#[expect(clippy::float_arithmetic, reason = "Prometheus counts in floats")]
#[expect(clippy::cast_precision_loss, reason = "a share is no count")]
fn hundredths(bp: i64) -> f64 {
    bp as f64 / 100.0
}

#[expect(clippy::float_arithmetic, reason = "Prometheus counts in floats")]
#[expect(clippy::cast_precision_loss, reason = "a share is no count")]
fn ten_thousandths(bp: i64) -> f64 {
    bp as f64 / 10_000.0
}

#[expect(clippy::float_arithmetic, reason = "Prometheus counts in floats")]
#[expect(clippy::cast_precision_loss, reason = "microseconds of 285 years fit")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}
