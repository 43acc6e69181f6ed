//! A partition's health through errors and recovery, in fixed sequences and in random ones.

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000;

fn degradation() -> Degradation {
    Degradation::new()
        .recovery(Duration::from_secs(10))
        .reset(Duration::from_secs(5))
}

#[test]
fn errors_leave_nine_tenths_rounded_down_until_the_floor_opens_the_circuit() {
    let degradation = degradation();
    let mut health = Health::new(2_000);
    let mut rates = Vec::new();
    let opened = loop {
        let change = health.record_error(&degradation, None, 0);
        rates.push(health.current());
        if change.circuit.is_some() {
            break change;
        }
    };
    assert_eq!(rates[..5], [1_800, 1_620, 1_458, 1_312, 1_180]);
    assert_eq!(opened.rate, Some((216, 200)), "{rates:?}");
    assert_eq!(opened.circuit, Some(Circuit::Open));
    let (admission, _) = health.admit(&degradation, 4_999_999);
    assert_eq!(
        admission,
        Admission::Refused {
            until_us: 5 * SECOND
        }
    );
}

#[test]
fn it_half_opens_with_a_few_probes_closes_at_the_floor_and_climbs_a_step_per_interval() {
    let degradation = degradation();
    let mut health = Health::new(1_000);
    while health.circuit() == Circuit::Closed {
        health.record_error(&degradation, None, 0);
    }
    let (admission, change) = health.admit(&degradation, 5 * SECOND);
    assert_eq!(admission, Admission::Yes);
    assert_eq!(change.circuit, Some(Circuit::HalfOpen));
    let epoch = health.epoch();
    for _ in 0..3 {
        assert_eq!(health.admit(&degradation, 5 * SECOND).0, Admission::Yes);
        health.record_admitted(5 * SECOND);
    }
    let until_us = 10 * SECOND;
    assert_eq!(
        health.admit(&degradation, 5 * SECOND).0,
        Admission::Wait { until_us }
    );

    // Outcomes of requests from before the circuit opened are ignored.
    assert_eq!(
        health.record_error(&degradation, Some(0), 6 * SECOND),
        Change::default()
    );
    assert_eq!(
        health
            .record_success(&degradation, Some(epoch), 6 * SECOND)
            .circuit,
        None
    );
    assert_eq!(
        health
            .record_success(&degradation, Some(epoch), 6 * SECOND)
            .circuit,
        None
    );
    let closed = health.record_success(&degradation, Some(epoch), 6 * SECOND);
    assert_eq!(closed.circuit, Some(Circuit::Closed));
    assert_eq!(health.current(), 100);

    let mut now_us = 6 * SECOND;
    for expected in (2..=10).map(|tenth| tenth * 100) {
        let early = health.record_success(&degradation, Some(epoch), now_us + 10 * SECOND - 1);
        assert_eq!(early, Change::default());
        now_us += 10 * SECOND;
        let raised = health.record_success(&degradation, Some(epoch), now_us);
        assert_eq!(raised.rate, Some((expected - 100, expected)));
        let again = health.record_success(&degradation, Some(epoch), now_us);
        assert_eq!(again, Change::default(), "one step to an interval");
    }
    assert!(health.is_healthy());
}

#[test]
fn a_probe_that_fails_opens_again_and_one_that_never_answers_is_replaced() {
    let degradation = degradation().probes(1);
    let mut health = Health::new(1);
    assert_eq!(
        health.record_error(&degradation, None, 0).circuit,
        Some(Circuit::Open),
        "a rate of one is its own floor"
    );
    assert_eq!(health.admit(&degradation, 5 * SECOND).0, Admission::Yes);
    health.record_admitted(5 * SECOND);
    assert!(matches!(
        health.admit(&degradation, 9 * SECOND).0,
        Admission::Wait { .. }
    ));
    assert_eq!(health.admit(&degradation, 10 * SECOND).0, Admission::Yes);
    health.record_admitted(10 * SECOND);
    health.record_abandoned(Some(health.epoch()));
    assert_eq!(health.admit(&degradation, 10 * SECOND).0, Admission::Yes);
    health.record_admitted(10 * SECOND);
    let change = health.record_error(&degradation, Some(health.epoch()), 11 * SECOND);
    assert_eq!(change.circuit, Some(Circuit::Open));
    assert_eq!(health.open_until_us(), Some(16 * SECOND));
}

#[test]
fn errors_within_the_spacing_count_once() {
    let degradation = degradation().spacing(Duration::from_secs(1));
    let mut health = Health::new(1_000);
    for _ in 0..50 {
        health.record_error(&degradation, None, 7);
    }
    assert_eq!(health.current(), 900);
    health.record_error(&degradation, None, 7 + SECOND);
    assert_eq!(health.current(), 810);
}

#[test]
fn invalid_settings_are_refused_by_name() {
    for (degradation, which) in [
        (Degradation::new().ratio(Share::percent(100)), "ratio"),
        (Degradation::new().ratio(Share::percent(0)), "ratio"),
        (Degradation::new().floor(Share::percent(101)), "floor"),
        (Degradation::new().step(Share::one_in(0)), "step"),
        (Degradation::new().recovery(Duration::ZERO), "recovery"),
        (Degradation::new().reset(Duration::MAX), "reset"),
        (Degradation::new().spacing(Duration::MAX), "spacing"),
        (Degradation::new().probes(0), "probes"),
    ] {
        let error = degradation.check().expect_err(which).to_string();
        assert!(error.starts_with(which), "{error}");
    }
    assert_eq!(Degradation::new().check(), Ok(()));
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Error { is_stale: bool },
    Success { is_stale: bool },
    Admit,
    Abandon,
}

fn events() -> impl Strategy<Value = Vec<(Event, u64)>> {
    let event = prop_oneof![
        any::<bool>().prop_map(|is_stale| Event::Error { is_stale }),
        any::<bool>().prop_map(|is_stale| Event::Success { is_stale }),
        Just(Event::Admit),
        Just(Event::Abandon),
    ];
    prop::collection::vec((event, 0..8 * SECOND), 1..200)
}

proptest! {
    #[test]
    fn in_every_sequence_the_rate_stays_between_floor_and_configured(
        configured in 1_u64..5_000,
        percent in 1_u32..100,
        events in events(),
    ) {
        let degradation = degradation().ratio(Share::percent(percent));
        let mut health = Health::new(configured);
        let floor = degradation.floor_of(configured);
        let (mut now_us, mut last_raise_us, mut last_error_us) = (0, None::<u64>, None::<u64>);
        let mut out: u32 = 0;
        for (event, after_us) in events {
            now_us += after_us;
            let before = health;
            let epoch = |is_stale: bool| {
                Some(if is_stale { before.epoch().wrapping_sub(1) } else { before.epoch() })
            };
            let change = match event {
                Event::Error { is_stale } => {
                    let change = health.record_error(&degradation, epoch(is_stale), now_us);
                    if is_stale {
                        prop_assert_eq!(health, before);
                    } else if before.circuit() == Circuit::Closed {
                        let expected = degradation.ratio.of_tokens(before.current()).max(floor);
                        prop_assert_eq!(health.current(), expected.min(before.current()));
                        last_error_us = Some(now_us);
                        prop_assert_eq!(health.current() <= floor, health.circuit() == Circuit::Open);
                    } else {
                        prop_assert_eq!(health.circuit(), Circuit::Open);
                    }
                    change
                }
                Event::Success { is_stale } => {
                    let change = health.record_success(&degradation, epoch(is_stale), now_us);
                    if is_stale {
                        prop_assert_eq!(health, before);
                    }
                    if let Some((from, to)) = change.rate {
                        prop_assert!(to > from && to - from <= degradation.step.of_tokens(configured));
                        for quiet in [last_raise_us, last_error_us].into_iter().flatten() {
                            prop_assert!(now_us >= quiet + 10 * SECOND);
                        }
                        last_raise_us = Some(now_us);
                    }
                    change
                }
                Event::Admit => {
                    let (admission, change) = health.admit(&degradation, now_us);
                    match admission {
                        Admission::Yes => health.record_admitted(now_us),
                        Admission::Refused { until_us } | Admission::Wait { until_us } => {
                            prop_assert!(until_us > now_us);
                        }
                    }
                    if let State::HalfOpen(probes) = health.state {
                        prop_assert!(probes.issued <= degradation.probes.max(probes.passed + 1));
                        out = probes.issued;
                    }
                    change
                }
                Event::Abandon => {
                    health.record_abandoned(None);
                    Change::default()
                }
            };
            prop_assert!((floor..=configured).contains(&health.current()));
            // The change that is returned is the one that happened.
            let returned = change.rate.map_or(before.current(), |(_, to)| to);
            prop_assert_eq!(returned, health.current());
            prop_assert_eq!(change.circuit.is_some(), before.circuit() != health.circuit());
            if health.circuit() != Circuit::Closed {
                prop_assert_eq!(health.current(), floor);
            }
        }
        let _ = out;
    }
}
