//! A server that is well, at the end of a link that is not.

use std::time::{Duration, Instant};

use balde::StoreFailure::{self, BreakerOpen, Disconnected, Timeout};

use super::chaos_proxy::{ChaosProxy, Weather};
use super::load::{Load, Seen};
use super::redis_server::RedisServer;
use super::{BACK_WITHIN, Mode, TIMEOUT, for_a_while, store, story};

const SEED: u64 = 0x0BA1_DE00;

/// A link that swallows everything is found out by looking in vain, and the next connection may
/// be under way inside it when it ends: nothing but time tells such a one from a slow one.
const OUT_OF_THE_HOLE_WITHIN: Duration = Duration::from_secs(30);

struct Scene {
    name: &'static str,
    _server: RedisServer,
    proxy: ChaosProxy,
    load: Load,
}

impl Scene {
    async fn set(name: &'static str, mode: Mode) -> Option<Self> {
        let server = RedisServer::start()?;
        let proxy = ChaosProxy::start(server.addr(), SEED).await;
        let load = Load::start(&store(proxy.url()), mode).await;
        for_a_while(200).await;
        Some(Self {
            name,
            _server: server,
            proxy,
            load,
        })
    }

    async fn turn(&self, weather: Weather, ms: u64) {
        self.proxy.turn(weather);
        for_a_while(ms).await;
    }

    async fn clears_up(&self, within: Duration) {
        self.proxy.turn(Weather::Fair);
        let back = self.load.until_back(within).await;
        println!("{}: back {back:?} after it cleared up", self.name);
        for_a_while(100).await;
    }

    async fn end(self, failures: &[StoreFailure], in_doubt: &[StoreFailure]) -> Seen {
        for_a_while(200).await;
        let seen = self.load.stop().await;
        seen.holds(self.name, failures);
        seen.nothing_was_consumed_but_grants(self.name, in_doubt)
            .await;
        seen
    }
}

#[test]
fn a_slow_link_is_waited_for_and_one_too_slow_is_not() {
    slow(Mode::Plain);
}

fn slow(mode: Mode) {
    story(async {
        let Some(scene) = Scene::set("slow", mode).await else {
            return;
        };
        let bearable = Instant::now();
        scene.turn(Weather::Slow(TIMEOUT / 10), 500).await;
        // Those that begin now may still be under way when it gets worse.
        let nearly_unbearable = Instant::now();
        for_a_while(100).await;
        scene.turn(Weather::Slow(TIMEOUT), 800).await;
        scene.clears_up(BACK_WITHIN).await;
        let seen = scene.end(&[Timeout, BreakerOpen], &[]).await;
        // A busy machine is slow, too.
        assert!(seen.fallback_percent(bearable, nearly_unbearable) < 50);
        assert!(seen.met(Timeout) > 0 && seen.failed(BreakerOpen) > 0);
    });
}

#[test]
fn a_lossy_link_costs_the_calls_that_were_on_it() {
    lossy(Mode::Plain);
}

#[test]
fn a_lossy_link_costs_the_calls_that_were_on_it_on_leases() {
    lossy(Mode::Leased);
}

fn lossy(mode: Mode) {
    println!("seed {SEED}");
    story(async {
        let Some(scene) = Scene::set("lossy", mode).await else {
            return;
        };
        scene.turn(Weather::Lossy { per_mille: 10 }, 2_000).await;
        scene.clears_up(BACK_WITHIN).await;
        let failures = [Disconnected, BreakerOpen, Timeout];
        let seen = scene.end(&failures, &[Disconnected, Timeout]).await;
        assert!(seen.met(Disconnected) > 0);
    });
}

#[test]
fn a_link_that_is_cut_or_reset_comes_back() {
    broken(Mode::Plain);
}

fn broken(mode: Mode) {
    for (name, weather) in [("cut", Weather::Cut), ("reset", Weather::Reset)] {
        story(async {
            let Some(scene) = Scene::set(name, mode).await else {
                return;
            };
            for _ in 0..3 {
                scene.turn(weather, 200).await;
                scene.clears_up(BACK_WITHIN).await;
            }
            // Too short to be noticed by anybody but those on it.
            for _ in 0..10 {
                scene.turn(weather, 1).await;
                scene.turn(Weather::Fair, 30).await;
            }
            scene.clears_up(BACK_WITHIN).await;
            let failures = [Disconnected, BreakerOpen, Timeout];
            let seen = scene.end(&failures, &[Disconnected, Timeout]).await;
            assert!(seen.met(Disconnected) > 0 && seen.failed(BreakerOpen) > 0);
        });
    }
}

#[test]
fn an_answer_that_breaks_off_is_none() {
    half_closed(Mode::Plain);
}

fn half_closed(mode: Mode) {
    story(async {
        let Some(scene) = Scene::set("broken off", mode).await else {
            return;
        };
        // Within an answer, and long after the greeting.
        for after_bytes in [1_001, 5_017, 1_001, 1_013] {
            scene.turn(Weather::HalfClose { after_bytes }, 150).await;
        }
        scene.clears_up(BACK_WITHIN).await;
        let failures = [Disconnected, BreakerOpen, Timeout];
        let seen = scene.end(&failures, &[Disconnected, Timeout]).await;
        assert!(seen.met(Disconnected) > 0);
    });
}

#[test]
fn a_black_hole_is_noticed_and_left_behind() {
    black_hole(Mode::Plain);
}

#[test]
fn a_black_hole_is_noticed_and_left_behind_on_leases() {
    black_hole(Mode::Leased);
}

fn black_hole(mode: Mode) {
    story(async {
        let Some(scene) = Scene::set("black hole", mode).await else {
            return;
        };
        for ms in [150, 2_000] {
            scene.turn(Weather::BlackHole, ms).await;
            scene.clears_up(OUT_OF_THE_HOLE_WITHIN).await;
        }
        let failures = [Timeout, BreakerOpen, Disconnected];
        // Its answers may be swallowed where its questions were not.
        let seen = scene.end(&failures, &[Timeout, Disconnected]).await;
        assert!(seen.met(Timeout) > 0);
        assert!(seen.failed(BreakerOpen) > seen.failed(Timeout));
    });
}
