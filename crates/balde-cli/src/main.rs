//! The binary `balde`: arguments, configuration files and wiring. It contains no rule about limits.

mod alert_lines;
mod args;
mod check;
mod gateway;
mod health;
mod inspect;
mod manual;
mod monitor;
mod output;
mod policies;
mod print;
mod profile;
mod service;
mod simulate;
mod table;
mod up;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    args::Cli::parse().run()
}
