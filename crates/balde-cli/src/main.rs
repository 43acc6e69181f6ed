//! The binary `balde`: arguments, configuration files and wiring. It contains no rule about limits.

mod alert_lines;
mod args;
mod certify;
mod check;
mod gateway;
mod health;
mod import;
mod inspect;
mod lifecycle;
mod manual;
mod monitor;
mod output;
mod policies;
mod print;
mod profile;
mod progress;
#[cfg(target_os = "linux")]
mod reload;
mod serve;
mod service;
mod simulate;
mod supervisor;
mod table;
mod up;

use std::process::ExitCode;

use clap::Parser;

/// The gateway allocates for each request: docs/benchmarks.md has its figures with both allocators.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    args::Cli::parse().run()
}
