//! The sections `[[participant]]`: whose buckets are polled, and where.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use balde::Clock;
use balde_config::{Diagnostics, Section};
use balde_dict::client::Client;
use balde_dict::wire::{XmlVerifier, is_ispb};

use super::Resolver;
use crate::schedule::PARTICIPANTS_MAX;
use crate::source::{GatewayClient, Source, certificate_expiry_us};

/// A participant and the source of its bucket states.
#[derive(Clone, Debug)]
pub struct ParticipantConfig {
    /// The participant's ISPB.
    pub ispb: String,
    /// The source of its bucket states.
    pub source: SourceConfig,
}

/// A source of bucket states.
#[derive(Clone)]
pub enum SourceConfig {
    /// The DICT API.
    Dict {
        /// The base URL.
        url: String,
        /// The client's certificate chain and key, as PEM.
        identity: Option<(Vec<u8>, Vec<u8>)>,
        /// The certificate authorities to trust, as PEM.
        ca: Option<Vec<u8>>,
        /// The certificates that DICT signs its responses with, as PEM. Without them, signatures are
        /// not verified.
        verify: Option<Vec<u8>>,
        /// The longest wait for a response.
        timeout: Duration,
    },
    /// The state endpoint of a gateway.
    Gateway {
        /// The URL of the endpoint.
        url: String,
        /// The bearer token that the endpoint requires.
        token: Option<String>,
        /// The certificate authorities to trust, as PEM.
        ca: Option<Vec<u8>>,
        /// The longest wait for a response.
        timeout: Duration,
    },
}

impl ParticipantConfig {
    /// When the first certificate of the client's chain expires; `None` without a certificate.
    pub fn certificate_expiry_us(&self) -> Option<u64> {
        match &self.source {
            SourceConfig::Dict { identity, .. } => certificate_expiry_us(&identity.as_ref()?.0),
            SourceConfig::Gateway { .. } => None,
        }
    }

    /// Builds the source. The error says what is wrong with its settings.
    pub fn build(&self, clock: &Clock) -> Result<Source, String> {
        match &self.source {
            SourceConfig::Dict {
                url,
                identity,
                ca,
                verify,
                timeout,
            } => {
                // A short retry here; longer outages are retried by the schedule.
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
                if let Some(certificates) = verify {
                    let verifier = XmlVerifier::trusting_pem(certificates);
                    let verifier = verifier.map_err(|error| format!("`verify`: {error}"))?;
                    builder = builder.verifier(Arc::new(verifier));
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

pub(super) fn read(
    root: &mut Section<'_>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<ParticipantConfig> {
    let mut participants: Vec<ParticipantConfig> = Vec::new();
    let sections = root.tables("participant", diagnostics);
    if sections.is_empty() {
        let message = "there is no participant; write [[participant]] with `ispb` and `dict`";
        diagnostics.at(None, message);
    }
    for mut section in sections {
        let span = section.span();
        let ispb = section.string("ispb", diagnostics);
        let source = source(&mut section, resolver, diagnostics);
        section.finish(diagnostics);
        let Some(ispb) = ispb else {
            diagnostics.at(span, "missing key `ispb` in [[participant]]");
            continue;
        };
        let Some(source) = source else {
            continue;
        };
        if !is_ispb(ispb.value) {
            let message = "`ispb` must have 8 characters: digits and capital letters";
            diagnostics.at(ispb.span, message);
            continue;
        }
        let is_known = |known: &ParticipantConfig| known.ispb == ispb.value;
        if participants.iter().any(is_known) {
            diagnostics.at(ispb.span, "this participant is in the file already");
            continue;
        }
        if participants.len() == PARTICIPANTS_MAX {
            let message = format!("there are more than {PARTICIPANTS_MAX} participants");
            diagnostics.at(ispb.span, message);
            break;
        }
        let participant = ParticipantConfig {
            ispb: ispb.value.to_owned(),
            source,
        };
        if let Err(reason) = participant.build(&Clock::precise()) {
            diagnostics.at(ispb.span, reason);
        }
        participants.push(participant);
    }
    participants
}

/// The names of all policies that the participants can have; `None` if a gateway is among the sources,
/// whose policies can have any name.
pub(super) fn policies(participants: &[ParticipantConfig]) -> Option<Vec<String>> {
    let is_dict = |one: &ParticipantConfig| matches!(one.source, SourceConfig::Dict { .. });
    if participants.is_empty() || !participants.iter().all(is_dict) {
        return None;
    }
    let mut names: Vec<String> = Vec::new();
    for (name, _) in balde_dict::profiles::TEXTS {
        let profile = balde_dict::profiles::named(name);
        for policy in profile.iter().flat_map(balde_dict::Profile::policies) {
            names.push(policy.name().to_owned());
        }
    }
    names.sort();
    names.dedup();
    Some(names)
}

/// Checks a certificate and its key, with messages that say what to do.
pub(super) fn check_identity(chain: &[u8], key: &[u8]) -> Result<(), String> {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let text = String::from_utf8_lossy(key);
    if text.contains("ENCRYPTED") {
        return Err(
            "`key` is encrypted, and balde has no passphrase for it; decrypt it with `openssl pkey \
             -in KEY -out NEW` and protect the file by its permissions"
                .to_owned(),
        );
    }
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.map_err(|error| format!("`certificate` is no PEM file: {error}"))?;
    if chain.is_empty() {
        return Err("`certificate` has no certificate: write the PEM file of the chain".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| format!("`key` has no private key in PEM: {error}"))?;
    let provider = rustls::crypto::ring::default_provider();
    match rustls::sign::CertifiedKey::from_der(chain, key, &provider) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InconsistentKeys(_)) => Err(
            "`key` does not belong to `certificate`: the public keys differ; name the key that the \
             certificate was issued for, and put that certificate first in the chain"
                .to_owned(),
        ),
        Err(error) => Err(format!("`certificate` and `key` cannot be used: {error}")),
    }
}

fn source(
    section: &mut Section<'_>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<SourceConfig> {
    let dict = section.string("dict", diagnostics);
    let gateway = section.string("gateway", diagnostics);
    let ca = resolver.bytes(section, "ca", diagnostics);
    let mut timeout = Duration::from_secs(10);
    let range = Duration::from_millis(1)..=Duration::from_secs(60);
    section.set_duration("timeout", range, &mut timeout, diagnostics);
    match (dict, gateway) {
        (Some(url), None) => {
            let certificate = resolver.bytes(section, "certificate", diagnostics);
            let key = resolver.bytes(section, "key", diagnostics);
            let verify = resolver.bytes(section, "verify", diagnostics);
            if section.contains("certificate") != section.contains("key") {
                diagnostics.at(
                    section.span(),
                    "`certificate` and `key` are used together: write both or neither",
                );
            }
            let identity = certificate.zip(key);
            if let Some((chain, key)) = &identity
                && let Err(message) = check_identity(chain, key)
            {
                diagnostics.at(section.span(), message);
                return None;
            }
            Some(SourceConfig::Dict {
                url: url.value.to_owned(),
                identity,
                ca,
                verify,
                timeout,
            })
        }
        (None, Some(url)) => Some(SourceConfig::Gateway {
            url: url.value.to_owned(),
            token: resolver.secret(section, ("token_env", "token_file"), diagnostics),
            ca,
            timeout,
        }),
        (Some(url), Some(_)) => {
            diagnostics.at(url.span, "write either `dict` or `gateway`, not both");
            None
        }
        (None, None) => {
            let message = "a participant needs `dict`, the base URL of DICT, or `gateway`, the URL of \
                           a gateway's state endpoint";
            diagnostics.at(section.span(), message);
            None
        }
    }
}
