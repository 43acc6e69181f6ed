//! DICT's messages: written exactly, read tolerantly and within limits.
//!
//! | File | Holds |
//! |--|--|
//! | `element` | documents, read into a tree within limits |
//! | `writer`, `envelope` | documents, written; what every answer has around it |
//! | `form` | a request's fields, with all that is wrong with them at once |
//! | `formats`, `words`, `time` | the shapes of identifiers, words of the wire, moments |
//! | `problem` | what DICT answers when it does not do what was asked |
//! | `policies` | the states of buckets |
//! | `signature` | the seam for signing and verifying |
//! | the others | a family of messages each |

mod claim;
mod element;
mod entry;
mod envelope;
mod form;
mod formats;
mod fraud;
mod infraction;
mod key_type;
mod policies;
mod problem;
mod reconciliation;
mod refund;
mod signature;
mod statistics;
mod time;
mod words;
mod writer;

pub use claim::{Claim, CreateClaim, MoveClaim};
pub(crate) use claim::{claim_response, list_claims};
pub use element::{
    Element, Position, XML_ATTRIBUTES_MAX, XML_BYTES_MAX, XML_DEPTH_MAX, XML_ELEMENTS_MAX, XmlError,
};
pub use entry::{Account, CHECK_KEYS_MAX, CreateEntry, DeleteEntry, Entry, Owner, UpdateEntry};
pub(crate) use entry::{check_keys_response, delete_response, entry_response, read_check_keys};
pub(crate) use envelope::Head;
pub use form::VIOLATIONS_MAX;
pub use formats::is_ispb;
pub(crate) use formats::{is_cid, is_end_to_end_id, is_tax_id, is_uuid};
pub use fraud::{CancelFraudMarker, CreateFraudMarker, FraudMarker};
pub(crate) use fraud::{fraud_marker_response, list_fraud_markers};
pub use infraction::{CreateInfractionReport, InfractionReport, MoveInfractionReport};
pub(crate) use infraction::{infraction_response, list_infractions};
pub use key_type::{KEY_CHARS_MAX, key_type_of};
pub use policies::{BucketState, BucketStates, ReadStatesError};
pub(crate) use policies::{get_policy, list_policies};
pub use problem::{PROBLEM_XML, Problem, Violation};
pub use reconciliation::{
    CidSetEvent, CidSetEvents, CidSetFile, CreateCidSetFile, CreateSyncVerification,
    EventNotification,
};
pub(crate) use reconciliation::{
    cid_set_events_response, cid_set_file_response, entry_by_cid_response,
    event_notifications_response, sync_verification_response,
};
pub use refund::{CreateRefund, MoveRefund, Refund};
pub(crate) use refund::{list_refunds, refund_response};
pub use signature::{SignatureError, Signer, Unsigned, Unverified, Verifier, signature_place};
pub use statistics::{Counts, Statistics};
pub(crate) use statistics::{entry_statistics_response, person_statistics_response};
pub use time::{BadMoment, Moment};
pub use words::*;
