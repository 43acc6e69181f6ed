//! `balde health URL…`: a health check for containers, which have no curl.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::service;

/// How much of an answer is read.
const ANSWER_BYTES_MAX: u64 = 4_096;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to ask: http://HOST:PORT/PATH has to answer with a 2xx, tcp://HOST:PORT has to accept a
    /// connection. With several, all of them
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// How long each may take, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout_ms: u64,
    /// Send the bearer token that this environment variable holds, as a gateway's state endpoint
    /// requires
    #[arg(long, value_name = "VARIABLE")]
    token_env: Option<String>,
}

/// The name is not repeated: people write the token itself there by mistake.
const TOKEN_ENV: &str =
    "--token-env: give the name of an environment variable that is set, not the token";

pub(crate) fn run(args: &Args) -> ExitCode {
    service::run_on("health", Some(1), health(args))
}

async fn health(args: &Args) -> anyhow::Result<()> {
    let timeout = Duration::from_millis(args.timeout_ms);
    let token = match &args.token_env {
        Some(name) => Some(std::env::var(name).context(TOKEN_ENV)?),
        None => None,
    };
    for url in &args.urls {
        let check = tokio::time::timeout(timeout, check(url, token.as_deref()));
        match check.await {
            Ok(result) => result.with_context(|| url.clone())?,
            Err(_elapsed) => bail!("{url}: no answer within {} ms", args.timeout_ms),
        }
    }
    Ok(())
}

async fn check(url: &str, token: Option<&str>) -> anyhow::Result<()> {
    if let Some(address) = url.strip_prefix("tcp://") {
        TcpStream::connect(address.trim_end_matches('/')).await?;
        return Ok(());
    }
    let Some(rest) = url.strip_prefix("http://") else {
        bail!("expected http:// or tcp://; behind TLS, ask a plain address or tcp://");
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
    let mut stream = stream.take(ANSWER_BYTES_MAX);
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
