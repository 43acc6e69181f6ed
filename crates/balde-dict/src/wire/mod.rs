//! DICT's XML messages as far as a client and a gateway need them: bucket states, problem documents,
//! identifiers and signatures. `balde-simulator` has the other messages. Writing follows the
//! published format exactly; parsing accepts unknown and reordered elements, within limits.
//!
//! | File | Holds |
//! |--|--|
//! | `element`, `writer` | the XML parser and the XML writer |
//! | `formats`, `timestamp`, `key_type` | identifiers, timestamps, key types |
//! | `problem` | error responses |
//! | `policies` | bucket states |
//! | `signature`, `xmldsig` | traits for signing and verifying, and XML signatures with RSA |

mod element;
pub mod formats;
mod key_type;
mod policies;
mod problem;
mod signature;
mod timestamp;
mod writer;
mod xmldsig;

pub use element::{Element, XML_BYTES_MAX, XML_DEPTH_MAX, XmlError, XmlPosition};
pub use formats::is_ispb;
pub use key_type::{KeyType, canonical_key, key_type_of};
pub use policies::{BucketState, BucketStates, ReadStatesError};
pub use problem::{
    ERROR_BASE, ERROR_BASE_V1, PROBLEM_XML, Problem, Violation, error_type_of, status_of,
};
pub use signature::{
    EMPTY_SIGNATURE, SignatureError, Signer, Unsigned, Unverified, Verifier, signature_range,
};
pub use timestamp::{Timestamp, TimestampError};
pub use writer::Writer;
pub use xmldsig::{XmlSigner, XmlVerifier};
