//! XML signatures: traits by which an operator signs responses and verifies requests.
//!
//! DICT signs every response and requires every write to be signed, with an enveloped XML signature as
//! the first child of the root. The operator holds the keys (in a file, in a hardware module, behind a
//! service), so signing and verifying are traits that the operator implements.

use std::fmt;
use std::ops::Range;

use thiserror::Error;

/// The empty signature, which a signer replaces.
pub const EMPTY_SIGNATURE: &str = "<Signature></Signature>";

/// Signs documents.
///
/// The document's root starts with an empty `<Signature></Signature>`, which [`signature_range`]
/// finds. The signed document is sent as it is returned.
pub trait Signer: fmt::Debug + Send + Sync {
    /// Returns the signed document.
    fn sign(&self, document: String) -> Result<String, SignatureError>;
}

/// Verifies the signatures of documents.
pub trait Verifier: fmt::Debug + Send + Sync {
    /// Returns an error unless the document has a valid signature.
    fn verify(&self, document: &[u8]) -> Result<(), SignatureError>;

    /// Verifies a document, and returns the certificate (DER) that it was signed with. By default,
    /// the certificate is not known: `None`.
    fn verify_signer(&self, document: &[u8]) -> Result<Option<Vec<u8>>, SignatureError> {
        self.verify(document).map(|()| None)
    }
}

/// A signer that leaves the signature empty, as DICT's published examples do. Clients that verify
/// signatures will reject the documents.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unsigned;

impl Signer for Unsigned {
    fn sign(&self, document: String) -> Result<String, SignatureError> {
        Ok(document)
    }
}

/// A verifier that accepts every document.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unverified;

impl Verifier for Unverified {
    fn verify(&self, _document: &[u8]) -> Result<(), SignatureError> {
        Ok(())
    }
}

/// Returns the byte range of a document's empty signature, for a signer to replace.
pub fn signature_range(document: &str) -> Option<Range<usize>> {
    let start = document.find(EMPTY_SIGNATURE)?;
    Some(start..start + EMPTY_SIGNATURE.len())
}

/// Why a document could not be signed, or has no valid signature.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// The document has no signature.
    #[error("the document is not signed")]
    Missing,
    /// The signature does not match the document, or its signer is not trusted.
    #[error("the signature is not valid: {reason}")]
    Invalid {
        /// Why it is not valid.
        reason: String,
    },
    /// The signer failed.
    #[error("the document could not be signed: {reason}")]
    Signer {
        /// Why it failed.
        reason: String,
    },
}
