//! Whom to ask about, and where.

use std::fmt;
use std::time::Duration;

use balde::Clock;
use balde::options::{Faults, Section};
use balde_dict::client::Client;
use balde_dict::wire::is_ispb;

use super::Reader;
use crate::schedule::PARTICIPANTS_MAX;
use crate::source::{GatewayClient, Source};

/// One participant and where its states come from.
#[derive(Clone, Debug)]
pub struct ParticipantConfig {
    /// Its ISPB.
    pub ispb: String,
    /// Where its states come from.
    pub source: SourceConfig,
}

/// Where states come from.
#[derive(Clone)]
pub enum SourceConfig {
    /// DICT itself.
    Dict {
        /// The base URL.
        url: String,
        /// The client's certificate chain and key, as PEM.
        identity: Option<(Vec<u8>, Vec<u8>)>,
        /// Whom to trust, as PEM.
        ca: Option<Vec<u8>>,
        /// How long an answer may take.
        timeout: Duration,
    },
    /// A gateway's state endpoint.
    Gateway {
        /// Its URL.
        url: String,
        /// The token that it wants.
        token: Option<String>,
        /// Whom to trust, as PEM.
        ca: Option<Vec<u8>>,
        /// How long an answer may take.
        timeout: Duration,
    },
}

impl ParticipantConfig {
    /// The source itself, or what is wrong with it.
    pub fn build(&self, clock: &Clock) -> Result<Source, String> {
        match &self.source {
            SourceConfig::Dict {
                url,
                identity,
                ca,
                timeout,
            } => {
                // Two attempts at once: what lasts longer is the schedule's to wait for.
                let mut builder = Client::builder(url, &self.ispb)
                    .clock(clock.clone())
                    .attempts(2)
                    .wait_max(Duration::from_secs(2))
                    .timeout(*timeout);
                if let Some((chain, key)) = identity {
                    builder = builder.identity_pem(chain, key);
                }
                if let Some(ca) = ca {
                    builder = builder.ca_pem(ca);
                }
                let client = builder.build().map_err(|error| error.to_string())?;
                Ok(Source::Dict(client))
            }
            SourceConfig::Gateway {
                url,
                token,
                ca,
                timeout,
            } => {
                let gateway = GatewayClient::new(url, token.clone(), ca.as_deref(), *timeout);
                let gateway = gateway.map_err(|error| error.to_string())?;
                Ok(Source::Gateway(gateway))
            }
        }
    }
}

impl fmt::Debug for SourceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dict { .. } => "Dict",
            Self::Gateway { .. } => "Gateway",
        })
    }
}

pub(super) fn check(
    root: &mut Section<'_>,
    reader: &Reader<'_>,
    faults: &mut Faults<'_>,
) -> Vec<ParticipantConfig> {
    let mut participants: Vec<ParticipantConfig> = Vec::new();
    let sections = root.list("participant", faults);
    if sections.is_empty() {
        let message = "there is nobody to ask about; write [[participant]] with ispb and dict";
        faults.at(None, message);
    }
    for mut section in sections {
        let span = section.span();
        let ispb = section.text("ispb", faults);
        let source = source(&mut section, reader, faults);
        section.finish(faults);
        let Some(ispb) = ispb else {
            faults.at(span, "a participant needs its `ispb`");
            continue;
        };
        let Some(source) = source else {
            continue;
        };
        if !is_ispb(ispb.value) {
            let message = "an `ispb` has 8 characters: digits, or capital letters among them";
            faults.at(Some(ispb.span), message);
            continue;
        }
        let is_known = |known: &ParticipantConfig| known.ispb == ispb.value;
        if participants.iter().any(is_known) {
            faults.at(Some(ispb.span), "this participant is here already");
            continue;
        }
        if participants.len() == PARTICIPANTS_MAX {
            let message = format!("{PARTICIPANTS_MAX} participants are the most");
            faults.at(Some(ispb.span), message);
            break;
        }
        let participant = ParticipantConfig {
            ispb: ispb.value.to_owned(),
            source,
        };
        if let Err(why) = participant.build(&Clock::precise()) {
            faults.at(Some(ispb.span.clone()), why);
        }
        participants.push(participant);
    }
    participants
}

fn source(
    section: &mut Section<'_>,
    reader: &Reader<'_>,
    faults: &mut Faults<'_>,
) -> Option<SourceConfig> {
    let dict = section.text("dict", faults);
    let gateway = section.text("gateway", faults);
    let ca = reader.bytes(section, "ca", faults);
    let timeout = section.number("timeout_ms", (1, 60_000), faults);
    let timeout = Duration::from_millis(timeout.map_or(10_000, |ms| ms.value));
    match (dict, gateway) {
        (Some(url), None) => {
            let certificate = reader.bytes(section, "certificate", faults);
            let key = reader.bytes(section, "key", faults);
            let has = |section: &mut Section<'_>, key| section.any(key).is_some();
            if has(section, "certificate") != has(section, "key") {
                faults.at(section.span(), "`certificate` and `key` go together");
            }
            Some(SourceConfig::Dict {
                url: url.value.to_owned(),
                identity: certificate.zip(key),
                ca,
                timeout,
            })
        }
        (None, Some(url)) => Some(SourceConfig::Gateway {
            url: url.value.to_owned(),
            token: reader.secret(section, "token_env", faults),
            ca,
            timeout,
        }),
        (Some(url), Some(_)) => {
            faults.at(Some(url.span), "name either `dict` or `gateway`");
            None
        }
        (None, None) => {
            let message = "name DICT's base URL as `dict`, or a gateway's state endpoint as \
                           `gateway`";
            faults.at(section.span(), message);
            None
        }
    }
}
