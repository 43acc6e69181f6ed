//! The Pix DICT: its rate-limit policies as data, its operations, and a client for bucket states.
//! The crate `balde-simulator` has a simulated DICT.
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
//! // 1. Route: find the operation. The path is not decoded.
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
//! // 3. The buckets that it takes tokens from. An engine admits and settles `call.request()` by them.
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
//! | [`profiles`] | the published limits, as profiles that are part of the crate |
//! | [`Settings`] | values for what no published source specifies |
//! | [`Table`] | DICT's operations and a profile's policies |
//! | [`Operation`] | one of DICT's 48 operations |
//! | [`Route`], [`Incoming`], [`Call`] | a request: routed, as received, and resolved |
//! | [`RouteError`], [`RequestError`] | why a request is invalid, and DICT's response to it |
//! | [`KeyType`], [`PayerKind`], [`Category`] | types of keys, payers and participants |
//! | [`VolumeClass`] | how many requests a policy lets through in the long run |
//! | [`client`] | a client for DICT's bucket states |
//! | [`wire`] | the XML messages of a client and a gateway, and XML signatures |
//! | [`certificate_ispb`] | the participant in a certificate |

pub mod client;
mod operations;
pub mod profiles;
mod settings;
mod tls;
mod volume;
pub mod wire;
mod x509;

pub use balde_config::ConfigError;
pub use balde_policy::{BucketRef, Headers, HttpHeaders, InFlight, Policy, Profile};
pub use operations::{
    CATEGORY, Call, Category, END_TO_END_ID_HEADER, Incoming, Operation, PARTICIPANT_HEADER,
    PATH_BYTES_MAX, PAYER_HEADER, PAYMENT_ORDER, ParticipantFrom, PayerKind, QUERY_BYTES_MAX,
    RequestError, Route, RouteError, Table,
};
pub use settings::{ClaimPeriodStart, FundsRecoveryPolicy, Settings};
pub use tls::certificate_ispb;
pub use volume::VolumeClass;
pub use wire::KeyType;
