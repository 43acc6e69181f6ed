//! Receivers behind TLS, with an authority that only they know.

use std::net::SocketAddr;
use std::sync::Arc;

use balde_monitor::alert::SinkClass;
use balde_monitor::sink::{HttpSettings, SendErrorKind, Sink, Webhook};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::messages::{TEN_US, episode, message};
use crate::receiver::{Answer, Receiver};

/// An authority as PEM, and a certificate of its for this machine with its key.
fn certificates() -> (String, CertificateDer<'static>, PrivateKeyDer<'static>) {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let own = own.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    (ca_pem, own.der().clone(), key)
}

/// Takes TLS connections and passes on what is in them.
async fn front(receiver: SocketAddr, config: ServerConfig) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let serving = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut inside) = acceptor.accept(stream).await else {
                continue;
            };
            let mut behind = TcpStream::connect(receiver).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut inside, &mut behind).await;
        }
    };
    (address, tokio::spawn(serving))
}

#[tokio::test]
async fn a_receiver_is_trusted_by_its_own_authority_and_by_no_other() {
    let receiver = Receiver::start(|_| Answer::Accept).await;
    let (ca_pem, certificate, key) = certificates();
    let (other_pem, ..) = certificates();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let (address, serving) = front(receiver.address(), config).await;
    let url = format!("https://{address}/hook");
    let message = message(episode("A").remove(0), SinkClass::Event);
    let attempt = async |settings: HttpSettings| {
        let sink = Sink::Webhook(Webhook::new(&*url, "secret", &settings).unwrap());
        sink.deliver(&message, TEN_US, &balde_monitor::sink::Wording::default())
            .await
    };
    for stranger in [
        HttpSettings::default(),
        HttpSettings::default().ca_pem(other_pem.as_bytes()),
    ] {
        let failure = attempt(stranger).await.unwrap_err();
        assert!(
            matches!(failure.kind(), SendErrorKind::Unreachable { .. }),
            "{failure}"
        );
        assert!(failure.to_string().contains("certificate"), "{failure}");
    }
    assert_eq!(
        receiver.requests().len(),
        0,
        "nothing was said to a stranger"
    );
    let known = HttpSettings::default().ca_pem(ca_pem.as_bytes());
    assert_eq!(attempt(known).await, Ok(()));
    assert_eq!(receiver.requests().len(), 1);
    serving.abort();
}
