//! The Pix DICT: its policies as data, its operations and messages, a client and a simulator.
//!
//! # From a request to its buckets
//!
//! A [`Profile`] holds the published policies. A [`Table`] adds DICT's operations: it routes a
//! request, finds its participant and its payer, and hands those parts to the policy engine of
//! `balde-policy`, which knows nothing of DICT.
//!
//! ```
//! use balde_dict::{Category, Incoming, Operation, Table, profiles};
//!
//! let table = Table::new(profiles::default())?;
//! let headers = [
//!     ("PI-RequestingParticipant", "12345678"),
//!     ("PI-PayerId", "11122233300"),
//!     ("PI-EndToEndId", "E1234567820260115102030abcDEF123"),
//! ];
//!
//! // 1. Route: which operation is it? The raw path stays as it came.
//! let route = table.route("GET", "/api/v2/entries/%2B5511987654321")?;
//! assert_eq!(route.operation(), Operation::GetEntry);
//!
//! // 2. Resolve: the participant, the payer, and what is wrong with the request. A write's
//! //    participant is in its body; `Operation::participant` says so.
//! let incoming = Incoming::new("", &headers);
//! let call = table.resolve(&route, &incoming);
//! assert!(call.error().is_none());
//! assert_eq!(call.participant(), Some("12345678"));
//!
//! // 3. The buckets that count it. An engine admits and settles `call.request()` by them.
//! for bucket in table.buckets(&call, Category::A) {
//!     println!("{} {:?}: {}", bucket.policy().name(), bucket.key(), bucket.limit());
//!     assert_eq!(bucket.policy().cost(200), 1);
//! }
//! assert_eq!(table.buckets(&call, Category::A).len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | Name | What it is |
//! |--|--|
//! | [`profiles`] | the published tables, inside the crate |
//! | [`Settings`] | the open questions of a profile, answered |
//! | [`Table`] | operations and policies together |
//! | [`Operation`] | one of DICT's 38 operations |
//! | [`Route`], [`Incoming`], [`Call`] | a request on its way to its buckets |
//! | [`RouteError`], [`RequestError`] | what is wrong with a request, and what DICT answers |
//! | [`KeyType`], [`PayerKind`], [`Category`] | what a key, a payer and a participant are |

pub mod client;
pub mod directory;
mod operations;
pub mod profiles;
mod settings;
pub mod simulator;
mod tls;
pub mod wire;

pub use balde_policy::{BucketRef, Headers, HttpHeaders, InFlight, Policy, Profile, ProfileError};
pub use operations::{
    Call, Category, END_TO_END_ID_HEADER, Incoming, Operation, PARTICIPANT_HEADER, PATH_BYTES_MAX,
    PAYER_HEADER, PAYMENT_ORDER, ParticipantFrom, PayerKind, QUERY_BYTES_MAX, RequestError, Route,
    RouteError, Table,
};
pub use settings::Settings;
pub use wire::KeyType;
