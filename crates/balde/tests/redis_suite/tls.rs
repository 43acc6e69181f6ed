//! The Redis store over TLS, with certificates made for the occasion.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::redis_server::RedisServer;
use balde::{OnFailure, RateLimiter, RedisBuilder, RedisStore, StoreFailure};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// A certificate and its key, as PEM.
struct Signed {
    certificate: String,
    key: String,
}

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    fn sign(&self, name: &str) -> Signed {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        // One that is called like its issuer would be taken for signed by itself.
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Signed {
            certificate,
            key: key.serialize_pem(),
        }
    }
}

/// A server that speaks TLS on a second port, and that port. Nothing, and loudly so, where the server
/// that was asked for by name is built without TLS; Debian's is not.
fn start(dir: &Path, authority: &Authority, clients: &str) -> Option<(RedisServer, u16)> {
    if let Some(server) = env::var_os("BALDE_REDIS_SERVER")
        && !has_tls(&server)
    {
        eprintln!(
            "\n*** SKIPPED: {} is built without TLS ***\n",
            server.display()
        );
        return None;
    }
    let server = authority.sign("localhost");
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let ca = write("ca.pem", &authority.pem);
    let certificate = write("server.pem", &server.certificate);
    let key = write("server.key", &server.key);
    let port = free_port();
    let server = RedisServer::start_with(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        clients,
    ])?;
    Some((server, port))
}

/// Whether the server can speak TLS. Without a certificate it ends at once, and says why.
fn has_tls(server: &OsStr) -> bool {
    let output = Command::new(server)
        .args([
            "--port",
            "0",
            "--save",
            "",
            "--tls-port",
            &free_port().to_string(),
        ])
        .stdin(Stdio::null())
        .output()
        .expect("a server");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    !said.contains("Bad directive") && !said.contains("Failed finding TLS support")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

fn builder(port: u16) -> RedisBuilder {
    RedisStore::builder()
        .address(format!("rediss://localhost:{port}"))
        .timeout(Duration::from_millis(100))
}

async fn failure(builder: RedisBuilder) -> Option<StoreFailure> {
    let store = builder.build().unwrap();
    let limiter = RateLimiter::builder()
        .limit("10/s")
        .redis(&store, OnFailure::Deny)
        .build()
        .unwrap();
    // A handshake may take longer than a call, so the first may be too early.
    let mut failure = limiter.check("alice").await.failure();
    for _ in 0..20 {
        if failure != Some(StoreFailure::Timeout) {
            break;
        }
        failure = limiter.check("alice").await.failure();
    }
    failure
}

#[tokio::test]
async fn whom_we_do_not_trust_we_do_not_talk_to() {
    let (dir, authority) = (TempDir::new().unwrap(), Authority::new());
    let Some((_server, port)) = start(dir.path(), &authority, "no") else {
        return;
    };
    let trusting = builder(port).ca_pem(authority.pem.clone());
    assert_eq!(failure(trusting).await, None);
    let from_file = builder(port).ca_file(dir.path().join("ca.pem"));
    assert_eq!(failure(from_file).await, None);

    let stranger = builder(port).ca_pem(Authority::new().pem);
    assert_eq!(failure(stranger).await, Some(StoreFailure::Disconnected));
    let elsewhere = RedisStore::builder()
        .address(format!("rediss://127.0.0.1:{port}"))
        .ca_pem(authority.pem.clone());
    assert_eq!(failure(elsewhere).await, Some(StoreFailure::Disconnected));
}

#[tokio::test]
async fn a_server_that_asks_who_we_are_is_told() {
    let (dir, authority) = (TempDir::new().unwrap(), Authority::new());
    let Some((_server, port)) = start(dir.path(), &authority, "yes") else {
        return;
    };
    let me = authority.sign("limiter.example");
    let known = builder(port)
        .ca_pem(authority.pem.clone())
        .identity_pem(me.certificate.clone(), me.key.clone());
    assert_eq!(failure(known).await, None);

    let anonymous = builder(port).ca_pem(authority.pem.clone());
    assert_eq!(failure(anonymous).await, Some(StoreFailure::Disconnected));
    let other = Authority::new().sign("limiter.example");
    let forged = builder(port)
        .ca_pem(authority.pem.clone())
        .identity_pem(other.certificate, other.key);
    assert_eq!(failure(forged).await, Some(StoreFailure::Disconnected));
}

#[test]
fn a_certificate_that_cannot_be_read_is_refused_at_once() {
    let missing = builder(1).ca_file("no/such/file.pem").build().unwrap_err();
    assert!(
        missing.to_string().contains("no/such/file.pem"),
        "{missing}"
    );
    let garbled = builder(1).identity_pem("chain", "PRIVATE").build();
    let error = garbled.unwrap_err().to_string();
    assert!(
        error.contains("TLS") && !error.contains("PRIVATE"),
        "{error}"
    );
}
