//! Certificates for tests of TLS.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

/// An authority, a server's certificate and a client's, in a folder.
pub(crate) fn certificates() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Without names of their own, some clients take what it signs for self-signed.
    params
        .distinguished_name
        .push(DnType::CommonName, "authority");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("ca.pem", &authority.pem());
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &authority).unwrap();
        write(&format!("{name}.pem"), &certificate.pem());
        write(&format!("{name}.key"), &key.serialize_pem());
    }
    folder
}

/// The keys of a listener that has them, and wants a certificate of its clients.
pub(crate) fn tls_keys(folder: &Path) -> String {
    let path = |name: &str| folder.join(name).display().to_string();
    format!(
        "certificate = \"{}\"\nkey = \"{}\"\nclient_ca = \"{}\"\n",
        path("server.pem"),
        path("server.key"),
        path("ca.pem")
    )
}
