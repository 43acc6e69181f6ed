//! TLS in, TLS and mutual TLS out, and callers identified by their certificates.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;

use crate::backend::Backend;
use crate::running::{Running, client};

/// An authority, and certificates that it issued, as PEM files.
pub(crate) struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("ca.pem"), &pem).unwrap();
        Self {
            issuer: Issuer::new(params, key),
            pem,
            folder,
        }
    }

    /// The names of a certificate file and its key file, and the certificate's DER.
    pub(crate) fn issue(&self, name: &str) -> (PathBuf, PathBuf, Vec<u8>) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let file = |ending: &str| self.folder.path().join(format!("{name}.{ending}"));
        std::fs::write(file("pem"), certificate.pem()).unwrap();
        std::fs::write(file("key"), key.serialize_pem()).unwrap();
        (file("pem"), file("key"), certificate.der().to_vec())
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    pub(crate) fn client(&self, identity: Option<&(PathBuf, PathBuf, Vec<u8>)>) -> reqwest::Client {
        let _provider = client();
        let root = reqwest::Certificate::from_pem(self.pem.as_bytes()).unwrap();
        let mut builder = reqwest::Client::builder().no_proxy().tls_certs_only([root]);
        if let Some((chain, key, _)) = identity {
            let pem = [std::fs::read(chain).unwrap(), std::fs::read(key).unwrap()].concat();
            builder = builder.identity(reqwest::Identity::from_pem(&pem).unwrap());
        }
        builder.build().unwrap()
    }
}

pub(crate) fn text(path: &std::path::Path) -> String {
    path.display().to_string()
}

#[tokio::test]
async fn mutual_tls_in_and_out_and_classes_by_certificate() {
    let authority = Arc::new(Authority::new());
    let server = authority.issue("server");
    let own = authority.issue("gateway");
    let live = authority.issue("live");
    let other = authority.issue("other");
    let backend = Backend::start().await;
    // The inner gateway is the upstream of the outer one, which has to present its certificate.
    let inner = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n\
         [[upstream]]\nname = \"backend\"\nurl = \"http://{}\"\n\
         [[route]]\npath = \"/\"\nupstream = \"backend\"\n",
        text(&server.0),
        text(&server.1),
        text(&authority.ca()),
        backend.address
    );
    let inner = Running::start(&inner).await;
    let digest = ring::digest::digest(&ring::digest::SHA256, &live.2);
    let outer = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\ncertificate = {:?}\nkey = {:?}\n\
         client_ca = {:?}\nclient_auth = \"optional\"\n\
         [[upstream]]\nname = \"inner\"\nurl = \"https://127.0.0.1:{}\"\nca = {:?}\n\
         certificate = {:?}\nkey = {:?}\n\
         [[route]]\npath = \"/\"\nupstream = \"inner\"\n\
         [[class]]\nname = \"live\"\ncertificates = [\"{}\"]\n\
         [limiting]\n[[limiting.reserve]]\npolicy = \"all\"\nclass = \"live\"\nshare = '50%'\n\
         [[policies.policy]]\nname = \"all\"\nlimit = \"1/h burst 4\"\n",
        text(&server.0),
        text(&server.1),
        text(&authority.ca()),
        inner.address.port(),
        text(&authority.ca()),
        text(&own.0),
        text(&own.1),
        hex::encode(digest),
    );
    let outer = Running::start(&outer).await;
    let url = format!("https://127.0.0.1:{}/through", outer.address.port());
    let ask = async |client: &reqwest::Client| {
        let response = client.get(&url).send().await.unwrap();
        (response.status().as_u16(), response.version())
    };
    let anonymous = authority.client(None);
    assert_eq!(ask(&anonymous).await.0, 200);
    assert_eq!(ask(&authority.client(Some(&other))).await.0, 200);
    // Half of the bucket is for the other class.
    assert_eq!(ask(&anonymous).await.0, 429);
    let live = authority.client(Some(&live));
    assert_eq!(ask(&live).await.0, 200);
    assert_eq!(ask(&live).await.0, 200);
    assert_eq!(ask(&live).await.0, 429);
    let received = backend.received();
    assert_eq!(received.len(), 4);
    assert_eq!(received[0].parts.headers["x-forwarded-proto"], "https");
    // The inner gateway does not talk to clients without a certificate.
    let direct = format!("https://127.0.0.1:{}/", inner.address.port());
    assert!(anonymous.get(direct).send().await.is_err());
}
