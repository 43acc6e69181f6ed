//! `balde check FILE…`

use std::process::ExitCode;

use balde_config::{ConfigError, Diagnostics, Document, Section, Source};
use balde_monitor::Config;
use balde_throttle::ThrottlerOptions;

use crate::profile;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Profiles, options and monitor files to validate
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
}

/// Checks every file, whatever is wrong with those before it.
pub(crate) fn run(args: &Args) -> ExitCode {
    let mut is_valid = true;
    for file in &args.files {
        match check(file) {
            Ok(summary) => println!("{file}: {summary}, valid"),
            Err(error) => {
                is_valid = false;
                eprintln!("{error}\n");
            }
        }
    }
    if is_valid {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Validates a file and summarises what is in it.
fn check(file: &str) -> Result<String, ConfigError> {
    let source = Source::read(file)?;
    Ok(match FileKind::detect(&source)? {
        FileKind::Profile => {
            let profile = profile::parse(&source, &[])?;
            let policies = counted(profile.policies().len(), "policy", "policies");
            format!("profile {}, {policies}", profile.name())
        }
        FileKind::Options => {
            let (options, throttlers) = ThrottlerOptions::read(file)?;
            let limits = counted(options.names().count(), "limit", "limits");
            let throttlers = counted(throttlers.names().count(), "throttler", "throttlers");
            format!("options, {limits}, {throttlers}")
        }
        FileKind::Monitor => {
            let config = Config::read(file)?;
            let participants = counted(config.participants.len(), "participant", "participants");
            let sinks = counted(config.sinks.len(), "sink", "sinks");
            format!("monitor, {participants}, {sinks}")
        }
    })
}

#[derive(Clone, Copy)]
enum FileKind {
    Profile,
    Options,
    Monitor,
}

impl FileKind {
    /// Decides by the keys at the top of the file. Profiles come first, because they may have
    /// `[limits]`, too.
    fn detect(source: &Source) -> Result<Self, ConfigError> {
        const KEYS: [(FileKind, &[&str]); 3] = [
            (FileKind::Profile, &["profile", "policy"]),
            (
                FileKind::Monitor,
                &[
                    "participant",
                    "sink",
                    "history",
                    "schedule",
                    "alerts",
                    "routes",
                ],
            ),
            (
                FileKind::Options,
                &[
                    "limits",
                    "throttlers",
                    "redis",
                    "identity",
                    "headers",
                    "metrics",
                    "logs",
                    "tracing",
                ],
            ),
        ];
        let detect = |root: Section<'_>, diagnostics: &mut Diagnostics| {
            let is_kind = |keys: &[&str]| keys.iter().any(|key| root.contains(key));
            let found = KEYS.into_iter().find(|(_, keys)| is_kind(keys));
            if found.is_none() {
                let message = "cannot tell what kind of file this is: a profile has `profile` and \
                               [[policy]], options have [limits.NAME] or [throttlers.NAME], a monitor file has \
                               [[participant]]";
                diagnostics.at(None, message);
            }
            found.map_or(Self::Profile, |(kind, _)| kind)
        };
        Document::read(source, Diagnostics::new(source), detect)
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    let noun = if count == 1 { one } else { many };
    format!("{count} {noun}")
}
