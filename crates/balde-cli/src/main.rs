//! The binary `balde`: arguments, files, wiring. No rule about limits.

mod args;
mod check;
mod monitor;
mod policies;
mod profile;
mod running;
mod simulate;
mod table;
mod up;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    args::Cli::parse().run()
}
