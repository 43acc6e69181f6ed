//! The binary `balde`: arguments, files, wiring. No rule about limits.

mod args;
mod check;
mod policies;
mod profile;
mod simulate;
mod table;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    args::Cli::parse().run()
}
