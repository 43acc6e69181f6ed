//! `balde import`: the configuration of envoyproxy/ratelimit or of Limitador as a file for `balde serve`.
//!
//! | File | Holds |
//! |--|--|
//! | `yaml.rs` | a YAML document as a tree with line numbers |
//! | `envoy.rs` | descriptors of envoyproxy/ratelimit |
//! | `limitador.rs`, `cel.rs` | limits of Limitador, and the conditions that have an equivalent |
//! | `service_file.rs` | the file that is written |
//! | `notes.rs` | what could not be imported, and where it is |

mod cel;
mod envoy;
mod limitador;
mod notes;
mod service_file;
mod yaml;

use std::process::ExitCode;

use clap::Subcommand;

use self::notes::Notes;
use self::service_file::ServiceFile;
use self::yaml::Node;
use crate::print::{write_error, write_output};

/// The most bytes of a file.
const FILE_BYTES_MAX: usize = 4 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, Subcommand)]
enum From {
    /// Import the YAML files of envoyproxy/ratelimit
    EnvoyRatelimit {
        /// Files, each with a domain
        #[arg(required = true, value_name = "FILE")]
        files: Vec<String>,
    },
    /// Import a YAML file with the limits of Limitador
    Limitador {
        /// A list of limits, or a `Limitador` resource of Kubernetes
        #[arg(value_name = "FILE")]
        file: String,
    },
}

/// Writes the file to standard output, and what could not be imported to standard error.
pub(crate) fn run(args: &Args) -> ExitCode {
    let mut notes = Notes::default();
    let imported = match &args.from {
        From::EnvoyRatelimit { files } => envoy_ratelimit(files, &mut notes),
        From::Limitador { file } => {
            read(file).and_then(|node| limitador::import(file, &node, &mut notes))
        }
    };
    let written = imported.and_then(|file| {
        let text = file.to_toml(&mut notes)?;
        write_output(&text).map_err(|error| error.to_string())
    });
    write_error(&notes.to_string());
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            write_error(&format!("balde import: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

fn envoy_ratelimit(files: &[String], notes: &mut Notes) -> Result<ServiceFile, String> {
    let mut domains = envoy::Domains::default();
    for file in files {
        domains.read(file, &read(file)?, notes)?;
    }
    Ok(domains.into_file(notes))
}

fn read(file: &str) -> Result<Node, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    if text.len() > FILE_BYTES_MAX {
        return Err(format!("{file}: the file has more than 4 MiB"));
    }
    Node::parse(&text).map_err(|(line, error)| format!("{file}:{line}: {error}"))
}
