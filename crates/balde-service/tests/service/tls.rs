//! TLS and client certificates.

use std::path::Path;

use tokio::io::AsyncWriteExt as _;

use crate::certificates::{certificates, tls_keys};
use crate::running::Running;

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
    let tls = format!("address = \"127.0.0.1:0\"\n{}", tls_keys(folder.path()));
    let text = format!(
        "[limits.users]\nlimit = \"10/day\"\n[http]\n{tls}[resp]\n{tls}[proxy]\n{tls}\
         [identity]\ntrusted_proxies = [\"127.0.0.1\"]\n[[policies.policy]]\nname = \"searches\"\n\
         match = [\"GET /search\"]\nscope = \"user\"\nlimit = \"1/day\"\n"
    );
    let service = Running::start_only(&text).await;
    for (protocol, path, statuses) in [
        ("http", "healthz", [200, 200]),
        ("proxy", "ext-authz/search", [200, 429]),
    ] {
        let port = service.address(protocol).port();
        let url = format!("https://localhost:{port}/{path}");
        for status in statuses {
            let with = client(folder.path(), port, true).get(&url).send().await;
            assert_eq!(with.unwrap().status(), status, "{protocol}");
        }
        let without = client(folder.path(), port, false).get(&url).send().await;
        assert!(without.is_err(), "{protocol}");
        let plain = url.replace("https://", "http://");
        let plain = client(folder.path(), port, true).get(&plain).send().await;
        assert!(plain.is_err(), "{protocol}");
    }
    // Without TLS nothing is understood.
    let mut resp = service.resp().await;
    resp.0.write_all(b"PING\r\n").await.unwrap();
    assert!(!resp.rest().await.contains("PONG"));
    service.stop().await;
}
