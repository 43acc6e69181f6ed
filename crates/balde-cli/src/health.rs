//! `balde health URL…`: a health check for containers, which have no curl.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::Client;
use tokio::net::TcpStream;

use crate::service;

/// How much of a failed answer is printed.
const ANSWER_CHARS_MAX: usize = 300;

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

pub(crate) fn run(args: &Args) -> ExitCode {
    service::run_on("health", Some(1), health(args))
}

async fn health(args: &Args) -> anyhow::Result<()> {
    let timeout = Duration::from_millis(args.timeout_ms);
    let token = match &args.token_env {
        Some(name) => Some(std::env::var(name).with_context(|| format!("--token-env {name}"))?),
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
    if !url.starts_with("http://") {
        bail!("expected http:// or tcp://; behind TLS, ask a plain address or tcp://");
    }
    // Proxies are for the world outside, not for a check of this machine.
    let http = Client::builder().no_proxy().build()?;
    let mut request = http.get(url);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let response = request.send().await?;
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let answer = response.text().await.unwrap_or_default();
    let answer: String = answer.trim().chars().take(ANSWER_CHARS_MAX).collect();
    bail!("{status}: {answer}")
}
