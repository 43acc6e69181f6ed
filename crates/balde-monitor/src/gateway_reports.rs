//! Reads the reports of gateways regularly, also between two polls and on a standby monitor. A report
//! is for people: it shows what a gateway refused and which payers stand out. Reading one costs no
//! token of DICT's.

use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};

use crate::cycle::Cycle;
use crate::source::{GatewayClient, Source};

/// How old a report may become before it is read again. A payer that scans is shown within a minute.
const AGE_MAX: Duration = Duration::from_secs(30);

/// How many gateways are asked at a time.
const CONCURRENT_MAX: usize = 8;

/// Keeps the reports of all gateways younger than a minute, for as long as the future is polled.
pub(crate) async fn keep_fresh(cycle: Cycle) {
    let components = cycle.components();
    let gateway = |(participant, source): (&'_ String, &'_ Source)| {
        let gateway = source.gateway()?.clone();
        Some((participant.clone(), gateway))
    };
    let gateways: Vec<(String, GatewayClient)> =
        components.sources.iter().filter_map(gateway).collect();
    if gateways.is_empty() {
        return;
    }
    let age_max_us = u64::try_from(AGE_MAX.as_micros()).unwrap_or(u64::MAX);
    loop {
        let now_us = components.time.now_us();
        components.time.sleep_until(now_us + age_max_us / 2).await;
        let oldest_us = components.time.now_us().saturating_sub(age_max_us / 2);
        let is_old = |gateway: &GatewayClient| {
            let report = gateway.report();
            report.is_none_or(|report| report.read_us <= oldest_us)
        };
        let old = gateways.iter().filter(|(_, gateway)| is_old(gateway));
        stream::iter(old)
            .for_each_concurrent(CONCURRENT_MAX, |(participant, gateway)| async {
                let now_us = || components.time.now_us();
                // The next poll reports a gateway that does not answer.
                let _read_or_not = gateway.refresh(participant, now_us).await;
            })
            .await;
    }
}
