//! The verbs.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{check, gateway, health, inspect, monitor, policies, simulate, up};

/// Rate limits that are kept exactly: policies as data, and what is built on them.
#[derive(Debug, Parser)]
#[command(name = "balde", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Everything on this machine, with nothing to install: a DICT, a gateway, traffic, and a monitor
    Up(up::Args),
    /// Print a profile as a table
    Policies(policies::Args),
    /// Validate profiles, options, gateway and monitor files: every problem, with file, line and column
    Check(check::Args),
    /// Show buckets in Redis: level, limit, and when they are full
    Inspect(inspect::Args),
    /// Run a DICT simulator that follows the published rules
    Simulate(Box<simulate::Args>),
    /// Run a reverse proxy that enforces policies, in front of any service or of DICT
    Gateway(gateway::Args),
    /// Monitor the buckets of DICT participants: history, forecasts, alerts, metrics, a dashboard
    Monitor(monitor::Args),
    /// Check that a service is healthy, for containers and scripts: exit code 0 or 1
    Health(health::Args),
}

impl Cli {
    pub(crate) fn run(self) -> ExitCode {
        match self.verb {
            Verb::Policies(args) => policies::run(&args),
            Verb::Check(args) => check::run(&args),
            Verb::Inspect(args) => inspect::run(&args),
            Verb::Simulate(args) => simulate::run(&args),
            Verb::Gateway(args) => gateway::run(&args),
            Verb::Monitor(args) => monitor::run(&args),
            Verb::Up(args) => up::run(&args),
            Verb::Health(args) => health::run(&args),
        }
    }
}
