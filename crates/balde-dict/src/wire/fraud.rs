//! Messages about fraud markers, by which a participant warns all others of a person or a key.

use serde::{Deserialize, Serialize};

use super::element::Element;
use super::enums::{FraudMarkerStatus, FraudType, WireEnum};
use super::envelope::{Envelope, ResponseHead};
use super::formats;
use super::key_type::key_type_of;
use super::problem::Violation;
use super::request_reader::RequestReader;
use super::timestamp::Timestamp;
use super::writer::Writer;

/// A fraud marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FraudMarker {
    /// The id.
    pub(crate) id: String,
    /// The CPF or CNPJ of the marked person or company.
    pub(crate) tax_id_number: String,
    /// The marked key, if any.
    pub(crate) key: Option<String>,
    /// The kind of fraud.
    pub(crate) fraud_type: FraudType,
    /// Whether the marker is in force.
    pub(crate) status: FraudMarkerStatus,
    /// The participant that created it.
    pub(crate) participant: String,
    /// When it was created.
    pub(crate) creation_time: Timestamp,
    /// When it last changed.
    pub(crate) last_modified: Timestamp,
}

/// A createFraudMarker request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateFraudMarker {
    /// The participant that creates it.
    pub(crate) participant: String,
    /// The CPF or CNPJ of the marked person or company.
    pub(crate) tax_id_number: String,
    /// The marked key, if any.
    pub(crate) key: Option<String>,
    /// The kind of fraud.
    pub(crate) fraud_type: FraudType,
    /// The idempotency id: repeating it does not create a second marker.
    pub(crate) request_id: Option<String>,
}

/// A cancelFraudMarker request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CancelFraudMarker {
    /// The id of the marker.
    pub(crate) id: String,
    /// The participant that created it.
    pub(crate) participant: String,
}

impl FraudMarker {
    fn write(&self, xml: &mut Writer) {
        xml.open("FraudMarker")
            .element("TaxIdNumber", &self.tax_id_number)
            .optional("Key", self.key.as_deref())
            .element("FraudType", self.fraud_type.as_str())
            .element("Id", &self.id)
            .element("Status", self.status.as_str())
            .element("ReporterParticipant", &self.participant)
            .element("CreationTime", &self.creation_time.to_string())
            .element("LastModified", &self.last_modified.to_string())
            .close("FraudMarker");
    }
}

impl CreateFraudMarker {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, "CreateFraudMarkerRequest");
        let participant = reader.ispb("Participant");
        let tax_id_number = reader.text_matching(
            "FraudMarker/TaxIdNumber",
            "is not a CPF or CNPJ",
            formats::is_tax_id,
        );
        let key = reader.optional_text("FraudMarker/Key", 77);
        if key.as_deref().is_some_and(|key| key_type_of(key).is_none()) {
            reader.add_violation_at(
                "FraudMarker/Key",
                "does not have the format of any key type",
            );
        }
        let fraud_type = reader.value("FraudMarker/FraudType", FraudType::parse);
        let request_id = reader.optional_text("RequestId", 36);
        let request = fraud_type.map(|fraud_type| Self {
            participant,
            tax_id_number,
            key,
            fraud_type,
            request_id,
        });
        reader.finish(request)
    }
}

impl CancelFraudMarker {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, "CancelFraudMarkerRequest");
        let id = reader.uuid("FraudMarkerId");
        let participant = reader.ispb("Participant");
        reader.finish(Some(Self { id, participant }))
    }
}

/// Writes the response to an operation on one marker.
pub(crate) fn fraud_marker_response(
    name: &'static str,
    head: &ResponseHead,
    marker: &FraudMarker,
) -> String {
    let mut envelope = Envelope::new(name, head, 800);
    marker.write(envelope.xml());
    envelope.finish()
}

/// Writes the response to listFraudMarkers.
pub(crate) fn list_fraud_markers(
    head: &ResponseHead,
    markers: &[FraudMarker],
    has_more: bool,
) -> String {
    let mut envelope = Envelope::new("ListFraudMarkersResponse", head, 400 + 500 * markers.len());
    let xml = envelope.xml();
    xml.element("HasMoreElements", if has_more { "true" } else { "false" });
    xml.within("FraudMarkers", |xml| {
        for marker in markers {
            marker.write(xml);
        }
    });
    envelope.finish()
}
