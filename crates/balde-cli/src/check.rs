//! `balde check FILE…`

use std::process::ExitCode;

use balde_config::{ConfigError, Diagnostic, Diagnostics, Document, Section, Source};
use balde_monitor::Config;
use balde_throttle::ThrottlerOptions;

use crate::print::{write_error, write_output};
use crate::profile;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Profiles, options, gateway, service and monitor files to validate
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Validate files without their secrets: environment variables, secret files, keys and certificates
    /// that are missing are no errors
    #[arg(long)]
    without_env: bool,
    /// Write one JSON object per file to standard output: file, valid, and summary with warnings, or
    /// errors, each with file, line, column and message
    #[arg(long)]
    json: bool,
}

/// Checks every file, whatever is wrong with those before it.
pub(crate) fn run(args: &Args) -> ExitCode {
    let mut is_valid = true;
    for file in &args.files {
        let checked = check(file, args.without_env);
        is_valid &= checked.is_ok();
        let written = match &checked {
            checked if args.json => write_output(&format!("{}\n", as_json(file, checked))),
            Ok(checked) => {
                let written = write_output(&format!("{file}: {}, valid\n", checked.summary));
                for warning in &checked.warnings {
                    write_error(&format!("warning: {file}: {warning}\n"));
                }
                written
            }
            Err(error) => {
                write_error(&format!("{error}\n\n"));
                Ok(())
            }
        };
        if let Err(error) = written {
            write_error(&format!("balde check: {error}\n"));
            return ExitCode::FAILURE;
        }
    }
    if is_valid {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// What is in a valid file.
struct Checked {
    summary: String,
    /// What may not do what was meant.
    warnings: Vec<String>,
}

impl From<String> for Checked {
    fn from(summary: String) -> Self {
        Self {
            summary,
            warnings: Vec::new(),
        }
    }
}

fn as_json(file: &str, checked: &Result<Checked, ConfigError>) -> serde_json::Value {
    match checked {
        Ok(Checked { summary, warnings }) => serde_json::json!({
            "file": file, "valid": true, "summary": summary, "warnings": warnings,
        }),
        Err(error) => {
            let errors: Vec<serde_json::Value> = error.diagnostics().iter().map(problem).collect();
            serde_json::json!({
                "file": file, "valid": false, "errors": errors, "omitted": error.omitted(),
            })
        }
    }
}

/// A problem of a file as a whole has neither line nor column; one of an environment variable has no
/// file either.
fn problem(diagnostic: &Diagnostic) -> serde_json::Value {
    let position = diagnostic.position();
    serde_json::json!({
        "file": position.file(),
        "line": position.line(),
        "column": position.column(),
        "variable": position.variable(),
        "message": diagnostic.message(),
    })
}

/// Validates a file and summarises what is in it.
fn check(file: &str, without_env: bool) -> Result<Checked, ConfigError> {
    let source = Source::read(file)?;
    Ok(match FileKind::detect(&source)? {
        FileKind::Profile => {
            let profile = profile::parse(&source, &[])?;
            let policies = counted(profile.policies().len(), "policy", "policies");
            Checked {
                summary: format!("profile {}, {policies}", profile.name()),
                warnings: profile.warnings(),
            }
        }
        FileKind::Options => {
            let (options, throttlers) = if without_env {
                ThrottlerOptions::check_without_secrets(file)?
            } else {
                ThrottlerOptions::read(file)?
            };
            let limits = counted(options.names().count(), "limit", "limits");
            let throttlers = counted(throttlers.names().count(), "throttler", "throttlers");
            format!("options, {limits}, {throttlers}").into()
        }
        FileKind::Gateway => {
            let config = if without_env {
                balde_gateway::Config::check_without_secrets(file)?
            } else {
                balde_gateway::Config::read(file)?
            };
            let routes = counted(config.routes.len(), "route", "routes");
            let upstreams = counted(config.upstreams.len(), "upstream", "upstreams");
            Checked {
                summary: format!("gateway, {routes}, {upstreams}"),
                warnings: config.warnings(),
            }
        }
        FileKind::Service => {
            let config = if without_env {
                balde_service::Config::check_without_secrets(file)?
            } else {
                balde_service::Config::read(file)?
            };
            let limits = counted(config.options.names().count(), "limit", "limits");
            let protocols = counted(config.addresses().len(), "protocol", "protocols");
            format!("service, {limits}, {protocols}").into()
        }
        FileKind::Monitor => {
            let config = if without_env {
                Config::check_without_secrets(file)?
            } else {
                Config::read(file)?
            };
            let participants = counted(config.participants.len(), "participant", "participants");
            let sinks = counted(config.sinks.len(), "sink", "sinks");
            format!("monitor, {participants}, {sinks}").into()
        }
    })
}

#[derive(Clone, Copy)]
enum FileKind {
    Gateway,
    Profile,
    Options,
    Service,
    Monitor,
}

impl FileKind {
    /// Decides by the keys at the top of the file. Of kinds with as many keys, the first in the list
    /// wins: profiles may have `[limits]`, too.
    fn detect(source: &Source) -> Result<Self, ConfigError> {
        const KEYS: [(FileKind, &[&str]); 5] = [
            (FileKind::Profile, &["profile", "policy"]),
            (
                FileKind::Gateway,
                &["listener", "upstream", "route", "class", "limiting", "dict"],
            ),
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
            // A service's file has sections of an options file, too.
            (
                FileKind::Service,
                &[
                    "http", "resp", "rls", "proxy", "token", "access", "dynamic", "limits",
                    "redis", "identity", "headers", "metrics",
                ],
            ),
        ];
        let detect = |root: Section<'_>, diagnostics: &mut Diagnostics| {
            // The kind with the most keys, so that one misplaced key, such as [policy.NAME] in a
            // monitor's file, does not decide. Only profiles have `profile`.
            let count = |keys: &[&str]| keys.iter().filter(|key| root.contains(key)).count();
            let found = if root.contains("profile") {
                Some(KEYS[0])
            } else {
                let counted = KEYS.into_iter().rev().filter(|(_, keys)| count(keys) > 0);
                counted.max_by_key(|(_, keys)| count(keys))
            };
            if found.is_none() {
                let message = "cannot tell what kind of file this is: a profile has `profile` and \
                               [[policy]], options have [limits.NAME] or [throttlers.NAME], a gateway file \
                               has [[listener]] and [[route]], a service file has [http] or [resp], a \
                               monitor file has [[participant]]";
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
