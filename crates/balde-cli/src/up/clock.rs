//! A clock that runs faster than real time, and a simulator that uses it.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use balde::{Clock, ManualClock};
use balde_dict::Category;
use balde_monitor::Monitor;
use balde_simulator::Simulator;
use tokio::task::JoinHandle;

/// The participant of the generated entries.
const ENTRIES_PARTICIPANT: &str = "99999999";

/// How often the clock is advanced.
const TICK: Duration = Duration::from_millis(5);

/// Advances a manual clock until it is dropped.
pub(super) struct AcceleratedClock {
    manual: ManualClock,
    ticking: JoinHandle<()>,
}

impl AcceleratedClock {
    /// Starts at the real time, and runs `speed` times faster.
    pub(super) fn start(speed: u32) -> Self {
        let manual = ManualClock::at_us(Clock::wall().now_us());
        let advanced = manual.clone();
        let ticking = tokio::spawn(async move {
            let mut last = Instant::now();
            loop {
                tokio::time::sleep(TICK).await;
                let now = Instant::now();
                advanced.advance((now - last) * speed);
                last = now;
            }
        });
        Self { manual, ticking }
    }

    pub(super) fn manual(&self) -> &ManualClock {
        &self.manual
    }

    /// Builds a simulator that uses this clock.
    pub(super) async fn simulator(
        &self,
        participant: &str,
        category: char,
        entries: usize,
    ) -> anyhow::Result<Simulator> {
        let simulator = Simulator::builder().manual_clock(&self.manual).build()?;
        let category = Category::new(category).context("a category is a letter")?;
        simulator.assign(participant, category).await?;
        simulator
            .directory()
            .seed_generated(ENTRIES_PARTICIPANT, entries, |_, _| ())
            .await?;
        Ok(simulator)
    }

    /// Advances the clock past the newest sample of a history that an earlier, accelerated run has left.
    pub(super) async fn catch_up(&self, monitor: &Monitor) -> anyhow::Result<()> {
        let states = monitor
            .cycle()
            .components()
            .history
            .latest_samples()
            .await?;
        let newest_us = states
            .iter()
            .map(balde_monitor::sample::Sample::taken_us)
            .max();
        if let Some(us) = newest_us.filter(|us| *us >= self.manual.now_us()) {
            self.manual.set_us(us + 1_000_000);
        }
        Ok(())
    }
}

impl Drop for AcceleratedClock {
    fn drop(&mut self) {
        self.ticking.abort();
    }
}
