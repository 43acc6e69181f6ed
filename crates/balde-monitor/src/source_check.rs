//! Whether the sources of a configuration answer, before anything is stored or sent.

use crate::config::{Config, SourceConfig};
use crate::source::SourceError;
use crate::time_source::TimeSource;

/// How many sources are asked at a time.
const CONCURRENT_MAX: usize = 8;

/// What the source of one participant answered.
#[derive(Debug)]
#[non_exhaustive]
pub struct SourceCheck {
    /// The participant.
    pub participant: String,
    /// "DICT" or "gateway".
    pub source: &'static str,
    /// What it listed, or why it listed nothing.
    pub result: Result<SourceSummary, SourceCheckError>,
}

/// What a source lists of a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceSummary {
    /// The participant's category; `None` if the source states none.
    pub category: Option<String>,
    /// The number of buckets.
    pub buckets: usize,
}

/// Why the source of a participant listed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceCheckError {
    /// The source cannot be built from its settings.
    #[error("{0}")]
    Settings(String),
    /// The request failed.
    #[error(transparent)]
    Source(SourceError),
    /// The check was interrupted by the end of the process.
    #[error("the check was interrupted")]
    Interrupted,
}

/// Asks the source of every participant for its buckets, once, in the order of the file. Opens no
/// database and sends nothing to any sink. Each participant at DICT costs one token of its
/// `POLICIES_LIST`.
pub async fn check_sources(config: &Config, time: &TimeSource) -> Vec<SourceCheck> {
    let mut checks = Vec::new();
    for participants in config.participants.chunks(CONCURRENT_MAX) {
        let asked = participants.iter().map(|participant| {
            let source = participant.build(time.monotonic());
            let (ispb, time) = (participant.ispb.clone(), time.clone());
            let asking = tokio::spawn(async move {
                let source = source.map_err(SourceCheckError::Settings)?;
                let poll = source.fetch(&ispb, || time.now_us()).await;
                let poll = poll.map_err(SourceCheckError::Source)?;
                let category = poll.samples().first().and_then(|one| one.category());
                Ok(SourceSummary {
                    category: category.map(str::to_owned),
                    buckets: poll.samples().len(),
                })
            });
            (participant, asking)
        });
        // All of them are asked before the first one is waited for.
        let asked: Vec<_> = asked.collect();
        for (participant, asking) in asked {
            let result = asking.await;
            checks.push(SourceCheck {
                participant: participant.ispb.clone(),
                source: match participant.source {
                    SourceConfig::Dict { .. } => "DICT",
                    SourceConfig::Gateway { .. } => "gateway",
                },
                result: result.unwrap_or(Err(SourceCheckError::Interrupted)),
            });
        }
    }
    checks
}
