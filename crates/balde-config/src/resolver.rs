//! What values of a file refer to: other files, and environment variables.

use std::path::{Path, PathBuf};

use crate::diagnostic::Diagnostics;
use crate::document::Section;
use crate::environment::Environment;

/// The variable in which systemd passes the folder of a service's credentials.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// Resolves what values refer to: files relative to the folder of the configuration file, and
/// environment variables.
#[derive(Clone, Debug)]
pub struct Resolver<'e> {
    folder: PathBuf,
    environment: Environment<'e>,
}

impl<'e> Resolver<'e> {
    /// For a file in `folder`.
    pub fn new(folder: &Path, environment: Environment<'e>) -> Self {
        Self {
            folder: folder.to_owned(),
            environment,
        }
    }

    /// The environment that variables are read from.
    pub const fn environment(&self) -> Environment<'e> {
        self.environment
    }

    /// A path, relative to the folder of the configuration file.
    pub fn path(&self, text: &str) -> PathBuf {
        self.folder.join(text)
    }

    /// The path of a certificate, key or secret. A relative one is looked up among the credentials that
    /// systemd passes to the service (`LoadCredential=`) first.
    pub fn credential_path(&self, text: &str) -> PathBuf {
        let folder = self.environment.get(CREDENTIALS).ok().flatten();
        let credential = folder.map(|folder| Path::new(&folder).join(text));
        match credential {
            Some(credential) if !self.environment.is_assumed() && credential.is_file() => {
                credential
            }
            _ => self.path(text),
        }
    }

    /// The value of the environment variable that `key` names; an unset one is reported.
    pub fn secret(
        &self,
        section: &mut Section<'_>,
        key: &'static str,
        diagnostics: &mut Diagnostics,
    ) -> Option<String> {
        let name = section.string(key, diagnostics)?;
        self.environment.read_named(&name, diagnostics)
    }

    /// The content of the file that `key` names, which may be a
    /// [credential](Resolver::credential_path). In an [assumed](Environment::assumed) environment the
    /// file may be missing.
    pub fn bytes(
        &self,
        section: &mut Section<'_>,
        key: &'static str,
        diagnostics: &mut Diagnostics,
    ) -> Option<Vec<u8>> {
        let name = section.string(key, diagnostics)?;
        match std::fs::read(self.credential_path(name.value)) {
            Ok(bytes) => Some(bytes),
            Err(_) if self.environment.is_assumed() => None,
            Err(error) => {
                diagnostics.at(name.span, format!("cannot read the file: {error}"));
                None
            }
        }
    }

    /// A certificate chain and its key, which belong together.
    pub fn identity(
        &self,
        section: &mut Section<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        let certificate = self.bytes(section, "certificate", diagnostics);
        let key = self.bytes(section, "key", diagnostics);
        if section.contains("certificate") != section.contains("key") {
            let message = "`certificate` and `key` are used together: write both or neither";
            diagnostics.at(section.span(), message);
        }
        certificate.zip(key)
    }
}
