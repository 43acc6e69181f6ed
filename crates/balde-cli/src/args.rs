//! The command line: one subcommand for each job.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{check, monitor, policies, simulate, up};

/// Exact rate limiting: a DICT simulator, a monitor for DICT buckets, and tools for policies.
#[derive(Debug, Parser)]
#[command(name = "balde", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a DICT simulator, traffic and a monitor on this machine, with nothing to install
    Up(up::Args),
    /// Print a profile as a table
    Policies(policies::Args),
    /// Validate profiles, options and monitor files; reports every problem with file, line and column
    Check(check::Args),
    /// Run a DICT simulator that follows the published rules
    Simulate(Box<simulate::Args>),
    /// Monitor the buckets of DICT participants: history, forecasts, alerts, metrics, a dashboard
    Monitor(monitor::Args),
}

impl Cli {
    pub(crate) fn run(self) -> ExitCode {
        match self.command {
            Command::Policies(args) => policies::run(&args),
            Command::Check(args) => check::run(&args),
            Command::Simulate(args) => simulate::run(&args),
            Command::Monitor(args) => monitor::run(&args),
            Command::Up(args) => up::run(&args),
        }
    }
}
