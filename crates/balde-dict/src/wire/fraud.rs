//! Fraud markers: a participant warns all others of a person or a key.

use serde::{Deserialize, Serialize};

use super::element::Element;
use super::envelope::{Envelope, Head};
use super::form::Form;
use super::formats;
use super::key_type::key_type_of;
use super::problem::Violation;
use super::time::Moment;
use super::words::{FraudMarkerStatus, FraudType};
use super::writer::Writer;

/// A fraud marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FraudMarker {
    /// Its id.
    pub id: String,
    /// Whose CPF or CNPJ.
    pub tax_id_number: String,
    /// Which key, if one.
    pub key: Option<String>,
    /// What kind of fraud.
    pub fraud_type: FraudType,
    /// Whether it counts.
    pub status: FraudMarkerStatus,
    /// Who made it.
    pub participant: String,
    /// When it was made.
    pub creation_time: Moment,
    /// When it last changed.
    pub last_modified: Moment,
}

/// createFraudMarker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateFraudMarker {
    /// Who makes it.
    pub participant: String,
    /// Whose CPF or CNPJ.
    pub tax_id_number: String,
    /// Which key, if one.
    pub key: Option<String>,
    /// What kind of fraud.
    pub fraud_type: FraudType,
    /// What makes asking twice happen once.
    pub request_id: Option<String>,
}

/// cancelFraudMarker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelFraudMarker {
    /// Which marker.
    pub id: String,
    /// Who made it.
    pub participant: String,
}

impl FraudMarker {
    fn write(&self, xml: &mut Writer) {
        xml.open("FraudMarker")
            .element("TaxIdNumber", &self.tax_id_number)
            .maybe("Key", self.key.as_deref())
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
        let mut form = Form::new(root, "CreateFraudMarkerRequest");
        let participant = form.checked(
            "Participant",
            "is not an ISPB of 8 characters",
            formats::is_ispb,
        );
        let tax_id_number = form.checked(
            "FraudMarker/TaxIdNumber",
            "is not a CPF or CNPJ",
            formats::is_tax_id,
        );
        let key = form.maybe("FraudMarker/Key", 77);
        if key.as_deref().is_some_and(|key| key_type_of(key).is_none()) {
            form.note_at("FraudMarker/Key", "does not have the shape of any key type");
        }
        let fraud_type = form.word("FraudMarker/FraudType", FraudType::read);
        let request_id = form.maybe("RequestId", 36);
        let request = fraud_type.map(|fraud_type| Self {
            participant,
            tax_id_number,
            key,
            fraud_type,
            request_id,
        });
        form.finish(request)
    }
}

impl CancelFraudMarker {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut form = Form::new(root, "CancelFraudMarkerRequest");
        let id = form.checked("FraudMarkerId", "is not a UUID", formats::is_uuid);
        let participant = form.checked(
            "Participant",
            "is not an ISPB of 8 characters",
            formats::is_ispb,
        );
        form.finish(Some(Self { id, participant }))
    }
}

/// The answer to every operation on one marker.
pub(crate) fn fraud_marker_response(
    name: &'static str,
    head: &Head,
    marker: &FraudMarker,
) -> String {
    let mut envelope = Envelope::new(name, head, 800);
    marker.write(envelope.xml());
    envelope.finish()
}

/// The answer to listFraudMarkers.
pub(crate) fn list_fraud_markers(head: &Head, markers: &[FraudMarker], has_more: bool) -> String {
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
