//! From an HTTP request to a DICT operation, and to the parts of it that policies use.

mod body_participant;
mod call;
mod incoming;
mod kinds;
mod operation;
mod patterns;
mod request_error;
mod resolve;
mod route;
mod table;
mod validate;

pub use call::Call;
pub use incoming::{
    END_TO_END_ID_HEADER, Incoming, PARTICIPANT_HEADER, PAYER_HEADER, QUERY_BYTES_MAX,
};
pub use kinds::{Category, PayerKind};
pub use operation::{Operation, ParticipantFrom};
pub use request_error::{RequestError, RouteError};
pub use route::{PATH_BYTES_MAX, Route};
pub use table::{CATEGORY, PAYMENT_ORDER, Table};

use crate::wire::KeyType;
