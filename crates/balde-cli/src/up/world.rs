//! A DICT whose time goes faster than the world's.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use balde::{Clock, ManualClock};
use balde_dict::Category;
use balde_dict::simulator::Simulator;
use balde_monitor::Monitor;
use tokio::task::JoinHandle;

/// Who keeps the keys that are looked up.
const KEEPER: &str = "99999999";

/// How often the clock is moved.
const TICK: Duration = Duration::from_millis(5);

/// A clock that is moved for as long as this is here.
pub(super) struct World {
    clock: ManualClock,
    moving: JoinHandle<()>,
}

impl World {
    /// From now on, `speed` times faster.
    pub(super) fn start(speed: u32) -> Self {
        let clock = ManualClock::at_us(Clock::wall().now_us());
        let moved = clock.clone();
        let moving = tokio::spawn(async move {
            let mut last = Instant::now();
            loop {
                tokio::time::sleep(TICK).await;
                let now = Instant::now();
                moved.advance((now - last) * speed);
                last = now;
            }
        });
        Self { clock, moving }
    }

    pub(super) fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// A DICT in that world.
    pub(super) async fn simulator(
        &self,
        participant: &str,
        category: char,
        entries: usize,
    ) -> anyhow::Result<Simulator> {
        let simulator = Simulator::builder().manual_clock(&self.clock).build()?;
        let category = Category::new(category).context("a category is a letter")?;
        simulator.assign(participant, category).await?;
        simulator
            .directory()
            .seed_generated(KEEPER, entries)
            .await?;
        Ok(simulator)
    }

    /// A history that was kept has seen a future: go on from there.
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
        if let Some(us) = newest_us.filter(|us| *us >= self.clock.now_us()) {
            self.clock.set_us(us + 1_000_000);
        }
        Ok(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.moving.abort();
    }
}
