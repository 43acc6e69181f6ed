//! XML signatures, against an independent implementation: xmlsec1 verifies what balde signs, and balde
//! verifies what xmlsec1 signs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use balde_dict::client::{Client, ClientError};
use balde_dict::wire::{SignatureError, Signer, Verifier, XmlSigner, XmlVerifier};
use balde_simulator::{Participants, Simulator};
use reqwest::Method;
use tempfile::TempDir;

use crate::mutual_tls::Authority;
use crate::test_server::{
    CALLER, KEY, KEY_HOLDER, PERSON, START_US, TestServer, create_entry, end_to_end_id, error_type,
};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn pem(name: &str) -> Vec<u8> {
    fs::read(data(name)).unwrap()
}

fn signer(name: &str) -> XmlSigner {
    let (cert, key) = (format!("sign-{name}.pem"), format!("sign-{name}.key"));
    XmlSigner::from_pem(&pem(&cert), &pem(&key)).unwrap()
}

fn trusting(name: &str) -> XmlVerifier {
    XmlVerifier::trusting_pem(&pem(&format!("sign-{name}.pem"))).unwrap()
}

/// Whether xmlsec1 is installed. Where services are required, it must be.
fn has_xmlsec1() -> bool {
    let found = Command::new("xmlsec1").arg("--version").output().is_ok();
    if !found {
        println!("SKIPPED: xmlsec1 is not installed");
        let required = std::env::var_os("BALDE_REQUIRE_SERVICES").is_some();
        assert!(!required, "xmlsec1 is not installed");
    }
    found
}

/// Whether xmlsec1 finds the signature of a document valid.
fn xmlsec1_verifies(document: &str, name: &str) -> bool {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("document.xml");
    fs::write(&file, document).unwrap();
    let output = Command::new("xmlsec1")
        .arg("--verify")
        .arg("--trusted-pem")
        .arg(data(&format!("sign-{name}.pem")))
        .arg(&file)
        .output()
        .unwrap();
    output.status.success()
}

/// Has xmlsec1 sign a document, with a signature as the root's first child.
fn xmlsec1_signs(document: &str, name: &str) -> String {
    let template = "<ds:Signature xmlns:ds=\"http://www.w3.org/2000/09/xmldsig#\"><ds:SignedInfo>\
        <ds:CanonicalizationMethod Algorithm=\"http://www.w3.org/2001/10/xml-exc-c14n#\"/>\
        <ds:SignatureMethod Algorithm=\"http://www.w3.org/2001/04/xmldsig-more#rsa-sha256\"/>\
        <ds:Reference URI=\"\"><ds:Transforms>\
        <ds:Transform Algorithm=\"http://www.w3.org/2000/09/xmldsig#enveloped-signature\"/>\
        <ds:Transform Algorithm=\"http://www.w3.org/2001/10/xml-exc-c14n#\"/></ds:Transforms>\
        <ds:DigestMethod Algorithm=\"http://www.w3.org/2001/04/xmlenc#sha256\"/><ds:DigestValue/>\
        </ds:Reference></ds:SignedInfo><ds:SignatureValue/><ds:KeyInfo><ds:X509Data/></ds:KeyInfo>\
        </ds:Signature>";
    let empty = "<Signature></Signature>";
    let unsigned = if document.contains(empty) {
        document.replacen(empty, template, 1)
    } else {
        let root = document.find("<a").or_else(|| document.find("<p")).unwrap();
        let end = root + document[root..].find('>').unwrap() + 1;
        format!("{}{template}{}", &document[..end], &document[end..])
    };
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("template.xml");
    fs::write(&file, unsigned).unwrap();
    let pair = format!(
        "{},{}",
        data(&format!("sign-{name}.key")).display(),
        data(&format!("sign-{name}.pem")).display()
    );
    let output = Command::new("xmlsec1")
        .args(["--sign", "--privkey-pem", &pair])
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Documents whose canonical form is not their text.
const DOCUMENTS: [&str; 6] = [
    "<a><Signature></Signature><b>1</b></a>",
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<a z='1' b=\"2\"  c = '&lt;'><b/><c></c>\n\t<d>é</d></a>\n",
    "<a xmlns=\"urn:x\" xmlns:unused=\"urn:u\"><b xmlns:p=\"urn:p\" p:q=\"1\" r=\"2\"/></a>",
    "<p:a xmlns:p=\"urn:p\" p:x='\"'><p:b xmlns:p=\"urn:q\">&amp;&#13;]]&gt;</p:b></p:a>",
    "<!-- before --><a><!-- inside --><?pi x?><b><![CDATA[<&>]]></b></a><!-- after -->",
    "<problem xmlns=\"urn:ietf:rfc:7807\"><type>x</type><status>400</status></problem>",
];

#[test]
fn each_implementation_verifies_what_the_other_signs() {
    if !has_xmlsec1() {
        return;
    }
    for document in DOCUMENTS {
        let ours = signer("dict").sign(document.to_owned()).unwrap();
        assert!(xmlsec1_verifies(&ours, "dict"), "{ours}");
        assert!(!xmlsec1_verifies(&ours, "participant"), "another key");
        let theirs = xmlsec1_signs(document, "participant");
        for signed in [&ours, &theirs] {
            XmlVerifier::trusting_any()
                .verify(signed.as_bytes())
                .unwrap_or_else(|error| panic!("{error}: {signed}"));
        }
        assert_eq!(trusting("participant").verify(theirs.as_bytes()), Ok(()));
        assert!(trusting("dict").verify(theirs.as_bytes()).is_err());
    }
}

#[test]
fn one_changed_byte_anywhere_is_refused() {
    let document = "<a><Signature></Signature><b>text</b></a>".to_owned();
    let signed = signer("dict").sign(document).unwrap();
    let verifier = trusting("dict");
    assert_eq!(verifier.verify(signed.as_bytes()), Ok(()));
    for (index, byte) in signed.bytes().enumerate() {
        // Letters and digits only, so that the document stays XML.
        if !byte.is_ascii_alphanumeric() {
            continue;
        }
        let mut changed = signed.clone().into_bytes();
        changed[index] = if byte == b'A' { b'B' } else { b'A' };
        assert!(
            verifier.verify(&changed).is_err(),
            "byte {index} of {signed}"
        );
        assert!(
            XmlVerifier::trusting_any().verify(&changed).is_err(),
            "byte {index}"
        );
    }
    assert_eq!(
        verifier.verify(b"<a><Signature/><b/></a>"),
        Err(SignatureError::Missing)
    );
}

#[test]
fn a_signature_covers_the_whole_document_and_nothing_else() {
    let verifier = trusting("dict");
    let signed = signer("dict").sign("<a><b>1</b></a>".to_owned()).unwrap();
    let start = signed.find("<ds:Signature").unwrap();
    let end = signed.find("</ds:Signature>").unwrap() + "</ds:Signature>".len();
    let signature = &signed[start..end];
    for forged in [
        // The signed document inside another, beside another, and with two signatures.
        format!("<x>{signed}<b>2</b></x>"),
        format!("<a><x>{signature}</x><b>1</b></a>"),
        format!("<a>{signature}{signature}<b>1</b></a>"),
        format!(
            "<a>{}<b>1</b></a>",
            signature.replace("URI=\"\"", "URI=\"#b\"")
        ),
        format!("<a>{}<b>1</b></a>", signature.replace("URI=\"\"", "")),
        format!(
            "<a>{}<b>1</b></a>",
            signature.replace("rsa-sha256", "rsa-sha1")
        ),
        format!("<!DOCTYPE a><a>{signature}<b>1</b></a>"),
    ] {
        assert!(verifier.verify(forged.as_bytes()).is_err(), "{forged}");
    }
}

#[tokio::test]
async fn the_simulator_signs_its_answers_and_requires_signed_writes() {
    if !has_xmlsec1() {
        return;
    }
    let server = TestServer::with(|builder| {
        builder
            .signer(Arc::new(signer("dict")))
            .verifier(Arc::new(trusting("participant")))
    })
    .await;
    let found = server.get_entry(KEY, PERSON, &end_to_end_id(1)).await;
    let missing = server
        .get_entry("ninguem@example.com", PERSON, &end_to_end_id(2))
        .await;
    for response in [found, missing] {
        let body = response.text().await.unwrap();
        assert!(xmlsec1_verifies(&body, "dict"), "{body}");
        assert_eq!(trusting("dict").verify(body.as_bytes()), Ok(()));
    }
    let document = create_entry("PHONE", "+5561988880000", CALLER, PERSON, 1);
    let signed = xmlsec1_signs(&document, "participant");
    let digest = signed.find("<ds:DigestValue>").unwrap() + "<ds:DigestValue>".len();
    let certificate = signed.find("<ds:X509Certificate>").unwrap() + 60;
    for (refused, why) in [
        (document.clone(), "no signature"),
        (signed.replace("João", "Joao"), "body"),
        (flipped(&signed, digest), "digest"),
        (flipped(&signed, certificate), "certificate"),
        (xmlsec1_signs(&document, "dict"), "another signer"),
    ] {
        let (status, body) = server.post("/entries/", refused).await;
        assert_eq!(
            (status, error_type(&body)),
            (400, "RequestSignatureInvalid"),
            "{why}"
        );
    }
    let (status, created) = server.post("/entries/", signed).await;
    assert_eq!(status, 201, "{created}");
    // checkKeys and reads carry no signature.
    let keys = format!("<CheckKeysRequest><Keys><Key>{KEY}</Key></Keys></CheckKeysRequest>");
    let checked = server
        .send(Method::POST, "/api-np/v2/keys/check", &[], Some(keys))
        .await;
    assert_eq!(checked.status(), 200);
}

fn flipped(document: &str, at: usize) -> String {
    let mut bytes = document.as_bytes().to_vec();
    bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn unsigned_writes_may_be_accepted_while_signed_ones_are_verified() {
    let server = TestServer::with(|builder| {
        let builder = builder.verifier(Arc::new(trusting("participant")));
        builder.accept_unsigned()
    })
    .await;
    let document = create_entry("PHONE", "+5561988880000", CALLER, PERSON, 1);
    let wrong = signer("dict").sign(document.clone()).unwrap();
    assert_eq!(server.post("/entries/", wrong).await.0, 400);
    assert_eq!(server.post("/entries/", document).await.0, 201);
}

#[tokio::test]
async fn the_client_refuses_answers_that_are_not_signed_by_dict() {
    for (signs, expected) in [
        (Some("dict"), true),
        (Some("participant"), false),
        (None, false),
    ] {
        let server = TestServer::with(|builder| match signs {
            Some(name) => builder.signer(Arc::new(signer(name))),
            None => builder,
        })
        .await;
        let client = Client::builder(&server.url("/api/v2/"), CALLER)
            .verifier(Arc::new(trusting("dict")))
            .attempts(1)
            .build()
            .unwrap();
        match client.list_bucket_states().await {
            Ok(states) => assert!(expected && states.policies.len() == 29),
            Err(error) => {
                assert!(
                    !expected && matches!(error, ClientError::Signature(_)),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn keys_and_certificates_that_do_not_fit_are_refused() {
    let (key, cert) = (pem("sign-dict.key"), pem("sign-dict.pem"));
    for (cert, key, expected) in [
        (&cert, &pem("sign-participant.key"), "not the certificate's"),
        (&key, &key, "the certificate is not in PEM"),
        (&cert, &cert, "the key is not in PEM"),
    ] {
        let error = XmlSigner::from_pem(cert, key).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(XmlVerifier::trusting_pem(b"").is_err());
}

/// A certificate of the participants' key that names a participant, valid from one year to another.
fn certificate(common_name: &str, years: [i32; 2]) -> String {
    let key = String::from_utf8(pem("sign-participant.key")).unwrap();
    let key = rcgen::KeyPair::from_pem(&key).unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let name = &mut params.distinguished_name;
    name.push(rcgen::DnType::CommonName, common_name);
    params.not_before = rcgen::date_time_ymd(years[0], 1, 1);
    params.not_after = rcgen::date_time_ymd(years[1], 1, 1);
    params.self_signed(&key).unwrap().pem()
}

fn signed_by(common_name: &str, document: String) -> String {
    let certificate = certificate(common_name, [2020, 2120]);
    let signer = XmlSigner::from_pem(certificate.as_bytes(), &pem("sign-participant.key"));
    signer.unwrap().sign(document).unwrap()
}

#[tokio::test]
async fn a_write_signed_with_another_participants_certificate_is_refused() {
    let verifier = Arc::new(XmlVerifier::trusting_any());
    let server = TestServer::with(|builder| builder.verifier(verifier)).await;
    let write = |number| create_entry("PHONE", "+5561911110001", CALLER, PERSON, number);
    let (status, body) = server
        .post("/entries/", signed_by(KEY_HOLDER, write(1)))
        .await;
    assert_eq!(
        (status, error_type(&body)),
        (400, "RequestSignatureInvalid"),
        "{body}"
    );
    assert!(body.contains("another participant"), "{body}");
    let (status, body) = server.post("/entries/", signed_by(CALLER, write(1))).await;
    assert_eq!(status, 201, "{body}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_mutual_tls_too_the_signature_belongs_to_the_participant_that_sends() {
    let authority = Authority::new();
    let (chain, key) = authority.issue("dict");
    fs::write(authority.path("server.pem"), chain).unwrap();
    fs::write(authority.path("server.key"), key).unwrap();
    let liquidated = "11111111";
    let file = format!(
        "[[participant]]\nispb = \"{CALLER}\"\n[[participant]]\nispb = \"{KEY_HOLDER}\"\n\
         [[participant]]\nispb = \"{liquidated}\"\nliquidator = \"{CALLER}\"\n"
    );
    let source = balde_config::Source::new("participants.toml", &*file);
    let clock = balde::ManualClock::at_us(START_US);
    let simulator = Simulator::builder()
        .manual_clock(&clock)
        .participants(Participants::read(&source).unwrap())
        .verifier(Arc::new(XmlVerifier::trusting_any()))
        .tls_files(
            authority.path("server.pem"),
            authority.path("server.key"),
            Some(authority.path("ca.pem")),
        )
        .build()
        .unwrap();
    let mut server = TestServer::start(simulator, clock).await;
    server.scheme = "https";
    server.client = authority.client(CALLER);
    for (participant, signer, expected) in [
        (CALLER, KEY_HOLDER, 400),
        (CALLER, CALLER, 201),
        (liquidated, CALLER, 201),
        (liquidated, KEY_HOLDER, 400),
    ] {
        let key = format!("+55619{participant}");
        let write = create_entry("PHONE", &key, participant, PERSON, 1);
        let (status, body) = server.post("/entries/", signed_by(signer, write)).await;
        assert_eq!(status, expected, "{participant} signed by {signer}: {body}");
        if status == 400 {
            assert_eq!(error_type(&body), "RequestSignatureInvalid");
        }
    }
}

#[test]
fn certificates_outside_their_validity_are_refused() {
    let certificate = certificate(CALLER, [2020, 2030]);
    let signer = XmlSigner::from_pem(certificate.as_bytes(), &pem("sign-participant.key"));
    let signed = signer.unwrap().sign(DOCUMENTS[0].to_owned()).unwrap();
    let verifiers = [
        XmlVerifier::trusting_any(),
        XmlVerifier::trusting_pem(certificate.as_bytes()).unwrap(),
    ];
    for (at, is_valid) in [
        ("2019-12-31T23:59:59.999Z", false),
        ("2020-01-01T00:00:00.000Z", true),
        ("2030-01-01T00:00:00.000Z", true),
        ("2030-01-01T00:00:01.000Z", false),
    ] {
        for verifier in &verifiers {
            let verified = verifier.verify_at(signed.as_bytes(), at.parse().unwrap());
            assert_eq!(verified.is_ok(), is_valid, "{at}: {verified:?}");
        }
    }
}

#[test]
fn a_signature_that_only_names_its_certificate_says_what_is_missing() {
    let certificate = certificate(CALLER, [2020, 2120]);
    let signed = signed_by(CALLER, DOCUMENTS[0].to_owned());
    let start = signed.find("<ds:X509Certificate>").unwrap();
    let end = signed.find("</ds:X509Certificate>").unwrap() + "</ds:X509Certificate>".len();
    let named = format!(
        "{}<ds:X509IssuerSerial><ds:X509IssuerName>CN={CALLER}</ds:X509IssuerName>\
         <ds:X509SerialNumber>1</ds:X509SerialNumber></ds:X509IssuerSerial>{}",
        &signed[..start],
        &signed[end..]
    );
    let error = XmlVerifier::trusting_any().verify(named.as_bytes());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("X509IssuerSerial"), "{error}");
    assert!(error.contains("must be among the known ones"), "{error}");
    let known = XmlVerifier::trusting_pem(certificate.as_bytes()).unwrap();
    assert_eq!(known.verify(named.as_bytes()), Ok(()));
}

#[test]
fn a_signature_without_key_info_verifies_by_the_known_certificate_only() {
    let signed = signer("dict")
        .without_key_info()
        .sign(DOCUMENTS[0].to_owned())
        .unwrap();
    assert!(!signed.contains("KeyInfo"), "{signed}");
    assert_eq!(trusting("dict").verify(signed.as_bytes()), Ok(()));
    assert!(trusting("participant").verify(signed.as_bytes()).is_err());
    assert!(
        XmlVerifier::trusting_any()
            .verify(signed.as_bytes())
            .is_err()
    );
}
