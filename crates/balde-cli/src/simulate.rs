//! `balde simulate`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow, bail};
use balde::ManualClock;
use balde_dict::Category;
use balde_dict::directory::DirectoryRules;
use balde_dict::simulator::{self, Simulator, SimulatorBuilder};
use tracing::Level;

use crate::policies::setting;
use crate::profile;
use crate::running::{self, say};

/// Who keeps keys that are made up.
const MADE_UP_KEEPER: &str = "99999999";

/// The longest seed file that is read: some 200 bytes to each of a million lines.
const SEED_BYTES_MAX: u64 = 256 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8085")]
    listen: SocketAddr,
    /// The name of a profile that ships with balde, or a file
    #[arg(long, default_value = balde_dict::profiles::DEFAULT)]
    profile: String,
    /// Another value for a setting of the profile
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
    /// The category of participants that have none of their own
    #[arg(long, value_name = "LETTER", default_value = "A", value_parser = category)]
    category: Category,
    /// A participant with a category of its own
    #[arg(long = "participant", value_name = "ISPB=LETTER", value_parser = assignment)]
    participants: Vec<(String, Category)>,
    /// Entries from a file: a JSON object with at least key and participant to a line
    #[arg(long, value_name = "FILE")]
    seed: Option<PathBuf>,
    /// Make up so many entries, pessoa0000001@exemplo.com.br and so on, of participant 99999999
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    entries: usize,
    /// Keep everything in this Redis, where other simulators find it; else `RL_STORAGE_MODE`,
    /// `REDIS_ADDR` and `REDIS_PASSWORD` say where
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// The prefix of all keys in Redis: simulators with the same prefix share all state
    #[arg(long, value_name = "NAME", default_value = "balde-simulator")]
    namespace: String,
    /// Answer over TLS with this certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// and this key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// and let in only clients with a certificate by one of these authorities (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// A clock that stands still until POST /sim/clock moves it
    #[arg(long)]
    virtual_clock: bool,
    /// Reports and refunds only for transactions that a payment order made known, and refunds for
    /// fraud only after a report that was agreed to
    #[arg(long)]
    strict: bool,
    /// Whom a checkKeys counts for that comes without certificate and header
    #[arg(long, value_name = "ISPB")]
    check_keys_as: Option<String>,
    /// What to log: warn, info (refusals, too) or debug (every request, too)
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: Level,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    running::until_done("simulate", simulate(args))
}

async fn simulate(args: &Args) -> anyhow::Result<()> {
    running::log_at(args.log);
    let simulator = builder(args)?.build()?;
    for (participant, category) in &args.participants {
        simulator
            .assign(participant, *category)
            .await
            .with_context(|| format!("--participant {participant}"))?;
    }
    if let Some(path) = &args.seed {
        let length = std::fs::metadata(path)
            .with_context(|| path.display().to_string())?
            .len();
        if length > SEED_BYTES_MAX {
            bail!("{} has more than {SEED_BYTES_MAX} bytes", path.display());
        }
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let made = simulator.directory().seed(&text).await;
        let made = made.with_context(|| path.display().to_string())?;
        say(format_args!("{made} entries from {}", path.display()));
    }
    simulator
        .directory()
        .seed_generated(MADE_UP_KEEPER, args.entries)
        .await?;
    let listener = running::listen(args.listen, "--listen").await?;
    let address = listener.local_addr()?;
    let scheme = if simulator.is_tls() { "https" } else { "http" };
    say(format_args!("DICT       {scheme}://{address}/api/v2/"));
    say(format_args!("inspection {scheme}://{address}/sim/"));
    simulator::run(listener, simulator, running::told_to_end()).await?;
    Ok(())
}

fn builder(args: &Args) -> anyhow::Result<SimulatorBuilder> {
    let profile = profile::load(&args.profile, &args.settings);
    let profile = profile.map_err(|problems| anyhow!("{}", problems.trim_end()))?;
    let mut builder = Simulator::builder()
        .profile(profile)
        .category(args.category)
        .rules(DirectoryRules {
            refunds_need_report: args.strict,
            transactions_must_be_known: args.strict,
        });
    match &args.redis {
        Some(url) => builder = builder.redis(url, &args.namespace),
        None => builder = from_environment(builder, &args.namespace)?,
    }
    if args.virtual_clock {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let now_us = u64::try_from(now.as_micros()).unwrap_or(0);
        builder = builder.manual_clock(&ManualClock::at_us(now_us));
    }
    if let (Some(cert), Some(key)) = (&args.tls_cert, &args.tls_key) {
        builder = builder.tls_files(cert, key, args.tls_client_ca.clone());
    }
    if let Some(participant) = &args.check_keys_as {
        builder = builder.check_keys_participant(participant);
    }
    Ok(builder)
}

/// The variables that all of balde goes by.
fn from_environment(
    builder: SimulatorBuilder,
    namespace: &str,
) -> anyhow::Result<SimulatorBuilder> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    match variable("RL_STORAGE_MODE").as_deref() {
        None | Some("memory") => Ok(builder),
        Some("redis") => {
            let address =
                variable("REDIS_ADDR").context("RL_STORAGE_MODE=redis needs REDIS_ADDR")?;
            let builder = builder.redis(address, namespace);
            Ok(match variable("REDIS_PASSWORD") {
                Some(password) => builder.redis_password(password),
                None => builder,
            })
        }
        Some(_) => bail!("RL_STORAGE_MODE must be memory or redis"),
    }
}

fn category(text: &str) -> Result<Category, String> {
    let mut letters = text.chars();
    match (letters.next().and_then(Category::new), letters.next()) {
        (Some(category), None) => Ok(category),
        _ => Err("a category is one letter from A to Z".to_owned()),
    }
}

fn assignment(text: &str) -> Result<(String, Category), String> {
    let (participant, letter) = text.split_once('=').ok_or("expected ISPB=LETTER")?;
    Ok((participant.trim().to_owned(), category(letter.trim())?))
}
