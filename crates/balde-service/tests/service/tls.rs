//! TLS and client certificates.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;

use crate::running::Running;

/// An authority, a server's certificate and a client's, in a folder.
fn certificates() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("ca.pem", &authority.pem());
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        write(&format!("{name}.pem"), &certificate.pem());
        write(&format!("{name}.key"), &key.serialize_pem());
    }
    folder
}

fn client(folder: &Path, port: u16, identity: bool) -> reqwest::Client {
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let ca = reqwest::Certificate::from_pem(&read("ca.pem")).unwrap();
    let mut builder = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([ca])
        .resolve("localhost", ([127, 0, 0, 1], port).into());
    if identity {
        let pem = [read("client.pem"), read("client.key")].concat();
        builder = builder.identity(reqwest::Identity::from_pem(&pem).unwrap());
    }
    builder.build().unwrap()
}

#[tokio::test]
async fn clients_need_a_certificate_where_the_file_says_so() {
    let folder = certificates();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let tls = format!(
        "address = \"127.0.0.1:0\"\ncertificate = \"{}\"\nkey = \"{}\"\nclient_ca = \"{}\"\n",
        path("server.pem"),
        path("server.key"),
        path("ca.pem")
    );
    let text = format!("[limits.users]\nlimit = \"10/day\"\n[http]\n{tls}[resp]\n{tls}");
    let service = Running::start_only(&text).await;
    let port = service.address("http").port();
    let url = format!("https://localhost:{port}/healthz");
    let with = client(folder.path(), port, true)
        .get(&url)
        .send()
        .await
        .unwrap();
    assert_eq!(with.status(), 200);
    assert!(
        client(folder.path(), port, false)
            .get(&url)
            .send()
            .await
            .is_err()
    );
    // Without TLS nothing is understood.
    let mut resp = service.resp().await;
    resp.0.write_all(b"PING\r\n").await.unwrap();
    assert!(!resp.rest().await.contains("PONG"));
    service.stop().await;
}
