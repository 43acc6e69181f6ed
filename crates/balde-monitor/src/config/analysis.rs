//! The section `[analysis]`: how far back samples are looked at.

use balde_config::{Diagnostics, Section};

use crate::analyse::AnalysisSettings;

const SECOND_US: u64 = 1_000_000;

/// The longest window and the longest gap: one day.
const SPAN_MAX_S: u64 = 86_400;

/// The largest error of a timestamp.
const ERROR_MAX_MS: u64 = 60_000;

pub(super) fn read(
    section: Option<Section<'_>>,
    diagnostics: &mut Diagnostics,
) -> AnalysisSettings {
    let mut settings = AnalysisSettings::default();
    let Some(mut section) = section else {
        return settings;
    };
    if let Some(value) = section.get("windows_s") {
        let windows = value.array(diagnostics).unwrap_or_default();
        let seconds = windows
            .iter()
            .map(|window| window.integer(1..=SPAN_MAX_S, diagnostics));
        // A window that is not a number has been reported.
        if let Some(seconds) = seconds.collect::<Option<Vec<_>>>() {
            let windows_us = seconds.iter().map(|window| window.value * SECOND_US);
            match settings
                .clone()
                .with_windows_us(windows_us.collect::<Vec<_>>())
            {
                Ok(changed) => settings = changed,
                Err(error) => diagnostics.at(value.span(), error.to_string()),
            }
        }
    }
    if let Some(gap) = section.integer("gap_max_s", 1..=SPAN_MAX_S, diagnostics) {
        settings = settings.with_gap_max_us(gap.value * SECOND_US);
    }
    if let Some(error) = section.integer("timestamp_error_ms", 0..=ERROR_MAX_MS, diagnostics) {
        settings = settings.with_timestamp_error_us(error.value * 1_000);
    }
    section.finish(diagnostics);
    settings
}
