//! The Pix DICT: its policies as data, its operations and messages, a client and a simulator.
//!
//! # From a request to its buckets
//!
//! A [`Profile`] holds the published policies. A [`Table`] puts them together with DICT's
//! operations: it routes a request, finds out who is asking and for whom, and says which buckets
//! the request draws on. A bucket is a policy's index with a key; the policy has the limit, the
//! price of each status and what a payment order gives back.
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
//! // 2. Resolve: who asks, for whom, and what is wrong with it. A write's participant is in its
//! //    body; `Operation::participant` says so, and whoever reads bodies passes it on.
//! let incoming = Incoming::new("", &headers);
//! let call = table.resolve(&route, &incoming);
//! assert!(call.fault().is_none());
//! assert_eq!(call.participant(), Some("12345678"));
//!
//! // 3. Ask every bucket. The category is known to whoever keeps the participants.
//! for draw in call.draws() {
//!     let policy = table.policy(draw.policy());
//!     let limit = table.limit(draw, Category::A).expect("the profile has category A");
//!     println!("{} {:?}: {limit}", policy.name(), draw.key());
//!     // admitted when the level is at least policy.admission(), then settled by the status:
//!     assert_eq!(policy.cost(200), 1);
//!     // and given back for a payment order:
//!     assert_eq!(table.credit(draw, Category::A), 1);
//! }
//! assert_eq!(call.draws().len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | Name | What it is |
//! |--|--|
//! | [`profiles`] | the published tables, inside the crate |
//! | [`Settings`] | the open questions of a profile, answered |
//! | [`Table`] | operations and policies together |
//! | [`Operation`] | one of DICT's 38 operations |
//! | [`Route`], [`Incoming`], [`Call`], [`Draw`] | a request on its way to its buckets |
//! | [`RouteError`], [`Fault`] | what is wrong with a request, and what DICT answers |
//! | [`KeyType`], [`PayerKind`], [`Category`] | what a key, a payer and a participant are |

pub mod client;
pub mod directory;
mod operations;
pub mod profiles;
mod settings;
pub mod simulator;
mod tls;
pub mod wire;

pub use balde_config::ConfigError;
pub use balde_policy::Profile;
pub use balde_policy::{Headers, Policy};
pub use operations::{
    BucketKey, Call, Category, DRAWS_MAX, Draw, END_TO_END_ID_HEADER, Fault, HttpHeaders, Incoming,
    Operation, PARTICIPANT_HEADER, PATH_BYTES_MAX, PAYER_HEADER, ParticipantFrom, PayerKind,
    QUERY_BYTES_MAX, Route, RouteError, Table,
};
pub use settings::{InFlight, Settings};
pub use wire::KeyType;
