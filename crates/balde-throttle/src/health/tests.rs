//! A partition's health through errors and recovery, in fixed sequences and in random ones.

use proptest::prelude::*;

use balde::Share;

use super::*;

const SECOND: u64 = 1_000_000;

fn degradation() -> Degradation {
    Degradation::strict()
        .recovery(Duration::from_secs(10))
        .reset(Duration::from_secs(5))
}

#[test]
fn errors_leave_nine_tenths_rounded_down_until_the_floor_opens_the_circuit() {
    let degradation = degradation();
    let mut health = Health::new(2_000);
    let mut rates = Vec::new();
    let opened = loop {
        let change = health.record_error(&degradation, None, 0, 0);
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
        health.record_error(&degradation, None, 0, 0);
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
        health.record_error(&degradation, Some(0), 0, 6 * SECOND),
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
        health.record_error(&degradation, None, 0, 0).circuit,
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
    let change = health.record_error(&degradation, Some(health.epoch()), 0, 11 * SECOND);
    assert_eq!(change.circuit, Some(Circuit::Open));
    assert_eq!(health.open_until_us(), Some(16 * SECOND));
}

#[test]
fn errors_within_the_spacing_count_once() {
    let degradation = degradation().spacing(Duration::from_secs(1));
    let mut health = Health::new(1_000);
    for _ in 0..50 {
        health.record_error(&degradation, None, 0, 7);
    }
    assert_eq!(health.current(), 900);
    health.record_error(&degradation, None, 0, 7 + SECOND);
    assert_eq!(health.current(), 810);
}

#[test]
fn invalid_settings_are_refused_by_name() {
    for (degradation, which) in [
        (Degradation::strict().ratio(Share::percent(100)), "ratio"),
        (Degradation::strict().ratio(Share::percent(0)), "ratio"),
        (Degradation::strict().floor(Share::percent(101)), "floor"),
        (Degradation::strict().step(Share::one_in(0)), "step"),
        (Degradation::strict().recovery(Duration::ZERO), "recovery"),
        (Degradation::strict().reset(Duration::MAX), "reset"),
        (Degradation::strict().spacing(Duration::MAX), "spacing"),
        (Degradation::strict().probes(0), "probes"),
        (Degradation::new().tolerance(Share::percent(0)), "tolerance"),
        (Degradation::new().window(Duration::ZERO), "window"),
        (
            Degradation::new().step_interval(Duration::MAX),
            "step_interval",
        ),
        (Degradation::new().open_after(Duration::ZERO), "open_after"),
    ] {
        let error = degradation.check().expect_err(which).to_string();
        assert!(error.starts_with(which), "{error}");
    }
    assert_eq!(Degradation::strict().check(), Ok(()));
}

/// Records `per_second` outcomes a second, evenly, of which every `error_every`th is an error.
fn record_steady(
    health: &mut Health,
    degradation: &Degradation,
    seconds: std::ops::Range<u64>,
    per_second: u64,
    error_every: u64,
) {
    for at in seconds.start * per_second..seconds.end * per_second {
        let now_us = at * SECOND / per_second;
        if at % error_every == error_every - 1 {
            health.record_error(degradation, None, 0, now_us);
        } else {
            health.record_success(degradation, None, now_us);
        }
    }
}

#[test]
fn by_default_one_error_at_5_s_gives_1800_and_the_next_at_10_s_gives_1620() {
    let degradation = Degradation::new();
    let mut health = Health::new(2_000);
    health.record_error(&degradation, None, 0, 5 * SECOND);
    assert_eq!(health.current(), 1_800);
    health.record_error(&degradation, None, 0, 10 * SECOND);
    assert_eq!(health.current(), 1_620);
    // The same with a few requests a second that succeed in between.
    let mut health = Health::new(2_000);
    for tenth in 0..=100 {
        let now_us = tenth * SECOND / 10;
        if tenth == 50 || tenth == 100 {
            health.record_error(&degradation, None, 0, now_us);
        } else {
            health.record_success(&degradation, None, now_us);
        }
        let expected = match tenth {
            0..50 => 2_000,
            50..100 => 1_800,
            _ => 1_620,
        };
        assert_eq!(health.current(), expected, "at {tenth} tenths of a second");
    }
}

#[test]
fn a_steady_share_of_errors_below_the_tolerance_never_lowers_the_rate() {
    let degradation = Degradation::new();
    for per_second in [100, 2_000] {
        let mut health = Health::new(2_000);
        record_steady(&mut health, &degradation, 0..60, per_second, 25);
        assert!(health.is_healthy(), "4 % of {per_second} a second");
        record_steady(&mut health, &degradation, 60..62, per_second, 10);
        assert_eq!(health.current(), 1_800, "10 % of {per_second} a second");
        record_steady(&mut health, &degradation, 62..68, per_second, 25);
        assert!(health.is_healthy(), "it recovers although some still fail");
    }
}

#[test]
fn the_first_error_of_a_job_does_not_stand_for_all_its_requests_in_flight() {
    let degradation = Degradation::new();
    let mut health = Health::new(2_000);
    health.record_error(&degradation, None, 20, SECOND);
    assert!(health.is_healthy());
    health.record_error(&degradation, None, 19, SECOND);
    assert_eq!(health.current(), 1_800, "2 of 21");
}

#[test]
fn one_outage_lowers_the_rate_once_and_a_longer_one_opens_the_circuit() {
    let degradation = Degradation::new();
    let mut health = Health::new(2_000);
    record_steady(&mut health, &degradation, 0..3, 2_000, u64::MAX);
    record_steady(&mut health, &degradation, 3..5, 2_000, 1);
    assert_eq!(health.current(), 1_800);
    record_steady(&mut health, &degradation, 5..9, 2_000, u64::MAX);
    assert_eq!(health.current(), 1_800, "6 s after the error");
    record_steady(&mut health, &degradation, 9..10, 2_000, u64::MAX);
    assert!(health.is_healthy());

    record_steady(&mut health, &degradation, 20..25, 2_000, 1);
    assert_eq!(health.circuit(), Circuit::Closed);
    health.record_error(&degradation, None, 0, 25 * SECOND);
    assert_eq!(health.circuit(), Circuit::Open);
    assert_eq!(health.open_until_us(), Some(30 * SECOND));
    assert_eq!(health.current(), 1_800);
}

#[test]
fn after_a_long_degradation_the_steps_follow_each_other_every_second() {
    let degradation = Degradation::new();
    let mut health = Health::new(2_000);
    // Half of the requests fail, so nothing opens the circuit: 1800, 1620, 1458, 1312.
    record_steady(&mut health, &degradation, 0..20, 100, 2);
    assert_eq!(health.current(), 1_312);
    let mut rates = Vec::new();
    for second in 20..26 {
        record_steady(&mut health, &degradation, second..second + 1, 100, u64::MAX);
        rates.push(health.current());
    }
    // Lowered last at 15.01 s.
    assert_eq!(rates, [1_312, 1_512, 1_712, 1_912, 2_000, 2_000]);
}

#[test]
fn few_errors_in_a_row_do_not_open_the_circuit_however_long_they_take() {
    let degradation = Degradation::new().spacing(Duration::from_secs(3_600));
    let mut health = Health::new(2_000);
    for minute in 1..FAILURES_TO_OPEN {
        health.record_error(&degradation, None, 0, minute * 60 * SECOND);
    }
    assert_eq!(health.circuit(), Circuit::Closed);
    health.record_error(&degradation, None, 0, 3_600 * SECOND);
    assert_eq!(health.circuit(), Circuit::Open);
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
                    let change = health.record_error(&degradation, epoch(is_stale), 0, now_us);
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
