//! The section `[metrics]`.

use balde_config::{Diagnostics, Section};

use super::variables::{Variables, word};
#[cfg(feature = "prometheus")]
use crate::telemetry::{Metrics, MetricsUnit};

#[derive(Clone, Copy, Debug)]
enum Unit {
    Milliseconds,
    Seconds,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MetricsOptions {
    is_enabled: bool,
    /// Whether the file or the environment asks for metrics, so that it is an error if they are
    /// missing.
    is_required: bool,
    unit: Unit,
}

#[derive(Clone, Copy)]
enum Choice {
    Off,
    On(Unit),
}

impl MetricsOptions {
    /// Reads `[metrics]`. The variable `RL_METRICS` takes precedence.
    pub(super) fn read(
        root: Option<&mut Section<'_>>,
        variables: &Variables<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let mut options = Self {
            is_enabled: true,
            is_required: false,
            unit: Unit::Milliseconds,
        };
        if let Some(mut section) = root.and_then(|root| root.table("metrics", diagnostics)) {
            let is_enabled = section.boolean("enabled", diagnostics);
            options.is_enabled = is_enabled.is_none_or(|is_enabled| is_enabled.value);
            options.is_required = options.is_enabled;
            let words = [("ms", Unit::Milliseconds), ("seconds", Unit::Seconds)];
            if let Some(unit) = section.choice("unit", &words, diagnostics) {
                options.unit = unit.value;
            }
            section.finish(diagnostics);
        }
        let words = [
            ("off", Choice::Off),
            ("ms", Choice::On(Unit::Milliseconds)),
            ("seconds", Choice::On(Unit::Seconds)),
        ];
        match word(variables, "RL_METRICS", &words, diagnostics) {
            None => options,
            Some(Choice::Off) => Self {
                is_enabled: false,
                is_required: false,
                ..options
            },
            Some(Choice::On(unit)) => Self {
                is_enabled: true,
                is_required: true,
                unit,
            },
        }
    }

    /// Returns whether metrics are asked for that this build does not have.
    pub(super) const fn is_missing(self) -> bool {
        cfg!(not(feature = "prometheus")) && self.is_required
    }

    #[cfg(feature = "prometheus")]
    pub(super) fn build(self) -> Option<Metrics> {
        let unit = match self.unit {
            Unit::Milliseconds => MetricsUnit::Milliseconds,
            Unit::Seconds => MetricsUnit::Seconds,
        };
        self.is_enabled.then(|| Metrics::with_unit(unit))
    }
}
