//! `balde simulate`: runs the DICT simulator.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow, bail};
use balde::{ManualClock, StorageMode};
use balde_config::Source;
use balde_dict::wire::{XmlSigner, XmlVerifier};
use balde_dict::{Category, Settings};
use balde_simulator::directory::DirectoryRules;
use balde_simulator::{self as simulator, Participants, Simulator, SimulatorBuilder};

use crate::output::{LogArgs, Output};
use crate::policies::setting;
use crate::profile;
use crate::progress::Progress;
use crate::service;

/// The participant of generated entries.
const GENERATED_PARTICIPANT: &str = "99999999";

/// The longest seed file that is read: about 200 bytes for each of a million lines.
const SEED_BYTES_MAX: u64 = 256 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8085", value_parser = service::listen_address)]
    listen: SocketAddr,
    /// Name of a profile that ships with balde, or a file
    #[arg(long, default_value = balde_dict::profiles::DEFAULT)]
    profile: String,
    /// Override a setting of the profile; can be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
    /// Category of participants that --participant does not name
    #[arg(long, value_name = "LETTER", default_value = "A", value_parser = category)]
    category: Category,
    /// Category of one participant; can be repeated
    #[arg(long = "participant", value_name = "ISPB=LETTER", value_parser = assignment)]
    participants: Vec<(String, Category)>,
    /// Load entries from a file: one JSON object per line, with at least key and participant
    #[arg(long, value_name = "FILE")]
    seed: Option<PathBuf>,
    /// Generate this many entries: pessoa0000001@exemplo.com.br and so on, of participant 99999999
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    entries: usize,
    /// Keep all state in this Redis, shared with other simulators. By default the variables
    /// `RL_STORAGE_MODE`, `REDIS_ADDR` and `REDIS_PASSWORD` decide
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Prefix of all keys in Redis; simulators with the same prefix share all state
    #[arg(long, value_name = "NAME", default_value = "balde-simulator")]
    namespace: String,
    /// Serve TLS with this certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Require client certificates that these authorities have signed (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Participants, their certificates and their liquidators (TOML). A certificate that acts for
    /// another participant gets 403
    #[arg(long = "participants", value_name = "FILE")]
    participants_file: Option<PathBuf>,
    /// Sign responses with this RSA key (PEM)
    #[arg(long, value_name = "FILE", requires = "sign_cert")]
    sign_key: Option<PathBuf>,
    /// Certificate of the signing key (PEM)
    #[arg(long, value_name = "FILE", requires = "sign_key")]
    sign_cert: Option<PathBuf>,
    /// Verify the signatures of writes; with `required`, refuse writes without a signature
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true,
          default_missing_value = "if-present")]
    verify: Option<Verify>,
    /// Certificates that may sign writes (PEM). By default, any certificate that has signed itself
    #[arg(long, value_name = "FILE", requires = "verify")]
    verify_certs: Option<PathBuf>,
    /// Use a clock that moves only by POST /sim/clock
    #[arg(long)]
    virtual_clock: bool,
    /// Accept reports, refunds and funds recoveries only for transactions that a payment order has
    /// announced
    #[arg(long)]
    strict: bool,
    /// Participant of requests that need not name one and have neither certificate nor header, such as
    /// checkKeys. By default, 99999999
    #[arg(long, value_name = "ISPB")]
    check_keys_as: Option<String>,
    /// Write what clients do to this file, and which of Bacen's expectations they miss: one JSON object
    /// per line, with a summary at the end. GET /sim/transcript has the summary at any time
    #[arg(long, value_name = "FILE")]
    transcript: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
}

/// Which writes must be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Verify {
    /// Those that have a signature must have a valid one.
    IfPresent,
    /// All.
    Required,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    service::run("simulate", simulate(args))
}

async fn simulate(args: &Args) -> anyhow::Result<()> {
    let output = Output::start(&args.log);
    let simulator = builder(args)?.build()?;
    // A Redis that is away is reported now, not by the first request.
    simulator.directory().ping().await.with_context(|| {
        let place = args.redis.as_deref().map_or("REDIS_ADDR", |_| "--redis");
        format!("the Redis of {place} does not respond; start it, or leave {place} out")
    })?;
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
        let mut progress = Progress::start(Instant::now());
        let loaded = simulator.directory().seed(&text, |done, total| {
            progress.tell(output, done, total);
        });
        let loaded = loaded.await;
        let loaded = loaded.with_context(|| path.display().to_string())?;
        let from = path.display();
        output.tell("seeded", format_args!("{loaded} entries from {from}"));
    }
    let mut progress = Progress::start(Instant::now());
    simulator
        .directory()
        .seed_generated(GENERATED_PARTICIPANT, args.entries, |done, total| {
            progress.tell(output, done, total);
        })
        .await?;
    let listener = service::listen(args.listen, "--listen").await?;
    let address = listener.local_addr()?;
    let scheme = if simulator.is_tls() { "https" } else { "http" };
    let shutdown = service::shutdown_signal();
    output.address("DICT", format_args!("{scheme}://{address}/api/v2/"));
    output.address("inspection", format_args!("{scheme}://{address}/sim/"));
    let shutdown = async {
        shutdown.await;
    };
    simulator::run(listener, simulator, shutdown).await?;
    Ok(())
}

fn builder(args: &Args) -> anyhow::Result<SimulatorBuilder> {
    let profile = profile::load(&args.profile, &args.settings);
    let profile = profile.map_err(|problems| anyhow!("{}", problems.trim_end()))?;
    let has_key_info = Settings::of(&profile)?.answer_signature_certificate;
    let mut builder = Simulator::builder()
        .profile(profile)
        .category(args.category)
        .rules(DirectoryRules {
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
    if let Some(path) = &args.participants_file {
        let source = Source::read(path)?;
        builder = builder.participants(Participants::read(&source)?);
    }
    if let (Some(key), Some(cert)) = (&args.sign_key, &args.sign_cert) {
        let signer = XmlSigner::from_pem(&read_pem(cert)?, &read_pem(key)?);
        let mut signer = signer.context("--sign-key, --sign-cert")?;
        if !has_key_info {
            signer = signer.without_key_info();
        }
        builder = builder.signer(Arc::new(signer));
    }
    if let Some(verify) = args.verify {
        let verifier = match &args.verify_certs {
            Some(path) => XmlVerifier::trusting_pem(&read_pem(path)?).context("--verify-certs")?,
            None => XmlVerifier::trusting_any(),
        };
        builder = builder.verifier(Arc::new(verifier));
        if verify == Verify::IfPresent {
            builder = builder.accept_unsigned();
        }
    }
    if let Some(path) = &args.transcript {
        builder = builder.transcript(path);
    }
    if let Some(participant) = &args.check_keys_as {
        builder = builder.check_keys_participant(participant);
    }
    Ok(builder)
}

fn read_pem(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}

/// Reads the environment variables that all of balde uses.
fn from_environment(
    builder: SimulatorBuilder,
    namespace: &str,
) -> anyhow::Result<SimulatorBuilder> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    match StorageMode::from_env()? {
        None | Some(StorageMode::Memory) => Ok(builder),
        Some(StorageMode::Redis) => {
            let address =
                variable("REDIS_ADDR").context("RL_STORAGE_MODE=redis needs REDIS_ADDR")?;
            let builder = builder.redis(address, namespace);
            Ok(match variable("REDIS_PASSWORD") {
                Some(password) => builder.redis_password(password),
                None => builder,
            })
        }
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
