//! The verbs.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

#[cfg(target_os = "linux")]
use crate::reload;
use crate::{
    certify, check, gateway, health, import, inspect, manual, monitor, policies, serve, simulate,
    up,
};

/// Listed in `--help` and in the manual page.
const EXIT_CODES: &str = "Exit codes:\n  0    success; a service that was stopped by a signal\n  \
    1    an invalid file, a failed check, a service that could not start or go on\n  \
    2    wrong arguments\n  \
    130  a second signal during shutdown";

/// Rate limits that are kept exactly: policies as data, and what is built on them.
#[derive(Debug, Parser)]
#[command(name = "balde", version, arg_required_else_help = true, after_help = EXIT_CODES)]
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
    /// Validate profiles, options, gateway, service and monitor files: every problem, with file, line and column
    Check(check::Args),
    /// Show buckets in Redis: level, limit, and when they are full
    Inspect(inspect::Args),
    /// Run a DICT simulator that follows the published rules
    Simulate(Box<simulate::Args>),
    /// Play a PSP's conversation with a DICT, and report which answers are not as published
    Certify(Box<certify::Args>),
    /// Run a reverse proxy that enforces policies, in front of any service or of DICT
    Gateway(gateway::Args),
    /// Run a decision service that programs and proxies ask over the network
    Serve(serve::Args),
    /// Write a file for `balde serve` from the configuration of another rate limit service
    Import(import::Args),
    /// Monitor the buckets of DICT participants: history, forecasts, alerts, metrics, a dashboard
    Monitor(monitor::Args),
    /// Make a gateway, service or monitor read its file again, and say whether it did: exit code 1 if it was refused
    #[cfg(target_os = "linux")]
    Reload(reload::Args),
    /// Check that a service is healthy, for containers and scripts: exit code 0 or 1
    Health(health::Args),
    /// Write completions for a shell to standard output
    Completions(manual::CompletionsArgs),
    /// Write the manual page to standard output, as man(1) reads it
    Man(manual::ManArgs),
}

impl Cli {
    pub(crate) fn run(self) -> ExitCode {
        match self.verb {
            Verb::Policies(args) => policies::run(&args),
            Verb::Check(args) => check::run(&args),
            Verb::Inspect(args) => inspect::run(&args),
            Verb::Simulate(args) => simulate::run(&args),
            Verb::Certify(args) => certify::run(&args),
            Verb::Gateway(args) => gateway::run(&args),
            Verb::Serve(args) => serve::run(&args),
            Verb::Import(args) => import::run(&args),
            Verb::Monitor(args) => monitor::run(&args),
            Verb::Up(args) => up::run(&args),
            #[cfg(target_os = "linux")]
            Verb::Reload(args) => reload::run(&args),
            Verb::Health(args) => health::run(&args),
            Verb::Completions(args) => manual::completions(&args, Self::command()),
            Verb::Man(args) => manual::man(&args, Self::command()),
        }
    }
}
