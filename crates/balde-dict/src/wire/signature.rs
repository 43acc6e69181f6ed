//! The one seam for signatures: who signs what DICT answers, and who checks what DICT is sent.
//!
//! DICT signs every answer and wants every write signed, with an enveloped XML signature as the
//! first child of the root. Keys are the operator's: in a file, in a hardware module, behind a
//! service. So both sides are traits that an operator can implement.

use std::fmt;

use super::envelope::SIGNATURE_PLACE;

/// Signs documents.
///
/// What it gets is a whole document whose root begins with an empty `<Signature></Signature>`; what
/// it gives back is sent as it is. [`signature_place`] finds that element.
pub trait Signer: fmt::Debug + Send + Sync {
    /// The same document, signed.
    fn sign(&self, document: String) -> Result<String, SignatureError>;
}

/// Checks signatures.
pub trait Verifier: fmt::Debug + Send + Sync {
    /// Nothing, if the document is signed as it must be.
    fn verify(&self, document: &[u8]) -> Result<(), SignatureError>;
}

/// Leaves the signature empty, as DICT's published examples do. A client that verifies will refuse
/// such answers, and is right to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unsigned;

impl Signer for Unsigned {
    fn sign(&self, document: String) -> Result<String, SignatureError> {
        Ok(document)
    }
}

/// Takes every document for signed, whether it is or not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unverified;

impl Verifier for Unverified {
    fn verify(&self, _document: &[u8]) -> Result<(), SignatureError> {
        Ok(())
    }
}

/// Where the empty signature of an answer is, for a signer to replace.
pub fn signature_place(document: &str) -> Option<std::ops::Range<usize>> {
    let start = document.find(SIGNATURE_PLACE)?;
    Some(start..start + SIGNATURE_PLACE.len())
}

/// Why a document could not be signed, or is not signed as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignatureError {
    /// There is no signature.
    Missing,
    /// The signature does not fit the document, or is by somebody who is not trusted.
    Invalid {
        /// What is wrong with it.
        why: String,
    },
    /// The signer could not sign.
    Signer {
        /// What it said.
        why: String,
    },
}

impl fmt::Display for SignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the document is not signed"),
            Self::Invalid { why } => write!(f, "the signature is not valid: {why}"),
            Self::Signer { why } => write!(f, "the document could not be signed: {why}"),
        }
    }
}

impl std::error::Error for SignatureError {}
