//! `balde certify`: plays a PSP's conversation with a DICT and reports what is not as published.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use balde_dict::wire::{XmlSigner, is_ispb};
use balde_simulator::certify::{Caller, Conversation, Report, compare, to_html, to_junit};

use crate::print::write_output;
use crate::service;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address of a DICT with its base path, `http://…/api/v2/`; with two, where they differ is printed
    #[arg(long = "url", value_name = "URL", required = true, num_args = 1)]
    urls: Vec<String>,
    /// Participant that speaks
    #[arg(long, value_name = "ISPB", default_value = "12345678", value_parser = ispb)]
    participant: String,
    /// Participant on the other side of claims and reports
    #[arg(long, value_name = "ISPB", default_value = "87654321", value_parser = ispb)]
    counterparty: String,
    /// Id of a settled transaction from the participant to the counterparty: the first is recovered, the
    /// second refunded. By default, ids are made up, which only a simulator accepts
    #[arg(long = "transaction", value_name = "ID")]
    transactions: Vec<String>,
    /// Client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "key_file")]
    cert_file: Option<PathBuf>,
    /// Private key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert_file")]
    key_file: Option<PathBuf>,
    /// Authorities that have signed the server's certificate (PEM)
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Certificate that writes are signed with (PEM). By default, the signature is empty
    #[arg(long, value_name = "FILE", requires = "sign_key_file")]
    sign_cert_file: Option<PathBuf>,
    /// Private key of the signing certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "sign_cert_file")]
    sign_key_file: Option<PathBuf>,
    /// Write the report as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the report as a page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Do not ask before writing to an address that is not on this machine
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    service::run_on("certify", Some(1), certify(args))
}

async fn certify(args: &Args) -> anyhow::Result<()> {
    if args.urls.len() > 2 {
        bail!(
            "--url is given {} times; compare two addresses at a time",
            args.urls.len()
        );
    }
    let mut callers = Vec::new();
    for url in &args.urls {
        callers.push(caller(args, url)?);
    }
    for caller in &callers {
        if !caller.is_loopback() && !args.yes {
            ask(caller.url())?;
        }
    }
    let conversation = Conversation::new(&args.participant, &args.counterparty)
        .transactions(args.transactions.clone());
    let mut reports: Vec<Report> = Vec::new();
    for caller in &callers {
        let report = conversation.run(caller).await;
        write_output(&format!("{report}\n"))?;
        reports.push(report);
    }
    let differences = match reports.as_slice() {
        [one, other] => compare(one, other),
        _ => Vec::new(),
    };
    if reports.len() == 2 {
        let count = differences.len();
        write_output(&format!("{count} steps are answered differently\n"))?;
        for difference in &differences {
            write_output(&format!("  {}: {}\n", difference.name, difference.text))?;
        }
    }
    if let Some(path) = &args.junit {
        write(path, &to_junit(&reports))?;
    }
    if let Some(path) = &args.html {
        write(path, &to_html(&reports, &differences))?;
    }
    let failed: usize = reports.iter().map(|report| report.failed().count()).sum();
    if failed > 0 {
        bail!("{failed} steps are not as published");
    }
    Ok(())
}

fn caller(args: &Args, url: &str) -> anyhow::Result<Caller> {
    let read = |path: &Option<PathBuf>| path.as_deref().map(read).transpose();
    let (cert, key) = (read(&args.cert_file)?, read(&args.key_file)?);
    let identity = cert.as_deref().zip(key.as_deref());
    let caller = Caller::new(url, identity, read(&args.ca_file)?.as_deref())?;
    let signing = (read(&args.sign_cert_file)?, read(&args.sign_key_file)?);
    Ok(match signing {
        (Some(cert), Some(key)) => {
            let signer = XmlSigner::from_pem(&cert, &key);
            let signer = signer.context("--sign-cert-file, --sign-key-file")?;
            caller.signer(Arc::new(signer))
        }
        _ => caller,
    })
}

/// Asks whether to write to an address. Without a terminal nobody can answer, so `--yes` is needed.
fn ask(url: &str) -> anyhow::Result<()> {
    let question = format!(
        "{url} is not on this machine. The conversation registers, claims and removes keys and opens \
         reports and refunds there."
    );
    if !std::io::stdin().is_terminal() {
        bail!("{question} Use --yes if that is intended");
    }
    let mut terminal = std::io::stderr().lock();
    write!(terminal, "{question} Continue? [y/N] ")?;
    terminal.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    bail!("nothing was sent to {url}")
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

fn ispb(text: &str) -> Result<String, String> {
    if is_ispb(text) {
        Ok(text.to_owned())
    } else {
        Err("an ISPB has 8 letters or digits".to_owned())
    }
}
