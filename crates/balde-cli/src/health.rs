//! `balde health URL…`: a health check for containers, which have no curl.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use reqwest::Certificate;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::service;

/// How much of an answer is read.
const ANSWER_BYTES_MAX: usize = 4_096;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to ask: http://HOST:PORT/PATH and https://HOST:PORT/PATH have to answer with a 2xx,
    /// tcp://HOST:PORT has to accept a connection. With several, all of them
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// How long each may take, such as "500 ms"
    #[arg(long, value_name = "DURATION", default_value = "3 s", value_parser = parse_timeout)]
    timeout: Duration,
    /// Send the bearer token that this environment variable holds, as a gateway's state endpoint
    /// requires
    #[arg(long, value_name = "VARIABLE")]
    token_env: Option<String>,
    /// Authorities that have signed the certificates of https:// servers (PEM). By default, those of the
    /// system
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca_file: Option<PathBuf>,
    /// Do not verify the certificates of https:// servers: for a check on the same machine, whose address
    /// the certificate does not name. The token goes to whoever answers
    #[arg(long)]
    insecure: bool,
}

/// How long something may take: up to ten minutes.
pub(crate) fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = balde_config::parse_duration(text)?;
    if timeout.is_zero() || timeout > Duration::from_secs(600) {
        return Err("it must be longer than zero and at most ten minutes".to_owned());
    }
    Ok(timeout)
}

/// The name is not repeated: people write the token itself there by mistake.
const TOKEN_ENV: &str =
    "--token-env: give the name of an environment variable that is set, not the token";

pub(crate) fn run(args: &Args) -> ExitCode {
    service::run_on("health", Some(1), health(args))
}

async fn health(args: &Args) -> anyhow::Result<()> {
    let timeout = args.timeout;
    let token = match &args.token_env {
        Some(name) => Some(std::env::var(name).context(TOKEN_ENV)?),
        None => None,
    };
    for url in &args.urls {
        let check = tokio::time::timeout(timeout, check(args, url, token.as_deref()));
        match check.await {
            Ok(result) => result.with_context(|| url.clone())?,
            Err(_elapsed) => bail!("{url}: no answer within {:?}", args.timeout),
        }
    }
    Ok(())
}

async fn check(args: &Args, url: &str, token: Option<&str>) -> anyhow::Result<()> {
    if let Some(address) = url.strip_prefix("tcp://") {
        TcpStream::connect(address.trim_end_matches('/')).await?;
        return Ok(());
    }
    if url.starts_with("https://") {
        return check_tls(args, url, token).await;
    }
    let Some(rest) = url.strip_prefix("http://") else {
        bail!("expected http://, https:// or tcp://");
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut request = format!("GET /{path} HTTP/1.0\r\nHost: {host}\r\n");
    if let Some(token) = token {
        let _never_fails = write!(request, "Authorization: Bearer {token}\r\n");
    }
    request.push_str("\r\n");
    let address = if host.contains(':') {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    let mut stream = stream.take(u64::try_from(ANSWER_BYTES_MAX).unwrap_or(u64::MAX));
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if !head.starts_with("HTTP/1.") {
        bail!("the answer is not HTTP");
    }
    if status.len() == 3 && status.starts_with('2') {
        return Ok(());
    }
    bail!("status {status}: {}", body.trim())
}

/// The authorities of the system are read only here: a container need not have any for http://.
async fn check_tls(args: &Args, url: &str, token: Option<&str>) -> anyhow::Result<()> {
    balde_net::tls::install_crypto_provider();
    let mut client = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .tls_danger_accept_invalid_certs(args.insecure);
    if let Some(path) = &args.ca_file {
        let place = || format!("--ca-file {}", path.display());
        let pem = std::fs::read(path).with_context(place)?;
        let authorities = Certificate::from_pem_bundle(&pem).ok();
        let authorities = authorities.filter(|list| !list.is_empty());
        let authorities = authorities.context("it has no certificate in PEM");
        client = client.tls_certs_only(authorities.with_context(place)?);
    }
    let client = client.build().map_err(|error| {
        let cause = innermost(&error);
        anyhow!("TLS cannot be set up: {cause}; name the authorities with --ca-file")
    })?;
    let mut request = client.get(url);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let sent = request.send().await;
    let mut response = sent.map_err(|error| anyhow!("{}", innermost(&error)))?;
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = ANSWER_BYTES_MAX.saturating_sub(body.len());
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() >= room {
            break;
        }
    }
    let body = String::from_utf8_lossy(&body);
    bail!("status {}: {}", status.as_u16(), body.trim())
}

/// The most specific message of an error.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
