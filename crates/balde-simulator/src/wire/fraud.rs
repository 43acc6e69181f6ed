//! Messages about fraud markers, by which a participant warns all others of a person or a key.

use balde_dict::wire::{Element, Timestamp, Violation, Writer, formats, key_type_of};
use serde::{Deserialize, Serialize};

use super::enums::{FraudMarkerStatus, FraudType, WireEnum};
use super::envelope::{Envelope, ResponseHead};
use super::request_reader::RequestReader;

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
    /// The participant that created it, or closed the report that did.
    pub(crate) participant: String,
    /// The report whose closing created it, and that report's reporter.
    pub(crate) report: Option<(String, String)>,
    /// The amount of the reported transaction, in cents.
    pub(crate) amount_cents: Option<u64>,
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
    pub(crate) request_id: String,
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
    /// In a list, the report has no reporter.
    fn write(&self, xml: &mut Writer, is_listed: bool) {
        xml.open("FraudMarker")
            .element("Id", &self.id)
            .element("Status", self.status.as_str())
            .element("TaxIdNumber", &self.tax_id_number)
            .element("FraudType", self.fraud_type.as_str())
            .optional("Key", self.key.as_deref())
            .element("CreationTime", &self.creation_time.to_string())
            .element("LastModified", &self.last_modified.to_string());
        if let Some((id, reporter)) = &self.report {
            xml.within("InfractionReport", |xml| {
                xml.element("Id", id);
                if !is_listed {
                    xml.element("ReporterParticipant", reporter);
                }
            });
        }
        xml.close("FraudMarker");
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
        let key = reader.optional_matching(
            "FraudMarker/Key",
            "does not have the format of any key type",
            |key| key_type_of(key).is_some(),
        );
        // UNKNOWN is only in responses.
        let fraud_type = reader.value("FraudMarker/FraudType", |text| {
            FraudType::parse(text).filter(|kind| *kind != FraudType::Unknown)
        });
        let request_id = reader.request_id("RequestId");
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
    marker.write(envelope.xml(), false);
    envelope.finish()
}

/// Writes the response to listFraudMarkers.
pub(crate) fn list_fraud_markers(
    head: &ResponseHead,
    markers: &[FraudMarker],
    has_more: bool,
    total: usize,
) -> String {
    let mut envelope = Envelope::new("ListFraudMarkersResponse", head, 400 + 500 * markers.len());
    let xml = envelope.xml();
    xml.element("HasMoreElements", if has_more { "true" } else { "false" })
        .element("Total", &total.to_string());
    xml.within("FraudMarkers", |xml| {
        for marker in markers {
            marker.write(xml, true);
        }
    });
    envelope.finish()
}
