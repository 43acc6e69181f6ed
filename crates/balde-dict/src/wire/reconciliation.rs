//! What keeps a participant's books and DICT's the same: sets of CIDs, their files and events, and
//! notifications of what happened.

use serde::{Deserialize, Serialize};

use super::element::Element;
use super::envelope::{Envelope, Head};
use super::form::Form;
use super::formats;
use super::key_type::key_type_text;
use super::problem::Violation;
use super::time::Moment;
use super::words::CidEventType;
use super::writer::Writer;
use crate::KeyType;

/// createSyncVerification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateSyncVerification {
    /// Whose keys.
    pub participant: String,
    /// Of which type.
    pub key_type: KeyType,
    /// What the participant worked out.
    pub verifier: String,
}

/// createCidSetFile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateCidSetFile {
    /// Whose keys.
    pub participant: String,
    /// Of which type.
    pub key_type: KeyType,
}

/// A file with all CIDs of a participant's keys of one type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CidSetFile {
    /// Its id.
    pub id: u64,
    /// Whose keys.
    pub participant: String,
    /// Of which type.
    #[serde(with = "key_type_text")]
    pub key_type: KeyType,
    /// When it was asked for, and made.
    pub request_time: Moment,
    /// What is in it: a CID to a line.
    pub content: String,
    /// Its SHA-256.
    pub sha256: String,
}

/// A CID that came or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CidSetEvent {
    /// Which of the two.
    pub event_type: CidEventType,
    /// The CID.
    pub cid: String,
    /// When.
    pub timestamp: Moment,
}

/// Events of a set of CIDs, and the set's verifiers around them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CidSetEvents {
    /// Whose keys.
    pub participant: String,
    /// Of which type.
    pub key_type: KeyType,
    /// The first event's moment, or the beginning of what was asked for.
    pub start_time: Moment,
    /// The last event's moment, or the end of what was asked for.
    pub end_time: Moment,
    /// The set's verifier after the first event.
    pub verifier_start: String,
    /// The set's verifier after the last event.
    pub verifier_end: String,
    /// The events.
    pub events: Vec<CidSetEvent>,
    /// Whether there are more.
    pub has_more: bool,
}

/// Something that happened to what a participant has a part in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventNotification {
    /// Its number.
    pub id: String,
    /// What happened, such as `CLAIM_OPENED`.
    pub event_type: String,
    /// To what.
    pub entity_id: String,
    /// When.
    pub timestamp: Moment,
}

impl CreateSyncVerification {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut form = Form::new(root, "CreateSyncVerificationRequest");
        let participant = form.checked(
            "SyncVerification/Participant",
            "is not an ISPB of 8 characters",
            formats::is_ispb,
        );
        let key_type = form.word("SyncVerification/KeyType", KeyType::parse);
        let verifier = form.checked(
            "SyncVerification/ParticipantSyncVerifier",
            "is not 64 hexadecimal digits",
            formats::is_cid,
        );
        let request = key_type.map(|key_type| Self {
            participant,
            key_type,
            verifier,
        });
        form.finish(request)
    }
}

impl CreateCidSetFile {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut form = Form::new(root, "CreateCidSetFileRequest");
        let participant = form.checked(
            "Participant",
            "is not an ISPB of 8 characters",
            formats::is_ispb,
        );
        let key_type = form.word("KeyType", KeyType::parse);
        let request = key_type.map(|key_type| Self {
            participant,
            key_type,
        });
        form.finish(request)
    }
}

/// The answer to createSyncVerification.
pub(crate) fn sync_verification_response(
    head: &Head,
    request: &CreateSyncVerification,
    id: u64,
    is_same: bool,
) -> String {
    let mut envelope = Envelope::new("CreateSyncVerificationResponse", head, 700);
    envelope.xml().within("SyncVerification", |xml| {
        xml.element("Participant", &request.participant)
            .element("KeyType", request.key_type.as_str())
            .element("ParticipantSyncVerifier", &request.verifier)
            .element("Id", &id.to_string())
            .element("Result", if is_same { "OK" } else { "NOK" });
    });
    envelope.finish()
}

/// The answer to createCidSetFile and getCidSetFile.
pub(crate) fn cid_set_file_response(
    name: &'static str,
    head: &Head,
    file: &CidSetFile,
    url: &str,
) -> String {
    let mut envelope = Envelope::new(name, head, 900);
    envelope.xml().within("CidSetFile", |xml| {
        xml.element("Id", &file.id.to_string())
            .element("Status", "AVAILABLE")
            .element("Participant", &file.participant)
            .element("KeyType", file.key_type.as_str())
            .element("RequestTime", &file.request_time.to_string())
            .element("CreationTime", &file.request_time.to_string())
            .element("Url", url)
            .element("Bytes", &file.content.len().to_string())
            .element("Sha256", &file.sha256);
    });
    envelope.finish()
}

/// The answer to listCidSetEvents.
pub(crate) fn cid_set_events_response(head: &Head, list: &CidSetEvents) -> String {
    let bytes = 800 + 200 * list.events.len();
    let mut envelope = Envelope::new("ListCidSetEventsResponse", head, bytes);
    let xml = envelope.xml();
    xml.element(
        "HasMoreElements",
        if list.has_more { "true" } else { "false" },
    )
    .element("Participant", &list.participant)
    .element("KeyType", list.key_type.as_str())
    .element("StartTime", &list.start_time.to_string())
    .element("EndTime", &list.end_time.to_string())
    .element("SyncVerifierStart", &list.verifier_start)
    .element("SyncVerifierEnd", &list.verifier_end);
    xml.within("CidSetEvents", |xml| {
        for event in &list.events {
            xml.open("CidSetEvent")
                .element("Type", event.event_type.as_str())
                .element("Cid", &event.cid)
                .element("Timestamp", &event.timestamp.to_string())
                .close("CidSetEvent");
        }
    });
    envelope.finish()
}

/// The answer to getEntryByCid.
pub(crate) fn entry_by_cid_response(
    head: &Head,
    cid: &str,
    entry_xml: &str,
    request_id: &str,
) -> String {
    let mut envelope = Envelope::new("GetEntryByCidResponse", head, 500 + entry_xml.len());
    envelope
        .xml()
        .element("Cid", cid)
        .raw(entry_xml)
        .element("RequestId", request_id);
    envelope.finish()
}

/// The answer to listEventNotifications.
pub(crate) fn event_notifications_response(
    head: &Head,
    events: &[EventNotification],
    has_more: bool,
) -> String {
    let bytes = 400 + 250 * events.len();
    let mut envelope = Envelope::new("ListEventNotificationsResponse", head, bytes);
    let xml = envelope.xml();
    xml.element("HasMoreElements", if has_more { "true" } else { "false" });
    xml.within("EventNotifications", |xml| {
        for event in events {
            write_event(xml, event);
        }
    });
    envelope.finish()
}

fn write_event(xml: &mut Writer, event: &EventNotification) {
    xml.open("EventNotification")
        .element("Id", &event.id)
        .element("Type", &event.event_type)
        .element("EntityId", &event.entity_id)
        .element("Timestamp", &event.timestamp.to_string())
        .close("EventNotification");
}
