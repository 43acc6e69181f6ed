//! A Temporal server behind TLS that wants a client certificate, and an API key.
//!
//! The development server has neither, so a proxy in front of it ends TLS. It lets only clients with a
//! certificate of its authority in, and keeps what they send.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::fake_dict::{Answer, FakeDict};
use crate::running::Running;
use crate::server::Server;
use crate::until;
use crate::worker::SECRET;

/// The name in the server's certificate, which is not the address.
const NAME: &str = "temporal.test";

struct Authority(Issuer<'static, KeyPair>, String);

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self(Issuer::new(params, key), pem)
    }

    /// A certificate for a name, and its key.
    fn certificate(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap(), key)
    }
}

/// Ends TLS in front of a server.
#[derive(Clone)]
struct Proxy {
    address: SocketAddr,
    /// The connections that were refused.
    refused: Arc<AtomicUsize>,
    /// What clients with a certificate have sent.
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Proxy {
    async fn start(authority: &Authority, behind: SocketAddr) -> Self {
        let mut roots = RootCertStore::empty();
        let (certificate, key) = authority.certificate(NAME);
        let pem = rustls::pki_types::pem::PemObject::from_pem_slice(authority.1.as_bytes());
        roots.add(pem.unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            refused: Arc::default(),
            sent: Arc::default(),
        };
        let serving = proxy.clone();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(acceptor.clone(), stream, behind));
            }
        });
        proxy
    }

    async fn serve(self, acceptor: TlsAcceptor, stream: TcpStream, behind: SocketAddr) {
        let Ok(inside) = acceptor.accept(stream).await else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let Ok(outside) = TcpStream::connect(behind).await else {
            return;
        };
        let (mut from_client, mut to_client) = tokio::io::split(inside);
        let (mut from_server, mut to_server) = outside.into_split();
        let there = async {
            let mut bytes = vec![0; 16 * 1024];
            while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
                self.keep(&bytes[..count]);
                if to_server.write_all(&bytes[..count]).await.is_err() {
                    break;
                }
            }
        };
        let back = tokio::io::copy(&mut from_server, &mut to_client);
        tokio::select! {
            () = there => {}
            _ = back => {}
        }
    }

    fn keep(&self, bytes: &[u8]) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.extend_from_slice(bytes);
    }

    fn has_sent(&self, part: &[u8]) -> bool {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.windows(part.len()).any(|window| window == part)
    }
}

/// A text as the headers of HTTP/2 have it: by the Huffman code of RFC 7541, without the last byte,
/// which is filled up.
fn huffman(text: &str) -> Vec<u8> {
    let bits: String = text
        .chars()
        .map(|one| match one {
            '0' => "00000",
            '1' => "00001",
            '2' => "00010",
            'a' => "00011",
            'c' => "00100",
            'e' => "00101",
            ' ' => "010100",
            '3' => "011001",
            '4' => "011010",
            '5' => "011011",
            '6' => "011100",
            '7' => "011101",
            '8' => "011110",
            '9' => "011111",
            'b' => "100011",
            'd' => "100100",
            'f' => "100101",
            'r' => "101100",
            'B' => "1011101",
            other => panic!("no code for {other}"),
        })
        .collect();
    let bytes = bits.as_bytes().chunks_exact(8);
    bytes
        .map(|byte| u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 2).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_and_an_api_key_are_presented_over_tls() {
    let Some(mut server) = Server::planned() else {
        return;
    };
    server.start().await;
    let authority = Authority::new();
    let behind = server.address().replace("http://", "").parse().unwrap();
    let proxy = Proxy::start(&authority, behind).await;
    let dict = FakeDict::start(Answer::Buckets(vec![("ENTRIES_WRITE", 9, 10, 0)])).await;
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = authority.certificate("monitor.test");
    for (name, pem) in [
        ("ca.pem", authority.1.clone()),
        ("client.pem", certificate.pem()),
        ("client.key", key.serialize_pem()),
    ] {
        std::fs::write(folder.path().join(name), pem).unwrap();
    }
    let config = |history: &str, identity: &str| {
        format!(
            "[history]\naddress = \"{history}\"\n\
             [schedule]\nkind = \"temporal\"\ntemporal_address = \"https://{}\"\n\
             temporal_ca = \"ca.pem\"\ntemporal_server_name = \"{NAME}\"\n{identity}\
             [[participant]]\nispb = \"12345678\"\ndict = \"{}\"\n",
            proxy.address,
            dict.url(),
        )
    };

    // Without a certificate the server does not let it in.
    let stranger = Running::start(&config("stranger.db", ""), folder.path()).await;
    until("a client without a certificate is refused", async || {
        proxy.refused.load(Ordering::Relaxed) > 0
    })
    .await;
    stranger.end().await.unwrap();
    assert_eq!(dict.requests(), 0);
    assert!(!proxy.has_sent(&huffman(&format!("Bearer {SECRET}"))));

    let identity = "temporal_certificate = \"client.pem\"\ntemporal_key = \"client.key\"\n\
                    temporal_api_key_env = \"KEY\"\n";
    let monitor = Running::start(&config("monitor.db", identity), folder.path()).await;
    until("it polls through Temporal", async || dict.requests() > 0).await;
    assert!(
        proxy.has_sent(&huffman(&format!("Bearer {SECRET}"))),
        "the API key is in the headers"
    );
    monitor.end().await.unwrap();
}
