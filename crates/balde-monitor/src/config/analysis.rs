//! The section `[analysis]`: how far back samples are looked at.

use std::time::Duration;

use balde_config::{Diagnostics, Section};

use crate::analyse::AnalysisSettings;

/// The shortest and the longest window and gap.
const SPANS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(86_400));

/// The largest error of a timestamp.
const ERROR_MAX: Duration = Duration::from_secs(60);

pub(super) fn read(
    section: Option<Section<'_>>,
    diagnostics: &mut Diagnostics,
) -> AnalysisSettings {
    let mut settings = AnalysisSettings::default();
    let Some(mut section) = section else {
        return settings;
    };
    let spans = || SPANS.0..=SPANS.1;
    if let Some(value) = section.get("windows") {
        let windows = value.array(diagnostics).unwrap_or_default();
        let windows = windows
            .iter()
            .map(|window| window.duration(spans(), diagnostics));
        // A window that is not a duration has been reported.
        if let Some(windows) = windows.collect::<Option<Vec<_>>>() {
            let windows_us = windows.iter().map(|window| micros(window.value));
            match settings
                .clone()
                .with_windows_us(windows_us.collect::<Vec<_>>())
            {
                Ok(changed) => settings = changed,
                Err(error) => diagnostics.at(value.span(), error.to_string()),
            }
        }
    }
    if let Some(gap) = section.duration("gap_max", spans(), diagnostics) {
        settings = settings.with_gap_max_us(micros(gap.value));
    }
    let errors = Duration::ZERO..=ERROR_MAX;
    if let Some(error) = section.duration("timestamp_error", errors, diagnostics) {
        settings = settings.with_timestamp_error_us(micros(error.value));
    }
    section.finish(diagnostics);
    settings
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
