//! DICT's XML messages. Writing follows the published format exactly; parsing accepts unknown and
//! reordered elements, within limits. What clients need too is in `balde_dict::wire`.
//!
//! | File | Holds |
//! |--|--|
//! | `envelope` | the envelope of every response |
//! | `request_reader` | reads a request's fields and collects all violations |
//! | `enums`, `key_type_text` | enumerations, and how a key type is stored |
//! | `version` | what differs between versions of the API |
//! | the others | one family of messages each |

mod claim;
mod contact;
mod entry;
mod enums;
mod envelope;
mod fraud;
mod funds_recovery;
mod infraction;
mod key_type_text;
mod policies;
mod reconciliation;
mod refund;
mod request_reader;
mod statistics;
mod statistics_v1;
mod version;

pub(crate) use balde_dict::wire::formats::{
    canonical_ispb, cents, is_cid, is_end_to_end_id, is_return_id, is_tax_id, is_uuid,
};
pub(crate) use balde_dict::wire::{
    BucketState, Element, PROBLEM_XML, Problem, SignatureError, Signer, Timestamp, Verifier,
    Violation, XmlError, canonical_key, error_type_of, is_ispb, key_type_of, status_of,
};
pub(crate) use claim::{Claim, ClaimActionRequest, CreateClaim, claim_response, list_claims};
pub(crate) use entry::{
    Account, CreateEntry, DeleteEntry, Entry, Owner, UpdateEntry, check_keys_response,
    delete_response, entry_response, entry_with_statistics_response, read_check_keys,
};
pub(crate) use enums::*;
pub(crate) use envelope::ResponseHead;
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
pub(crate) use policies::{get_policy, list_policies};
pub(crate) use reconciliation::{
    CidSetEvent, CidSetEvents, CidSetFile, CreateCidSetFile, CreateSyncVerification,
    EventNotification, cid_set_events_response, cid_set_file_response, entry_by_cid_response,
    event_notifications_response, sync_verification_response,
};
pub(crate) use refund::{
    CreateRefund, Refund, RefundAccount, RefundActionRequest, list_refunds, refund_response,
};
pub(crate) use request_reader::ISPB_PATTERN;
pub(crate) use statistics::{
    Counts, KeyStatistics, PersonStatistics, SETTLEMENTS_FROM, Statistics, Windows,
    entry_statistics_response, person_statistics_response,
};
pub(crate) use statistics_v1::{
    CounterWindows, Counters, EntryCounters, entry_with_counters_response,
    owner_statistics_response,
};
pub(crate) use version::ApiVersion;
