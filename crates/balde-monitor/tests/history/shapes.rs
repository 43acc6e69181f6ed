//! Series: resolutions, roll-ups and gaps.

use std::collections::BTreeMap;

use balde_monitor::history::{GAP_US, Gap, Point, Resolution, Series};
use fastrand::Rng;

use crate::fixture::{DAY_US, HOUR_US, MINUTE_US, NOVEMBER_US, bucket, poll};
use crate::test_database::TestDatabase;

/// What a series should be, worked out from all samples, by moment.
fn model(samples: &BTreeMap<u64, i64>, from_us: u64, until_us: u64, points_max: usize) -> Series {
    let gaps = |gap_us: u64, from_us: u64, until_us: u64| {
        // Every pair of neighbours that the points do not hide within themselves.
        let moments: Vec<u64> = samples.keys().copied().collect();
        let pairs = moments.windows(2).filter(move |pair| {
            let is_inside = pair[1] > from_us && pair[0] < until_us;
            is_inside && pair[1] - pair[0] > gap_us
        });
        pairs
            .map(|pair| Gap {
                from_us: pair[0],
                until_us: pair[1],
            })
            .collect::<Vec<_>>()
    };
    let within: Vec<(u64, i64)> = samples
        .range(from_us..until_us)
        .map(|(k, v)| (*k, *v))
        .collect();
    if within.len() <= points_max {
        let point = |(at_us, level): &(u64, i64)| point(*at_us, &[*level]);
        return Series {
            resolution: Resolution::Samples,
            points: within.iter().map(point).collect(),
            gaps: gaps(GAP_US, from_us, until_us),
        };
    }
    for (resolution, width_us) in [(Resolution::Hour, HOUR_US), (Resolution::Day, DAY_US)] {
        let mut stretches: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
        for (at_us, level) in samples.range(from_us - from_us % width_us..) {
            let start_us = at_us - at_us % width_us;
            if start_us < until_us {
                stretches.entry(start_us).or_default().push(*level);
            }
        }
        let points: Vec<Point> = stretches
            .iter()
            .map(|(at, levels)| point(*at, levels))
            .collect();
        if points.len() > points_max && resolution == Resolution::Hour {
            continue;
        }
        let together = points.len().div_ceil(points_max);
        let merge = |points: &[Point]| Point {
            samples: points.iter().map(|point| point.samples).sum(),
            level_min: points.iter().map(|point| point.level_min).min().unwrap(),
            level_max: points.iter().map(|point| point.level_max).max().unwrap(),
            at_us: points[0].at_us,
            ..*points.last().unwrap()
        };
        return Series {
            resolution,
            points: points.chunks(together).map(merge).collect(),
            gaps: gaps(width_us, from_us, until_us),
        };
    }
    unreachable!("days are always drawn")
}

fn point(at_us: u64, levels: &[i64]) -> Point {
    Point {
        at_us,
        samples: levels.len() as u64,
        level_min: *levels.iter().min().unwrap(),
        level_max: *levels.iter().max().unwrap(),
        level: *levels.last().unwrap(),
        capacity: 36_000,
    }
}

pub(crate) async fn a_series_is_what_a_slow_model_says(database: TestDatabase) {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let history = database.open().await;
    let mut samples = BTreeMap::new();
    let spans_us = [20 * MINUTE_US, HOUR_US, 3 * HOUR_US, 40 * DAY_US];
    for _ in 0..300 {
        let span_us = spans_us[random.usize(..spans_us.len())];
        let mut at_us = NOVEMBER_US + random.u64(..span_us);
        if random.u8(..4) == 0 {
            // At an edge, where being off by one shows.
            at_us -= at_us % HOUR_US;
            at_us -= random.u64(..2);
        }
        let level = random.i64(-50_000..50_000);
        let is_new = history
            .store(&poll(at_us, &[("A", level), ("B", 1)]))
            .await
            .unwrap();
        assert_eq!(is_new, !samples.contains_key(&at_us));
        samples.entry(at_us).or_insert(level);
    }
    for _ in 0..300 {
        let span_us = spans_us[random.usize(..spans_us.len())];
        let from_us = NOVEMBER_US - HOUR_US + random.u64(..span_us);
        let until_us = from_us + random.u64(..span_us);
        let points_max = random.usize(1..400);
        let series = history
            .series(&bucket("A"), from_us, until_us, points_max)
            .await
            .unwrap();
        let expected = model(&samples, from_us, until_us, points_max);
        assert_eq!(series, expected, "{from_us}..{until_us} in {points_max}");
        assert!(series.points.len() <= points_max);
    }
}

pub(crate) async fn a_monitor_that_was_down_shows_a_gap(database: TestDatabase) {
    let history = database.open().await;
    for minute in (0..600_u64)
        .step_by(5)
        .filter(|minute| !(100..340).contains(minute))
    {
        let at_us = NOVEMBER_US + minute * MINUTE_US;
        history.store(&poll(at_us, &[("A", 9)])).await.unwrap();
    }
    let gap = Gap {
        from_us: NOVEMBER_US + 95 * MINUTE_US,
        until_us: NOVEMBER_US + 340 * MINUTE_US,
    };
    for (points_max, resolution) in [(1_000, Resolution::Samples), (20, Resolution::Hour)] {
        let until_us = NOVEMBER_US + DAY_US;
        let series = history
            .series(&bucket("A"), NOVEMBER_US, until_us, points_max)
            .await
            .unwrap();
        assert_eq!(series.resolution, resolution);
        assert_eq!(series.gaps, [gap], "{resolution:?}");
    }
}

pub(crate) async fn a_gap_across_the_edge_is_a_gap(database: TestDatabase) {
    let history = database.open().await;
    let (from_us, until_us) = (NOVEMBER_US, NOVEMBER_US + 10 * HOUR_US);
    history.store(&poll(from_us, &[("A", 9)])).await.unwrap();
    history.store(&poll(until_us, &[("A", 9)])).await.unwrap();
    // Wholly within it there is not one sample to see it by.
    let (left_us, right_us) = (from_us + HOUR_US, until_us - HOUR_US);
    let series = history
        .series(&bucket("A"), left_us, right_us, 10)
        .await
        .unwrap();
    assert!(series.points.is_empty());
    assert_eq!(series.gaps, [Gap { from_us, until_us }]);
    // What was never asked about, and what does not exist, has no gaps.
    let series = history
        .series(&bucket("A"), until_us + 1, until_us + DAY_US, 10)
        .await
        .unwrap();
    assert!(series.gaps.is_empty());
    let series = history
        .series(&bucket("NONE"), 0, u64::MAX, 10)
        .await
        .unwrap();
    assert!(series.points.is_empty() && series.gaps.is_empty());
}

pub(crate) async fn the_finest_resolution_that_fits_is_drawn(database: TestDatabase) {
    let history = database.open().await;
    for hour in 0..48 {
        for half in 0..2 {
            let at_us = NOVEMBER_US + hour * HOUR_US + half * 30 * MINUTE_US;
            history.store(&poll(at_us, &[("A", 1)])).await.unwrap();
        }
    }
    for (points_max, resolution, points) in [
        (96, Resolution::Samples, 96),
        (95, Resolution::Hour, 48),
        (48, Resolution::Hour, 48),
        (47, Resolution::Day, 2),
        (1, Resolution::Day, 1),
        (0, Resolution::Day, 1),
        (usize::MAX, Resolution::Samples, 96),
    ] {
        let series = history
            .series(&bucket("A"), 0, u64::MAX, points_max)
            .await
            .unwrap();
        assert_eq!(
            (series.resolution, series.points.len()),
            (resolution, points)
        );
        let samples: u64 = series.points.iter().map(|point| point.samples).sum();
        assert_eq!(samples, 96);
    }
}

pub(crate) async fn a_year_draws_across_its_months(database: TestDatabase) {
    const DAYS: u64 = 400;
    let history = database.open().await;
    for day in 0..DAYS {
        let at_us = NOVEMBER_US + day * DAY_US + day % 24 * HOUR_US;
        let level = day.cast_signed() * 90 - 500;
        history.store(&poll(at_us, &[("A", level)])).await.unwrap();
    }
    let (from_us, until_us) = (NOVEMBER_US + 20 * DAY_US, NOVEMBER_US + 385 * DAY_US);
    for points_max in [365, 364, 12] {
        let series = history
            .series(&bucket("A"), from_us, until_us, points_max)
            .await
            .unwrap();
        let together = 365_usize.div_ceil(points_max);
        assert_eq!(series.points.len(), 365_usize.div_ceil(together));
        let (first, last) = (series.points[0], series.points[series.points.len() - 1]);
        assert_eq!(
            (first.level_min, last.level_max),
            (20 * 90 - 500, 384 * 90 - 500)
        );
        let samples: u64 = series.points.iter().map(|point| point.samples).sum();
        assert_eq!(samples, 365);
    }
    let newest = history.recent_samples("12345678", 0).await.unwrap();
    assert_eq!(newest[0].len() as u64, DAYS);
}
