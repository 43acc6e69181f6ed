//! Who may speak for whom: participants, their certificates and their liquidators, from a file.
//!
//! ```toml
//! [[participant]]
//! ispb = "12345678"
//! certificates = ["9f86d0…"] # SHA-256 of the DER, in hexadecimal; without it, the ISPB in the subject
//!
//! [[participant]]
//! ispb = "87654321"
//! liquidator = "12345678" # an indirect participant: its liquidator's certificate covers it
//! ```

use std::collections::BTreeMap;

use balde_config::{ConfigError, Diagnostics, Document, Section, Source};

use crate::tls::ClientCertificate;
use crate::wire::{canonical_ispb, is_cid, is_ispb};

/// The most participants of a file.
const PARTICIPANTS_MAX: usize = 10_000;

/// The participants that a simulator knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participants(BTreeMap<String, Participant>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Participant {
    certificates: Vec<String>,
    liquidator: Option<String>,
}

impl Participants {
    /// Reads the participants of a TOML file. The error lists everything that is wrong with it.
    ///
    /// ```
    /// use balde_config::Source;
    /// use balde_simulator::Participants;
    ///
    /// let file = "[[participant]]\nispb = \"12345678\"\n\n[[participant]]\nispb = \"87654321\"\n\
    ///             liquidator = \"12345678\"\n";
    /// Participants::read(&Source::new("participants.toml", file))?;
    /// # Ok::<(), balde_dict::ConfigError>(())
    /// ```
    pub fn read(source: &Source) -> Result<Self, ConfigError> {
        Document::read(source, Diagnostics::new(source), |mut root, diagnostics| {
            let mut participants = BTreeMap::new();
            for section in root.tables("participant", diagnostics) {
                read_participant(section, &mut participants, diagnostics);
            }
            root.finish(diagnostics);
            for participant in participants.values() {
                let unknown = |own: &&String| !participants.contains_key(*own);
                if let Some(liquidator) = participant.liquidator.as_ref().filter(unknown) {
                    let message = format!("the liquidator {liquidator} is no participant");
                    diagnostics.at(None, message);
                }
            }
            Self(participants)
        })
    }

    /// Returns true if the file has this participant.
    pub(super) fn contains(&self, participant: &str) -> bool {
        self.0.contains_key(participant)
    }

    /// The participant that a certificate belongs to.
    pub(super) fn holder(&self, certificate: &ClientCertificate) -> Option<&str> {
        let by_certificate = self
            .0
            .iter()
            .find(|(_, own)| own.certificates.contains(&certificate.sha256))
            .map(|(ispb, _)| ispb.as_str());
        by_certificate.or_else(|| {
            let named = certificate.ispb.as_deref()?;
            let (ispb, own) = self.0.get_key_value(canonical_ispb(named).as_ref())?;
            // A participant with listed certificates has no others.
            own.certificates.is_empty().then_some(ispb.as_str())
        })
    }

    /// Returns true if a certificate may act for a participant: its own, or one that it settles for.
    pub(super) fn covers(&self, certificate: &ClientCertificate, participant: &str) -> bool {
        let Some(holder) = self.holder(certificate) else {
            return false;
        };
        let liquidator = self
            .0
            .get(participant)
            .and_then(|own| own.liquidator.as_deref());
        holder == participant || liquidator == Some(holder)
    }

    /// The indirect participants that a participant settles for.
    pub(super) fn indirect_of(&self, participant: &str) -> Vec<String> {
        let own = self
            .0
            .iter()
            .filter(|(_, own)| own.liquidator.as_deref() == Some(participant));
        own.map(|(ispb, _)| ispb.clone()).collect()
    }
}

fn read_participant(
    mut section: Section<'_>,
    participants: &mut BTreeMap<String, Participant>,
    diagnostics: &mut Diagnostics,
) {
    let span = section.span();
    let ispb = section.string("ispb", diagnostics);
    let liquidator = section.string("liquidator", diagnostics);
    let certificates = section.strings("certificates", diagnostics);
    section.finish(diagnostics);
    for fingerprint in &certificates {
        if !is_cid(fingerprint.value) {
            let message = "a certificate is its SHA-256: 64 hexadecimal digits";
            diagnostics.at(fingerprint.span, message);
        }
    }
    let Some(ispb) = ispb else {
        diagnostics.at(span, "missing key `ispb` in [[participant]]");
        return;
    };
    for named in [Some(ispb), liquidator].into_iter().flatten() {
        if !is_ispb(named.value) {
            diagnostics.at(named.span, "an ISPB has 8 letters or digits");
        }
    }
    if participants.len() == PARTICIPANTS_MAX {
        let message = format!("there are more than {PARTICIPANTS_MAX} participants");
        diagnostics.at(ispb.span, message);
        return;
    }
    let participant = Participant {
        certificates: certificates
            .iter()
            .map(|fingerprint| fingerprint.value.to_lowercase())
            .collect(),
        liquidator: liquidator.map(|named| canonical_ispb(named.value).into_owned()),
    };
    let name = canonical_ispb(ispb.value).into_owned();
    if participants.insert(name, participant).is_some() {
        diagnostics.at(ispb.span, "this participant is in the file already");
    }
}
