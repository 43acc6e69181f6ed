//! Messages for reconciliation: sets of content ids (CIDs), their files and events, and event
//! notifications.

use super::key_type_text;
use balde_dict::wire::{Element, KeyType, Timestamp, Violation, Writer, formats};
use serde::{Deserialize, Serialize};

use super::enums::{CidEventType, FileStatus, WireEnum};
use super::envelope::{Envelope, ResponseHead};
use super::request_reader::RequestReader;

/// A createSyncVerification request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateSyncVerification {
    /// The participant that holds the keys.
    pub(crate) participant: String,
    /// The type of the keys.
    pub(crate) key_type: KeyType,
    /// The verifier that the participant computed.
    pub(crate) verifier: String,
}

/// A createCidSetFile request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateCidSetFile {
    /// The participant that holds the keys.
    pub(crate) participant: String,
    /// The type of the keys.
    pub(crate) key_type: KeyType,
}

/// A file with all CIDs of a participant's keys of one type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CidSetFile {
    /// The id.
    pub(crate) id: u64,
    /// The participant that holds the keys.
    pub(crate) participant: String,
    /// The type of the keys.
    #[serde(with = "key_type_text")]
    pub(crate) key_type: KeyType,
    /// When it was requested and created.
    pub(crate) request_time: Timestamp,
    /// The content: one CID per line.
    pub(crate) content: String,
    /// The SHA-256 of the content, in hexadecimal.
    pub(crate) sha256: String,
}

/// A CID that was added to a set or removed from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CidSetEvent {
    /// Whether it was added or removed.
    pub(crate) event_type: CidEventType,
    /// The CID.
    pub(crate) cid: String,
    /// When it happened.
    pub(crate) timestamp: Timestamp,
}

/// Events of a set of CIDs, and the set's verifiers at the first and the last of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CidSetEvents {
    /// The participant that holds the keys.
    pub(crate) participant: String,
    /// The type of the keys.
    pub(crate) key_type: KeyType,
    /// The time of the first event, or the start of the requested period.
    pub(crate) start_time: Timestamp,
    /// The time of the last event, or the end of the requested period.
    pub(crate) end_time: Timestamp,
    /// The set's verifier after the first event.
    pub(crate) verifier_start: String,
    /// The set's verifier after the last event.
    pub(crate) verifier_end: String,
    /// The events.
    pub(crate) events: Vec<CidSetEvent>,
    /// Whether there are more events in the period.
    pub(crate) has_more: bool,
}

/// An event of a funds recovery that a participant takes part in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventNotification {
    /// The sequence number.
    pub(crate) id: u64,
    /// The event, such as `FUNDS_RECOVERY_ANALYSED`.
    pub(crate) event: String,
    /// The id of the funds recovery.
    pub(crate) entity_id: String,
    /// The participant that is notified.
    pub(crate) participant: String,
    /// When it happened.
    pub(crate) timestamp: Timestamp,
}

impl CreateSyncVerification {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, "CreateSyncVerificationRequest");
        let participant = reader.ispb("SyncVerification/Participant");
        let key_type = reader.value("SyncVerification/KeyType", KeyType::parse);
        let verifier = reader.text_matching(
            "SyncVerification/ParticipantSyncVerifier",
            "is not 64 hexadecimal digits",
            formats::is_cid,
        );
        let request = key_type.map(|key_type| Self {
            participant,
            key_type,
            verifier,
        });
        reader.finish(request)
    }
}

impl CreateCidSetFile {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, "CreateCidSetFileRequest");
        let participant = reader.ispb("Participant");
        let key_type = reader.value("KeyType", KeyType::parse);
        let request = key_type.map(|key_type| Self {
            participant,
            key_type,
        });
        reader.finish(request)
    }
}

/// Writes the response to createSyncVerification.
pub(crate) fn sync_verification_response(
    head: &ResponseHead,
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

/// Writes the response to createCidSetFile and getCidSetFile.
pub(crate) fn cid_set_file_response(
    name: &'static str,
    head: &ResponseHead,
    file: &CidSetFile,
    status: FileStatus,
    url: &str,
) -> String {
    let mut envelope = Envelope::new(name, head, 900);
    envelope.xml().within("CidSetFile", |xml| {
        xml.element("Id", &file.id.to_string())
            .element("Status", status.as_str())
            .element("Participant", &file.participant)
            .element("KeyType", file.key_type.as_str())
            .element("RequestTime", &file.request_time.to_string());
        if status == FileStatus::Available {
            xml.element("CreationTime", &file.request_time.to_string())
                .element("Url", url)
                .element("Bytes", &file.content.len().to_string())
                .element("Sha256", &file.sha256);
        }
    });
    envelope.finish()
}

/// Writes the response to listCidSetEvents.
pub(crate) fn cid_set_events_response(head: &ResponseHead, list: &CidSetEvents) -> String {
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

/// Writes the response to getEntryByCid.
pub(crate) fn entry_by_cid_response(
    head: &ResponseHead,
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

/// Writes the response to listEventNotifications.
pub(crate) fn event_notifications_response(
    head: &ResponseHead,
    events: &[EventNotification],
    next_cursor: Option<&str>,
) -> String {
    let bytes = 400 + 250 * events.len();
    let mut envelope = Envelope::new("ListEventNotificationsResponse", head, bytes);
    let xml = envelope.xml();
    let has_more = next_cursor.is_some();
    xml.element("HasMoreElements", if has_more { "true" } else { "false" })
        .optional("NextCursor", next_cursor);
    xml.within("EventNotifications", |xml| {
        for event in events {
            write_event(xml, event);
        }
    });
    envelope.finish()
}

fn write_event(xml: &mut Writer, event: &EventNotification) {
    xml.open("EventNotification")
        .element("Id", &event.id.to_string())
        .element("Event", &event.event)
        .element("EntityType", "FUNDS_RECOVERY")
        .element("EntityId", &event.entity_id)
        .element("Timestamp", &event.timestamp.to_string())
        .element("Participant", &event.participant)
        .close("EventNotification");
}
