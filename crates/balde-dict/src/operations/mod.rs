//! Request → operation → policies and the keys of their buckets.

mod call;
mod compile;
mod fault;
mod incoming;
mod kinds;
mod operation;
mod resolve;
mod route;
mod table;

pub use call::{BucketKey, Call, DRAWS_MAX, Draw};
pub use fault::{Fault, RouteError};
pub use incoming::{
    END_TO_END_ID_HEADER, HttpHeaders, Incoming, PARTICIPANT_HEADER, PAYER_HEADER, QUERY_BYTES_MAX,
};
pub use kinds::{Category, PayerKind};
pub use operation::{Operation, ParticipantFrom};
pub use route::{PATH_BYTES_MAX, Route};
pub use table::Table;

use crate::wire::KeyType;
