//! `balde check FILE…`

use std::process::ExitCode;

use crate::profile;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Profiles to validate
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
}

/// Every file is looked at, whatever is wrong with those before it.
pub(crate) fn run(args: &Args) -> ExitCode {
    let mut is_sound = true;
    for file in &args.files {
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
