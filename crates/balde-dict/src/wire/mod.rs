//! DICT's XML messages. Writing follows the published format exactly; parsing accepts unknown and
//! reordered elements, within limits.
//!
//! | File | Holds |
//! |--|--|
//! | `element` | the XML parser |
//! | `writer`, `envelope` | the XML writer, and the envelope of every response |
//! | `request_reader` | reads a request's fields and collects all violations |
//! | `formats`, `enums`, `timestamp`, `key_type` | identifiers, enumerations, timestamps, key types |
//! | `problem`, `version` | error responses, and what differs between versions of the API |
//! | `policies` | bucket states |
//! | `signature`, `xmldsig` | traits for signing and verifying, and XML signatures with RSA |
//! | the others | one family of messages each |

mod claim;
mod contact;
mod element;
mod entry;
mod enums;
mod envelope;
mod formats;
mod fraud;
mod funds_recovery;
mod infraction;
mod key_type;
mod policies;
mod problem;
mod reconciliation;
mod refund;
mod request_reader;
mod signature;
mod statistics;
mod statistics_v1;
mod timestamp;
mod version;
mod writer;
mod xmldsig;

pub(crate) use claim::{Claim, ClaimActionRequest, CreateClaim, claim_response, list_claims};
pub(crate) use element::{Element, XML_BYTES_MAX};
pub use element::{XML_DEPTH_MAX, XmlError, XmlPosition};
pub(crate) use entry::{
    Account, CreateEntry, DeleteEntry, Entry, Owner, UpdateEntry, check_keys_response,
    delete_response, entry_response, entry_with_statistics_response, read_check_keys,
};
pub(crate) use enums::*;
pub(crate) use envelope::ResponseHead;
pub use formats::is_ispb;
pub(crate) use formats::{canonical_ispb, cents, is_cid, is_end_to_end_id, is_tax_id, is_uuid};
pub(crate) use fraud::{
    CancelFraudMarker, CreateFraudMarker, FraudMarker, fraud_marker_response, list_fraud_markers,
};
pub(crate) use funds_recovery::{
    CreateFundsRecovery, FundsRecovery, FundsRecoveryActionRequest, GraphAccount, GraphParameters,
    GraphTransaction, TrackingGraph, funds_recovery_response, recovery_refunds_response,
    recovery_reports_response, tracking_graph_response,
};
pub(crate) use infraction::{
    CreateInfractionReport, InfractionActionRequest, InfractionReport, ReportForm,
    infraction_response, list_infractions,
};
pub use key_type::KeyType;
pub(crate) use key_type::{canonical_key, key_type_of};
pub use policies::{BucketState, BucketStates, ReadStatesError};
pub(crate) use policies::{get_policy, list_policies};
pub use problem::{PROBLEM_XML, Problem, Violation};
pub(crate) use problem::{error_type_of, status_of};
pub(crate) use reconciliation::{
    CidSetEvent, CidSetEvents, CidSetFile, CreateCidSetFile, CreateSyncVerification,
    EventNotification, cid_set_events_response, cid_set_file_response, entry_by_cid_response,
    event_notifications_response, sync_verification_response,
};
pub(crate) use refund::{
    CreateRefund, Refund, RefundAccount, RefundActionRequest, list_refunds, refund_response,
};
pub use signature::{SignatureError, Signer, Unsigned, Unverified, Verifier, signature_range};
pub(crate) use statistics::{
    Counts, KeyStatistics, PersonStatistics, SETTLEMENTS_FROM, Statistics, Windows,
    entry_statistics_response, person_statistics_response,
};
pub(crate) use statistics_v1::{
    CounterWindows, Counters, EntryCounters, entry_with_counters_response,
    owner_statistics_response,
};
pub use timestamp::{Timestamp, TimestampError};
pub(crate) use version::ApiVersion;
pub use xmldsig::{XmlSigner, XmlVerifier};
