//! `balde reload`: asks a running service to read its file again, and says whether it did.

use crate::health::parse_timeout;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::print::write_output;
use crate::service;
use crate::supervisor::{ReloadReport, report_path};

/// How often the report is read while the reload runs.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The process id of a `balde gateway`, `balde serve` or `balde monitor`. In `ExecReload=` of a systemd unit it is
    /// $MAINPID
    #[arg(long, value_name = "PID", env = "MAINPID", value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pid: u32,
    /// The file in which the service reports reloads. By default reload.json in `$RUNTIME_DIRECTORY`, which
    /// systemd sets for both
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// How long the reload may take, such as "500 ms"
    #[arg(long, value_name = "DURATION", default_value = "30 s", value_parser = parse_timeout)]
    timeout: Duration,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    service::run_on("reload", Some(1), reload(args))
}

async fn reload(args: &Args) -> anyhow::Result<()> {
    let path = args.report.clone().or_else(report_path).ok_or_else(|| {
        anyhow!(
            "$RUNTIME_DIRECTORY is not set, so there is no report of reloads; set it for the service \
             and for this command, as RuntimeDirectory= of a systemd unit does"
        )
    })?;
    let before = ReloadReport::read(&path, args.pid)?;
    let pid = i32::try_from(args.pid).ok().and_then(Pid::from_raw);
    let pid = pid.context("--pid is not the id of a process")?;
    kill_process(pid, Signal::HUP)
        .with_context(|| format!("cannot send SIGHUP to process {}", args.pid))?;
    let begun = Instant::now();
    loop {
        let now = ReloadReport::read(&path, args.pid)?;
        if now.reloads != before.reloads {
            return match now.refusal {
                None => Ok(write_output("reloaded\n")?),
                Some(reason) => bail!("refused, and the old configuration stays\n{reason}"),
            };
        }
        if begun.elapsed() > args.timeout {
            bail!(
                "process {} has not reloaded within {:?}",
                args.pid,
                args.timeout
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
