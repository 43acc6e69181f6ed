//! `balde completions SHELL` and `balde man`: written from the same definitions as `--help`.

use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;

use crate::print::{write_error, write_output};

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell to write completions for
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// The command to describe; by default all of balde
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

pub(crate) fn completions(args: &CompletionsArgs, mut balde: Command) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut balde, "balde", &mut text);
    print(&text)
}

pub(crate) fn man(args: &ManArgs, mut balde: Command) -> ExitCode {
    balde.build();
    let command = match &args.command {
        Some(name) => balde.find_subcommand(name).cloned(),
        None => Some(balde),
    };
    let Some(command) = command else {
        let name = args.command.as_deref().unwrap_or_default();
        write_error(&format!("balde man: there is no command `{name}`\n"));
        return ExitCode::FAILURE;
    };
    let mut text = Vec::new();
    match clap_mangen::Man::new(command).render(&mut text) {
        Ok(()) => print(&text),
        Err(error) => {
            write_error(&format!("balde man: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

fn print(text: &[u8]) -> ExitCode {
    match write_output(&String::from_utf8_lossy(text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            write_error(&format!("balde: {error}\n"));
            ExitCode::FAILURE
        }
    }
}
