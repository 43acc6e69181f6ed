//! One server that is unwell.

use std::time::{Duration, Instant};

use balde::StoreFailure::{BreakerOpen, Disconnected, NotReady, OutOfMemory, ReadOnly, Timeout};
use redis::Connection;

use super::load::Load;
use super::redis_server::RedisServer;
use super::{BACK_WITHIN, Mode, for_a_while, store, story};

/// What the server has answered survives its death: it is written before a caller is answered. With
/// the default, `everysec`, Redis puts off writing while a busy disk syncs, for up to two seconds.
const KEEPS_ALL: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "no"];

fn admin(server: &RedisServer) -> Connection {
    let client = redis::Client::open(server.url()).expect("an address");
    client.get_connection().expect("a connection")
}

fn tell(admin: &mut Connection, words: &str) {
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().expect("a command"));
    for word in words {
        command.arg(word);
    }
    command.exec(admin).expect("done");
}

#[test]
fn killed_and_restarted_under_load() {
    killed(Mode::Plain);
}

#[test]
fn killed_and_restarted_under_load_on_leases() {
    killed(Mode::Leased);
}

fn killed(mode: Mode) {
    story(async {
        let Some(mut server) = RedisServer::start_with(&KEEPS_ALL) else {
            return;
        };
        let store = store(server.url());
        let load = Load::start(&store, mode).await;
        for _ in 0..3 {
            for_a_while(300).await;
            server.kill();
            for_a_while(500).await;
            server.restart();
            let back = load.until_back(BACK_WITHIN).await;
            println!("killed: back {back:?} after the restart");
        }
        for_a_while(200).await;
        let seen = load.stop().await;
        seen.holds("killed", &[Disconnected, BreakerOpen, NotReady, Timeout]);
        assert!(seen.met(Disconnected) > 0 && seen.failed(BreakerOpen) > 0);
        let in_doubt = [Disconnected, Timeout];
        seen.nothing_was_consumed_but_grants("killed", &in_doubt)
            .await;
    });
}

#[test]
fn frozen_and_thawed_under_load() {
    frozen(Mode::Plain);
}

#[test]
fn frozen_and_thawed_under_load_on_leases() {
    frozen(Mode::Leased);
}

fn frozen(mode: Mode) {
    story(async {
        let Some(server) = RedisServer::start() else {
            return;
        };
        let store = store(server.url());
        let load = Load::start(&store, mode).await;
        for_a_while(300).await;
        let frozen = Instant::now();
        server.pause();
        for_a_while(1_500).await;
        let thawed = Instant::now();
        server.resume();
        let back = load.until_back(BACK_WITHIN).await;
        println!("frozen: back {back:?} after the thaw");
        let is_back = Instant::now();
        for_a_while(500).await;
        let seen = load.stop().await;
        seen.holds("frozen", &[Timeout, BreakerOpen]);
        assert!(seen.met(Timeout) > 0);
        assert!(seen.failed(BreakerOpen) > seen.failed(Timeout));
        assert!(seen.fallback_percent(frozen, thawed) > 50);
        assert!(seen.fallback_percent(is_back, Instant::now()) < 10);
        // Calls that were on their way were decided at the thaw, and then given back.
        seen.nothing_was_consumed_but_grants("frozen", &[]).await;
    });
}

#[test]
fn scripts_flushed_under_load() {
    flushed(Mode::Plain);
}

#[test]
fn scripts_flushed_under_load_on_leases() {
    flushed(Mode::Leased);
}

fn flushed(mode: Mode) {
    story(async {
        let Some(server) = RedisServer::start() else {
            return;
        };
        let store = store(server.url());
        let load = Load::start(&store, mode).await;
        let mut admin = admin(&server);
        let began = Instant::now();
        for _ in 0..40 {
            tell(&mut admin, "SCRIPT FLUSH");
            for_a_while(25).await;
        }
        let seen = load.stop().await;
        let reloads = store.stats().reloads_total;
        println!("flushed: {reloads} reloads");
        assert!(mode == Mode::Leased || reloads >= 20);
        assert!(reloads > 0);
        // Nobody noticed.
        seen.holds("flushed", &[BreakerOpen]);
        assert!(seen.fallback_percent(began, Instant::now()) < 10);
        seen.nothing_was_consumed_but_grants("flushed", &[]).await;
    });
}

#[test]
fn out_of_memory_under_load() {
    let spells = [("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0")];
    taking_no_writes("full", &spells, OutOfMemory, Mode::Plain);
}

#[test]
fn read_only_under_load() {
    let spells = [
        // Demoted by a failover that nobody told us of.
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
        // Too few replicas to be trusted with a write.
        (
            "CONFIG SET min-replicas-to-write 1",
            "CONFIG SET min-replicas-to-write 0",
        ),
    ];
    for mode in [Mode::Plain, Mode::Leased] {
        taking_no_writes("read-only", &spells, ReadOnly, mode);
    }
}

/// A server that answers but does not decide, for a while, because of what it was told.
fn taking_no_writes(name: &str, spells: &[(&str, &str)], failure: balde::StoreFailure, mode: Mode) {
    story(async {
        let Some(server) = RedisServer::start() else {
            return;
        };
        let store = store(server.url());
        let load = Load::start(&store, mode).await;
        let mut admin = admin(&server);
        for (begin, end) in spells {
            for_a_while(200).await;
            let failed_before = store.stats().failures(failure);
            tell(&mut admin, begin);
            for_a_while(600).await;
            assert!(store.stats().failures(failure) > failed_before, "{begin}");
            tell(&mut admin, end);
            let back = load.until_back(BACK_WITHIN).await;
            println!("{name}: back {back:?} after {end}");
        }
        for_a_while(200).await;
        let seen = load.stop().await;
        seen.holds(name, &[failure, BreakerOpen]);
        assert!(seen.met(failure) > 0);
        seen.nothing_was_consumed_but_grants(name, &[]).await;
    });
}

#[test]
fn absent_when_the_program_starts() {
    story(async {
        let Some(mut server) = RedisServer::start() else {
            return;
        };
        server.kill();
        let store = store(server.url());
        let limiter = super::limiter(&store, Mode::Plain, balde::OnFailure::Deny);
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(400) {
            let called = Instant::now();
            let decision = limiter.check("early").await;
            assert!(called.elapsed() < super::CALL_WITHIN);
            assert!(!decision.is_allowed());
            assert!(matches!(
                decision.failure(),
                Some(Disconnected | BreakerOpen)
            ));
            for_a_while(1).await;
        }
        server.restart();
        let is_served = async || !limiter.check("late").await.is_fallback();
        super::until("a decision from Redis", BACK_WITHIN, is_served).await;
        assert_eq!(
            limiter.peek("early").await.unwrap().level(),
            super::CAPACITY
        );
    });
}
