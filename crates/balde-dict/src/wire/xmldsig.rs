//! Enveloped XML signatures in the form that DICT uses: exclusive canonicalisation, SHA-256 and RSA,
//! with the signer's certificate inside.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bergshamra_c14n::{C14nMode, canonicalize, canonicalize_doc};
use bergshamra_xml::uppsala::{self, Document};
use bergshamra_xml::{NodeId, NodeSet};
use ring::digest;
use ring::rand::SystemRandom;
use ring::signature::{
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::element::Element;
use super::signature::{EMPTY_SIGNATURE, SignatureError, Signer, Verifier};
use super::timestamp::Timestamp;
use crate::x509;

const DS: &str = "http://www.w3.org/2000/09/xmldsig#";
const EXCLUSIVE: &str = "http://www.w3.org/2001/10/xml-exc-c14n#";
const RSA_SHA256: &str = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256";
const SHA256: &str = "http://www.w3.org/2001/04/xmlenc#sha256";
const ENVELOPED: &str = "http://www.w3.org/2000/09/xmldsig#enveloped-signature";

/// The most references of a signature: the document, and the key's description.
const REFERENCES_MAX: usize = 2;

/// Signs documents with an RSA key.
///
/// The signature is the first child of the root and covers the whole document.
pub struct XmlSigner {
    key: RsaKeyPair,
    certificate: String,
    has_key_info: bool,
}

impl XmlSigner {
    /// Creates a signer from a certificate and its RSA key of 2048 to 4096 bits, both as PEM.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, SignatureError> {
        let certificate = CertificateDer::from_pem_slice(certificate)
            .map_err(|_| signer("the certificate is not in PEM format"))?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| signer("the key is not in PEM format"))?;
        let key = match &key {
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
            _ => return Err(signer("the key is no RSA key")),
        };
        let key = key.map_err(|_| signer("the key is no RSA key of 2048 to 4096 bits"))?;
        let public = x509::rsa_public_key(&certificate);
        if public != Some(key.public().as_ref()) {
            return Err(signer("the key is not the certificate's"));
        }
        Ok(Self {
            key,
            certificate: BASE64.encode(&certificate),
            has_key_info: true,
        })
    }

    /// Leaves `KeyInfo` with the certificate out of signatures: who verifies them must know it.
    #[must_use]
    pub fn without_key_info(mut self) -> Self {
        self.has_key_info = false;
        self
    }
}

impl Signer for XmlSigner {
    fn sign(&self, document: String) -> Result<String, SignatureError> {
        let document = document.replacen(EMPTY_SIGNATURE, "", 1);
        let at = root_start(&document).ok_or_else(|| signer("the document has no root element"))?;
        let digest = digest_of(&document).map_err(|reason| signer(&reason))?;
        let signed_info = signed_info(&digest);
        // The canonical form declares the namespace, which the document declares further up.
        let canonical = signed_info.replacen(
            "<ds:SignedInfo>",
            &format!("<ds:SignedInfo xmlns:ds=\"{DS}\">"),
            1,
        );
        let mut value = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                canonical.as_bytes(),
                &mut value,
            )
            .map_err(|_| signer("the key cannot sign"))?;
        let (value, certificate) = (BASE64.encode(value), &self.certificate);
        let key_info = if self.has_key_info {
            format!(
                "<ds:KeyInfo><ds:X509Data><ds:X509Certificate>{certificate}\
                 </ds:X509Certificate></ds:X509Data></ds:KeyInfo>"
            )
        } else {
            String::new()
        };
        let signature = format!(
            "<ds:Signature xmlns:ds=\"{DS}\">{signed_info}<ds:SignatureValue>{value}\
             </ds:SignatureValue>{key_info}</ds:Signature>"
        );
        let mut signed = String::with_capacity(document.len() + signature.len());
        signed.push_str(&document[..at]);
        signed.push_str(&signature);
        signed.push_str(&document[at..]);
        Ok(signed)
    }
}

impl fmt::Debug for XmlSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key must not be logged.
        f.debug_struct("XmlSigner").finish_non_exhaustive()
    }
}

/// Verifies signatures by RSA certificates.
#[derive(Clone, Debug)]
pub struct XmlVerifier {
    /// The trusted certificates. Without any, a signature's own certificate is trusted.
    trusted: Vec<CertificateDer<'static>>,
}

impl XmlVerifier {
    /// Creates a verifier that trusts these certificates, as PEM, and no others.
    pub fn trusting_pem(certificates: &[u8]) -> Result<Self, SignatureError> {
        let trusted: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
        let trusted = trusted.map_err(|_| invalid("a certificate is not in PEM format"))?;
        if trusted.is_empty() {
            return Err(invalid("there is no certificate in PEM format"));
        }
        if trusted
            .iter()
            .any(|der| x509::rsa_public_key(der).is_none())
        {
            return Err(invalid("a certificate has no RSA key"));
        }
        Ok(Self { trusted })
    }

    /// Creates a verifier that trusts the certificate inside a signature, if that certificate has
    /// signed itself. It shows that a document was not changed, but not who sent it.
    pub fn trusting_any() -> Self {
        Self {
            trusted: Vec::new(),
        }
    }

    /// The certificates by which a signature may verify.
    fn candidates(
        &self,
        document: &Document<'_>,
        signature: NodeId,
    ) -> Result<Vec<CertificateDer<'static>>, SignatureError> {
        let embedded = embedded_certificate(document, signature)?;
        match embedded {
            Some(embedded) if self.trusted.is_empty() => {
                if !x509::is_self_signed(&embedded) {
                    return Err(invalid("the certificate has not signed itself"));
                }
                Ok(vec![embedded])
            }
            Some(embedded) if self.trusted.contains(&embedded) => Ok(vec![embedded]),
            Some(_) => Err(invalid("the certificate is not trusted")),
            None if self.trusted.is_empty() => Err(invalid(
                "it has no X509Certificate, and a certificate that X509IssuerSerial names cannot be \
                 looked up: the signer's certificate must be among the known ones",
            )),
            None => Ok(self.trusted.clone()),
        }
    }
}

impl Verifier for XmlVerifier {
    fn verify(&self, document: &[u8]) -> Result<(), SignatureError> {
        self.verify_at(document, now()).map(|_| ())
    }

    fn verify_signer(&self, document: &[u8]) -> Result<Option<Vec<u8>>, SignatureError> {
        self.verify_at(document, now()).map(Some)
    }
}

impl XmlVerifier {
    /// Verifies a document as of a time, within which the signer's certificate must be valid, and
    /// returns that certificate (DER).
    pub fn verify_at(&self, document: &[u8], at: Timestamp) -> Result<Vec<u8>, SignatureError> {
        // The limits of the reader hold for what is canonicalised too.
        Element::read(document).map_err(|error| invalid(&error.to_string()))?;
        let text = std::str::from_utf8(document).map_err(|_| invalid("it is not UTF-8"))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let parsed = uppsala::parse(text).map_err(|_| invalid("it is not well-formed"))?;
        let signature = only_signature(&parsed)?;
        let signed_info = child(&parsed, signature, "SignedInfo")?;
        check_algorithm(&parsed, signed_info, "CanonicalizationMethod", EXCLUSIVE)?;
        check_algorithm(&parsed, signed_info, "SignatureMethod", RSA_SHA256)?;
        check_references(&parsed, text, signature, signed_info)?;
        let value = child(&parsed, signature, "SignatureValue")?;
        let value = decoded(&parsed.text_content_deep(value))?;
        let canonical = canonical_tree(&parsed, signed_info)?;
        let candidates = self.candidates(&parsed, signature)?;
        let signer = candidates.into_iter().find(|der| {
            x509::rsa_public_key(der).is_some_and(|key| {
                UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key)
                    .verify(&canonical, &value)
                    .is_ok()
            })
        });
        let signer = signer.ok_or_else(|| invalid("the value does not match the key"))?;
        let at_ms = i64::try_from(at.ms()).unwrap_or(i64::MAX);
        if !x509::is_valid_at(&signer, at_ms) {
            return Err(invalid("the certificate is not valid yet, or not any more"));
        }
        Ok(signer.to_vec())
    }
}

/// The time of this machine, by which TLS judges certificates too.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = since.map_or(0, |since| since.as_millis());
    Timestamp::from_ms(u64::try_from(ms).unwrap_or(u64::MAX))
}

/// The signature of a document: one, directly below the root.
fn only_signature(document: &Document<'_>) -> Result<NodeId, SignatureError> {
    let all = document.get_elements_by_tag_name_ns(DS, "Signature");
    match all.as_slice() {
        [] => Err(SignatureError::Missing),
        [one] if document.parent(*one) == document.document_element() => Ok(*one),
        _ => Err(invalid("there must be one signature, directly in the root")),
    }
}

/// Checks the digests: of the whole document without the signature and, if it is referred to, of the
/// key's description.
fn check_references(
    document: &Document<'_>,
    text: &str,
    signature: NodeId,
    signed_info: NodeId,
) -> Result<(), SignatureError> {
    let references = document.child_elements_by_name_ns(signed_info, DS, "Reference");
    if !(1..=REFERENCES_MAX).contains(&references.len()) {
        return Err(invalid("it refers to nothing, or to too much"));
    }
    let mut covers_document = false;
    for reference in references {
        check_algorithm(document, reference, "DigestMethod", SHA256)?;
        let expected = child(document, reference, "DigestValue")?;
        let expected = decoded(&document.text_content_deep(expected))?;
        let transforms = transforms(document, reference)?;
        let uri = document.get_attribute(reference, "URI");
        let actual = match uri {
            Some("") if transforms == [ENVELOPED, EXCLUSIVE] => {
                covers_document = true;
                let range = document.node_range(signature);
                let range = range.ok_or_else(|| invalid("it has no position"))?;
                let without = [&text[..range.start], &text[range.end..]].concat();
                digest_of(&without).map_err(|reason| invalid(&reason))?
            }
            Some(uri) if uri.starts_with('#') && transforms == [EXCLUSIVE] => {
                let key_info = child(document, signature, "KeyInfo")?;
                if document.get_attribute(key_info, "Id") != uri.strip_prefix('#') {
                    return Err(invalid("it refers to something unknown"));
                }
                let canonical = canonical_tree(document, key_info)?;
                digest::digest(&digest::SHA256, &canonical)
                    .as_ref()
                    .to_vec()
            }
            _ => return Err(invalid("a reference has another form than DICT's")),
        };
        if actual != expected {
            return Err(invalid("a digest does not match: the document was changed"));
        }
    }
    if covers_document {
        Ok(())
    } else {
        Err(invalid("it does not cover the document"))
    }
}

fn transforms(document: &Document<'_>, reference: NodeId) -> Result<Vec<String>, SignatureError> {
    let list = child(document, reference, "Transforms")?;
    let all = document.child_elements_by_name_ns(list, DS, "Transform");
    let names = all.into_iter().map(|transform| {
        // A transform with parameters, such as prefixes, is none of DICT's.
        let has_parameters = document
            .children(transform)
            .iter()
            .any(|child| document.element(*child).is_some());
        let name = document.get_attribute(transform, "Algorithm");
        let name = name.filter(|_| !has_parameters);
        name.map(str::to_owned)
            .ok_or_else(|| invalid("a transform has another form than DICT's"))
    });
    names.collect()
}

fn embedded_certificate(
    document: &Document<'_>,
    signature: NodeId,
) -> Result<Option<CertificateDer<'static>>, SignatureError> {
    let found = ["KeyInfo", "X509Data", "X509Certificate"]
        .into_iter()
        .try_fold(signature, |node, name| {
            document.first_child_element_by_name_ns(node, DS, name)
        });
    let Some(found) = found else {
        return Ok(None);
    };
    let der = decoded(&document.text_content_deep(found))?;
    Ok(Some(CertificateDer::from(der)))
}

fn check_algorithm(
    document: &Document<'_>,
    parent: NodeId,
    name: &str,
    expected: &str,
) -> Result<(), SignatureError> {
    let method = child(document, parent, name)?;
    if document.get_attribute(method, "Algorithm") == Some(expected) {
        return Ok(());
    }
    Err(invalid(&format!("{name} is not {expected}")))
}

fn child(document: &Document<'_>, node: NodeId, name: &str) -> Result<NodeId, SignatureError> {
    let found = document.first_child_element_by_name_ns(node, DS, name);
    found.ok_or_else(|| invalid(&format!("{name} is missing")))
}

fn canonical_tree(document: &Document<'_>, node: NodeId) -> Result<Vec<u8>, SignatureError> {
    let nodes = NodeSet::tree_without_comments(node, document);
    let no_prefixes: [&str; 0] = [];
    canonicalize_doc(document, C14nMode::Exclusive, Some(&nodes), &no_prefixes)
        .map_err(|_| invalid("it cannot be canonicalised"))
}

/// The digest of the canonical form of a whole document.
fn digest_of(document: &str) -> Result<Vec<u8>, String> {
    let no_prefixes: [&str; 0] = [];
    let canonical = canonicalize(document, C14nMode::Exclusive, None, &no_prefixes)
        .map_err(|_| "the document cannot be canonicalised".to_owned())?;
    Ok(digest::digest(&digest::SHA256, &canonical)
        .as_ref()
        .to_vec())
}

/// `SignedInfo` in canonical form, except for the declaration of its namespace.
fn signed_info(digest: &[u8]) -> String {
    let digest = BASE64.encode(digest);
    format!(
        "<ds:SignedInfo><ds:CanonicalizationMethod Algorithm=\"{EXCLUSIVE}\">\
         </ds:CanonicalizationMethod><ds:SignatureMethod Algorithm=\"{RSA_SHA256}\">\
         </ds:SignatureMethod><ds:Reference URI=\"\"><ds:Transforms>\
         <ds:Transform Algorithm=\"{ENVELOPED}\"></ds:Transform>\
         <ds:Transform Algorithm=\"{EXCLUSIVE}\"></ds:Transform></ds:Transforms>\
         <ds:DigestMethod Algorithm=\"{SHA256}\"></ds:DigestMethod>\
         <ds:DigestValue>{digest}</ds:DigestValue></ds:Reference></ds:SignedInfo>"
    )
}

/// The offset after the start tag of the root element.
fn root_start(document: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let open = from + document[from..].find('<')?;
        let close = open + document[open..].find('>')?;
        match document.as_bytes().get(open + 1)? {
            b'?' | b'!' => from = close + 1,
            _ => return Some(close + 1),
        }
    }
}

fn decoded(text: &str) -> Result<Vec<u8>, SignatureError> {
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let bytes = BASE64.decode(compact);
    bytes.map_err(|_| invalid("a value is not in base64"))
}

fn signer(reason: &str) -> SignatureError {
    SignatureError::Signer {
        reason: reason.to_owned(),
    }
}

fn invalid(reason: &str) -> SignatureError {
    SignatureError::Invalid {
        reason: reason.to_owned(),
    }
}
