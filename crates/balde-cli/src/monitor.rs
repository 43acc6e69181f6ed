//! `balde monitor`: runs the monitor from its configuration file.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use balde_monitor::history::History;
use balde_monitor::{Config, Monitor, SourceCheck, TimeSource};
use tokio::net::TcpListener;

use crate::output::{LogArgs, Output};
use crate::print::write_output;
use crate::service;
use crate::supervisor::Supervisor;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The monitor's configuration file; docs/monitor.toml shows every key
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Ask the source of every participant once, print whether it answers, with category and number of
    /// buckets, and end: exit code 1 if one does not. Costs one token of `POLICIES_LIST` each
    #[arg(long)]
    check_sources: bool,
    /// Send a marked test alert through the sink NAME, print what the receiver said, and end: exit code
    /// 1 if it was not delivered. May be repeated. The database is not opened
    #[arg(long, value_name = "NAME", conflicts_with = "check_sources")]
    test_sink: Vec<String>,
    #[command(flatten)]
    log: LogArgs,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    if args.check_sources {
        return service::run("monitor", check_sources(args));
    }
    if !args.test_sink.is_empty() {
        return service::run("monitor", test_sinks(args));
    }
    service::run("monitor", monitor(args))
}

fn read(args: &Args) -> anyhow::Result<Config> {
    Config::read(&args.config).map_err(|error| anyhow!("\n{error}"))
}

async fn check_sources(args: &Args) -> anyhow::Result<()> {
    let config = read(args)?;
    let checks = balde_monitor::check_sources(&config, &TimeSource::system()).await;
    let (all, mut failed) = (checks.len(), 0);
    for SourceCheck {
        participant,
        source,
        result,
        ..
    } in checks
    {
        let answer = match result {
            Ok(summary) => {
                let category = summary.category.map_or_else(
                    || "no category".to_owned(),
                    |category| format!("category {category}"),
                );
                format!("answers: {category}, {} buckets", summary.buckets)
            }
            Err(error) => {
                failed += 1;
                format!("does not answer: {error}")
            }
        };
        write_output(&format!("{participant}  {source:<7}  {answer}\n"))?;
    }
    if failed > 0 {
        bail!("{failed} of {all} participants cannot be monitored");
    }
    Ok(())
}

async fn test_sinks(args: &Args) -> anyhow::Result<()> {
    let config = read(args)?;
    // The built-in sink `log` writes its line there.
    let _output = Output::start(&args.log);
    let time = TimeSource::system();
    let mut failed = 0;
    for name in &args.test_sink {
        let line = match balde_monitor::test_sink(&config, name, &time).await {
            Ok(test) => {
                let closed = match test.messages {
                    1 => "",
                    _ => ", and closed",
                };
                let took_ms = test.took.as_millis();
                format!(
                    "{} delivered in {took_ms} ms{closed}: {}",
                    test.kind, test.key
                )
            }
            Err(error) => {
                failed += 1;
                format!("not delivered: {error}")
            }
        };
        write_output(&format!("{name}  {line}\n"))?;
    }
    if failed > 0 {
        bail!(
            "{failed} of {} test alerts were not delivered",
            args.test_sink.len()
        );
    }
    Ok(())
}

async fn monitor(args: &Args) -> anyhow::Result<()> {
    let read = || read(args);
    let mut config = read()?;
    let output = Output::start(&args.log);
    let mut listener = listen(&config).await?;
    let mut shutdown = std::pin::pin!(service::shutdown_signal());
    let mut hangups = service::Hangups::new();
    let mut supervisor = Supervisor::new();
    let mut is_reload = false;
    loop {
        let monitor = Monitor::build(&config, TimeSource::system()).await?;
        let address = listener.local_addr()?;
        let scheme = match &config.http.identity {
            Some(_) => "https",
            None => "http",
        };
        output.address("page", format_args!("{scheme}://{address}/"));
        output.address("metrics", format_args!("{scheme}://{address}/metrics"));
        if is_reload {
            supervisor.reloaded(Ok(()));
        } else {
            supervisor.ready();
        }
        let history = monitor.cycle().components().history.clone();
        let mut next = None;
        let until = async {
            let reloaded = async {
                loop {
                    hangups.next().await;
                    Supervisor::reloading();
                    match reload(&config, &history, read).await {
                        Ok(new) => return new,
                        Err(error) => {
                            let error = format!("{error:#}");
                            supervisor.reloaded(Err(&error));
                            tracing::error!(
                                event_type = "reload_failed",
                                "the file was not reloaded, and the monitor runs on as before: {error}"
                            );
                        }
                    }
                }
            };
            tokio::select! {
                _ = &mut shutdown => Supervisor::stopping(),
                new = reloaded => next = Some(new),
            }
        };
        // The socket stays open while the monitor is replaced: clients wait instead of failing.
        let serving = TcpListener::from_std(listener.try_clone()?)?;
        monitor.run(serving, "", until).await?;
        let Some((new, new_listener)) = next else {
            return Ok(());
        };
        tracing::info!(
            event_type = "reloaded",
            participants = new.participants.len(),
            sinks = new.sinks.len(),
            "the file was read again"
        );
        config = new;
        is_reload = true;
        listener = new_listener.unwrap_or(listener);
    }
}

/// Reads the file again, and listens on its address if that is another one.
async fn reload(
    current: &Config,
    history: &History,
    read: impl Fn() -> anyhow::Result<Config>,
) -> anyhow::Result<(Config, Option<std::net::TcpListener>)> {
    if let Some(failure) = history.health().failure() {
        bail!(
            "the database accepts no writes ({}), and what is in memory would be lost; reload when \
             it does",
            failure.cause
        );
    }
    let config = read()?;
    let listener = if config.http.listen == current.http.listen {
        None
    } else {
        Some(listen(&config).await?)
    };
    Ok((config, listener))
}

async fn listen(config: &Config) -> anyhow::Result<std::net::TcpListener> {
    let listener = service::listen(config.http.listen, "listen in [http]").await?;
    Ok(listener.into_std()?)
}
