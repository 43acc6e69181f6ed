//! `balde check FILE…`

use std::process::ExitCode;

use balde_monitor::Config;

use crate::profile;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Profiles and monitors' files to validate
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
}

/// Every file is looked at, whatever is wrong with those before it.
pub(crate) fn run(args: &Args) -> ExitCode {
    let mut is_sound = true;
    for file in &args.files {
        if is_monitor(file) {
            match Config::read(file) {
                Ok(config) => println!(
                    "{file}: monitor, participants: {}, sinks: {}, sound",
                    config.participants.len(),
                    config.sinks.len()
                ),
                Err(error) => {
                    is_sound = false;
                    eprintln!("{error}");
                }
            }
            continue;
        }
        match profile::check(file) {
            Ok(profile) => {
                let policies = match profile.policies().len() {
                    1 => "1 policy".to_owned(),
                    count => format!("{count} policies"),
                };
                println!("{file}: profile {}, {policies}, sound", profile.name());
            }
            Err(problems) => {
                is_sound = false;
                eprint!("{problems}");
            }
        }
    }
    if is_sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// A monitor's file says whom to ask about; a profile never does.
fn is_monitor(file: &str) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let is_header = |line: &str| {
        let line = line.trim_start();
        line.starts_with("[[participant") || line.starts_with("[[sink")
    };
    text.lines().any(is_header)
}
