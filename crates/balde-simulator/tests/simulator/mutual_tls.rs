//! Mutual TLS: clients without a certificate are rejected, and the certificate identifies the caller.

use std::fs;
use std::path::PathBuf;

use balde::ManualClock;
use balde_dict::client::Client;
use balde_simulator::{Participants, Simulator};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

use crate::test_server::{CALLER, KEY, START_US, TestServer, account, person, text_of};

pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// An HTTPS client with a certificate.
    pub(crate) fn client(&self, common_name: &str) -> reqwest::Client {
        let _installs_the_provider = crate::test_server::client();
        let (chain, key) = self.issue(common_name);
        let identity = reqwest::Identity::from_pem(format!("{chain}\n{key}").as_bytes()).unwrap();
        let ca = fs::read(self.path("ca.pem")).unwrap();
        reqwest::Client::builder()
            .no_proxy()
            .no_gzip()
            .identity(identity)
            .tls_certs_only(reqwest::Certificate::from_pem_bundle(&ca).unwrap())
            .build()
            .unwrap()
    }

    /// A certificate and its key, as PEM.
    pub(crate) fn issue(&self, common_name: &str) -> (String, String) {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// A simulator with mutual TLS and known participants, and a client with a certificate of one.
pub(crate) async fn server_with_participants(
    authority: &Authority,
    participants: &str,
    common_name: &str,
) -> TestServer {
    let (chain, key) = authority.issue("dict");
    fs::write(authority.path("server.pem"), chain).unwrap();
    fs::write(authority.path("server.key"), key).unwrap();
    let clock = ManualClock::at_us(START_US);
    let source = balde_config::Source::new("participants.toml", participants);
    let simulator = Simulator::builder()
        .manual_clock(&clock)
        .participants(Participants::read(&source).unwrap_or_else(|error| panic!("{error}")))
        .tls_files(
            authority.path("server.pem"),
            authority.path("server.key"),
            Some(authority.path("ca.pem")),
        )
        .build()
        .unwrap();
    let mut server = TestServer::start(simulator, clock).await;
    server.scheme = "https";
    server.client = authority.client(common_name);
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_speaks_for_its_participant_and_for_those_that_it_settles_for() {
    let authority = Authority::new();
    let participants = "[[participant]]\nispb = \"12345678\"\n\n[[participant]]\nispb = \"87654321\"\n\n\
                        [[participant]]\nispb = \"11111111\"\nliquidator = \"12345678\"\n";
    let server = server_with_participants(&authority, participants, CALLER).await;
    for (participant, expected) in [
        (CALLER, 200),
        ("11111111", 200),
        ("87654321", 403),
        ("22222222", 403),
    ] {
        let (status, body) = server.get("/policies/", participant).await;
        assert_eq!(status, expected, "{participant}: {body}");
        if expected == 403 {
            assert_eq!(crate::test_server::error_type(&body), "Forbidden");
        }
        // Each participant has its own buckets, whoever sends its requests.
        let level = server.level("POLICIES_LIST", participant, None).await;
        assert_eq!(
            level,
            if expected == 200 { 19 } else { 20 },
            "{participant}"
        );
    }
    // A list may include the indirect participants.
    let claim = format!(
        "<CreateClaimRequest><Claim><Type>PORTABILITY</Type><Key>{KEY}</Key>\
         <KeyType>EMAIL</KeyType>{}{}</Claim></CreateClaimRequest>",
        account("ClaimerAccount", "11111111"),
        person("Claimer", "99988877700"),
    );
    let (status, claim) = server.post("/claims/", claim).await;
    assert_eq!(status, 201, "{claim}");
    let id = text_of(&claim, "Id");
    for (query, is_listed) in [
        ("Participant=12345678", false),
        (
            "Participant=12345678&IncludeIndirectParticipants=false",
            false,
        ),
        (
            "Participant=12345678&IncludeIndirectParticipants=true",
            true,
        ),
        (
            "Participant=12345678&IncludeIndirectParticipants=true&IsClaimer=true",
            true,
        ),
        (
            "Participant=12345678&IncludeIndirectParticipants=true&IsDonor=true",
            false,
        ),
        ("Participant=11111111", true),
    ] {
        let (status, list) = server.get(&format!("/claims/?{query}"), CALLER).await;
        assert_eq!(status, 200, "{query}: {list}");
        assert_eq!(list.contains(id), is_listed, "{query}: {list}");
    }
    // What it may list it may read, and only that.
    for (participant, expected) in [(CALLER, 200), ("11111111", 200)] {
        let (status, found) = server.get(&format!("/claims/{id}"), participant).await;
        assert_eq!(status, expected, "{participant}: {found}");
    }
    // A certificate of nobody speaks for nobody.
    let stranger = authority.client("33333333");
    let body = "<CheckKeysRequest><Keys><Key>ana@example.com</Key></Keys></CheckKeysRequest>";
    let url = server.url("/api-np/v2/keys/check");
    let refused = stranger.post(url).body(body).send().await.unwrap();
    assert_eq!(refused.status(), 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_clients_with_a_certificate_are_answered() {
    let authority = Authority::new();
    let (chain, key) = authority.issue("dict");
    fs::write(authority.path("server.pem"), chain).unwrap();
    fs::write(authority.path("server.key"), key).unwrap();
    let clock = ManualClock::at_us(START_US);
    let simulator = Simulator::builder()
        .manual_clock(&clock)
        .tls_files(
            authority.path("server.pem"),
            authority.path("server.key"),
            Some(authority.path("ca.pem")),
        )
        .build()
        .unwrap();
    let server = TestServer::start(simulator, clock).await;
    let url = format!("https://{}/api/v2/", server.address);
    let ca = fs::read(authority.path("ca.pem")).unwrap();

    let (chain, key) = authority.issue(CALLER);
    let client = Client::builder(&url, CALLER)
        .ca_pem(&ca)
        .identity_pem(chain.as_bytes(), key.as_bytes())
        .build()
        .unwrap();
    let states = client.list_bucket_states().await.unwrap();
    assert_eq!(states.policies.len(), 29);
    assert_eq!(states.category.as_deref(), Some("A"));

    // checkKeys takes the participant from the certificate.
    let identity = reqwest::Identity::from_pem(format!("{chain}\n{key}").as_bytes()).unwrap();
    let roots = reqwest::Certificate::from_pem_bundle(&ca).unwrap();
    let https = reqwest::Client::builder()
        .no_proxy()
        .identity(identity)
        .tls_certs_only(roots.clone())
        .build()
        .unwrap();
    let body = "<CheckKeysRequest><Keys><Key>ana@example.com</Key></Keys></CheckKeysRequest>";
    let address = format!("https://{}/api-np/v2/keys/check", server.address);
    let checked = https.post(address).body(body).send().await.unwrap();
    assert_eq!(checked.status(), 200);
    let state = client.get_bucket_state("KEYS_CHECK").await.unwrap();
    assert_eq!(state.policies[0].available_tokens, 69);

    let stranger = Client::builder(&url, CALLER)
        .ca_pem(&ca)
        .attempts(1)
        .build()
        .unwrap();
    assert!(
        stranger.list_bucket_states().await.is_err(),
        "no certificate"
    );
    let (chain, key) = Authority::new().issue(CALLER);
    let forger = Client::builder(&url, CALLER)
        .ca_pem(&ca)
        .identity_pem(chain.as_bytes(), key.as_bytes())
        .attempts(1)
        .build()
        .unwrap();
    assert!(
        forger.list_bucket_states().await.is_err(),
        "another authority"
    );
    assert_eq!(
        client
            .get_bucket_state("POLICIES_LIST")
            .await
            .unwrap()
            .policies[0]
            .available_tokens,
        19
    );
}

#[test]
fn errors_name_the_file_that_cannot_be_used() {
    let authority = Authority::new();
    let (chain, _) = authority.issue("dict");
    let (_, other_key) = authority.issue("other");
    fs::write(authority.path("server.pem"), chain).unwrap();
    fs::write(authority.path("other.key"), other_key).unwrap();
    fs::write(authority.path("empty.pem"), "").unwrap();
    for (chain, key, ca, expected) in [
        ("none.pem", "other.key", None, "none.pem"),
        ("empty.pem", "other.key", None, "no certificate"),
        ("server.pem", "empty.pem", None, "no private key"),
        ("server.pem", "other.key", None, "does not match its key"),
        (
            "server.pem",
            "other.key",
            Some("empty.pem"),
            "no certificate",
        ),
    ] {
        let built = Simulator::builder()
            .tls_files(
                authority.path(chain),
                authority.path(key),
                ca.map(|ca| authority.path(ca)),
            )
            .build();
        let error = built.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
