//! Builds a simulator.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use balde::{BuildError, Clock, ManualClock, RedisConfigError, RedisStore};
use parking_lot::Mutex;
use redis::IntoConnectionInfo;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use thiserror::Error;

use super::buckets::Buckets;
use super::lookups::Lookups;
use super::refusal_log::RefusalLog;
use super::transcript::Transcript;
use super::{Inner, Participants, Simulator};
use crate::directory::{Directory, DirectoryRules, RecordStoreError};
use crate::wire::{ApiVersion, Signer, Verifier};
use balde_dict::{Category, ConfigError, Profile, Table, profiles};
use balde_net::tls::install_crypto_provider;

/// The participant of requests that name none and have no certificate.
const DEFAULT_CALLER: &str = "99999999";

/// Builds a [`Simulator`]. Every option has a default.
#[must_use = "a builder does nothing until it is built"]
pub struct SimulatorBuilder {
    profile: Option<Profile>,
    category: Category,
    rules: DirectoryRules,
    manual_clock: Option<ManualClock>,
    directory_clock: Option<ManualClock>,
    redis: Option<(String, String)>,
    redis_password: Option<String>,
    tls: Option<TlsFiles>,
    signer: Option<Arc<dyn Signer>>,
    verifier: Option<Arc<dyn Verifier>>,
    requires_signatures: bool,
    participants: Option<Participants>,
    check_keys_participant: Option<String>,
    transcript: Option<PathBuf>,
}

struct TlsFiles {
    chain: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

impl SimulatorBuilder {
    pub(super) fn new() -> Self {
        Self {
            profile: None,
            category: Category::A,
            rules: DirectoryRules::default(),
            manual_clock: None,
            directory_clock: None,
            redis: None,
            redis_password: None,
            tls: None,
            signer: None,
            verifier: None,
            requires_signatures: true,
            participants: None,
            check_keys_participant: None,
            transcript: None,
        }
    }

    /// Sets the policies. By default, [`profiles::default`].
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// Sets the category of participants without an assigned category. By default, `A`.
    pub fn category(mut self, category: Category) -> Self {
        self.category = category;
        self
    }

    /// Sets the directory's optional rules.
    pub fn rules(mut self, rules: DirectoryRules) -> Self {
        self.rules = rules;
        self
    }

    /// Uses a clock that moves only when it is advanced, for tests. Not possible over Redis, where
    /// all simulators use the server's clock.
    pub fn manual_clock(mut self, clock: &ManualClock) -> Self {
        self.manual_clock = Some(clock.clone());
        self
    }

    /// Uses a manual clock for the periods of the directory's records, also over Redis. Buckets keep
    /// the clock that they have without it.
    pub fn directory_clock(mut self, clock: &ManualClock) -> Self {
        self.directory_clock = Some(clock.clone());
        self
    }

    /// Keeps all state in Redis: `redis://[user:password@]host:port[/database]`, or `rediss://` for
    /// TLS. Simulators with the same namespace share the state.
    pub fn redis(mut self, address: impl Into<String>, namespace: impl Into<String>) -> Self {
        self.redis = Some((address.into(), namespace.into()));
        self
    }

    /// Sets the Redis password, if the address does not contain it. It is never logged.
    pub fn redis_password(mut self, password: impl Into<String>) -> Self {
        self.redis_password = Some(password.into());
        self
    }

    /// Serves TLS with this certificate chain and key. With `client_ca`, clients need a certificate
    /// issued by one of these authorities. All are PEM files.
    pub fn tls_files(
        mut self,
        chain: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        client_ca: Option<PathBuf>,
    ) -> Self {
        self.tls = Some(TlsFiles {
            chain: chain.into(),
            key: key.into(),
            client_ca,
        });
        self
    }

    /// Sets the signer of responses. By default, responses have an empty signature.
    pub fn signer(mut self, signer: Arc<dyn Signer>) -> Self {
        self.signer = Some(signer);
        self
    }

    /// Sets the verifier of requests' signatures. By default, signatures are not checked.
    pub fn verifier(mut self, verifier: Arc<dyn Verifier>) -> Self {
        self.verifier = Some(verifier);
        self
    }

    /// Accepts writes without a signature too; a signature that is present is still verified. By
    /// default, with a verifier every write needs a signature.
    pub fn accept_unsigned(mut self) -> Self {
        self.requires_signatures = false;
        self
    }

    /// Sets the participants that may speak, and their certificates. By default, everyone may speak
    /// for everyone.
    pub fn participants(mut self, participants: Participants) -> Self {
        self.participants = Some(participants);
        self
    }

    /// Sets the participant of requests that need not name one, if they have neither certificate nor
    /// header: checkKeys, and listFraudMarkers without `Participant`. By default, `99999999`.
    pub fn check_keys_participant(mut self, participant: impl Into<String>) -> Self {
        self.check_keys_participant = Some(participant.into());
        self
    }

    /// Writes every request and what its client missed to a file: one JSON object per line, the last
    /// with a summary. The file contains the payers' tax numbers.
    pub fn transcript(mut self, path: impl Into<PathBuf>) -> Self {
        self.transcript = Some(path.into());
        self
    }

    /// Builds the simulator. Connections to Redis are made by the first request.
    pub fn build(self) -> Result<Simulator, SimulatorBuildError> {
        let profile = self.profile.unwrap_or_else(profiles::default);
        let table = Arc::new(Table::new(profile).map_err(SimulatorBuildError::Profile)?);
        if table.profile().variant("category").is_some_and(|variant| {
            variant
                .values()
                .all(|value| value != self.category.as_str())
        }) {
            return Err(SimulatorBuildError::Category {
                category: self.category,
            });
        }
        if self.manual_clock.is_some() && self.redis.is_some() {
            return Err(SimulatorBuildError::ManualClockOverRedis);
        }
        let clock_or_precise =
            |clock: Option<&ManualClock>| clock.map_or_else(Clock::precise, Clock::manual);
        let clock = clock_or_precise(self.manual_clock.as_ref());
        let of_directory = self.directory_clock.as_ref();
        let directory_clock = clock_or_precise(of_directory.or(self.manual_clock.as_ref()));
        let (directory, store) = match &self.redis {
            None => {
                let settings = table.settings().clone();
                (Directory::in_memory(self.rules, settings), None)
            }
            Some((address, namespace)) => {
                let mut store = RedisStore::builder()
                    .address(address)
                    .prefix(format!("{namespace}:buckets"))
                    .timeout(balde::REDIS_TIMEOUT_MAX);
                if let Some(password) = &self.redis_password {
                    store = store.password(password);
                }
                let store = store
                    .build()
                    .map_err(|error| SimulatorBuildError::Buckets(error.into()))?;
                let client = redis_client(address, self.redis_password.as_deref())
                    .map_err(|_| SimulatorBuildError::Buckets(RedisConfigError::Address.into()))?;
                let settings = table.settings().clone();
                let directory = Directory::in_redis(client, namespace, self.rules, settings)
                    .map_err(SimulatorBuildError::Directory)?;
                (directory, Some(store))
            }
        };
        let offset_s = table.settings().refill_offset_s;
        if offset_s != 0 && store.is_some() {
            return Err(SimulatorBuildError::TimeZoneOverRedis);
        }
        // A period begins when the clock of the buckets is a multiple of it.
        let bucket_clock = clock.shifted(offset_s * 1_000_000);
        let buckets = Buckets::new(
            Arc::clone(&table),
            self.category,
            store.as_ref(),
            &bucket_clock,
        )
        .map_err(SimulatorBuildError::Buckets)?;
        let settings = table.settings();
        let shared = directory.redis_records();
        let lookups = Lookups::new(
            shared.clone(),
            settings.credit_deadline.as_secs(),
            settings.credit_once,
        );
        let tls = self.tls.as_ref().map(TlsFiles::read).transpose()?;
        let version = if settings.is_version_1 {
            ApiVersion::V1
        } else {
            ApiVersion::V2
        };
        let default_caller = self.check_keys_participant;
        let transcript = match &self.transcript {
            Some(path) => Some(Transcript::create(path).map_err(|error| {
                let path = path.display().to_string();
                SimulatorBuildError::Transcript { path, error }
            })?),
            None => None,
        };
        Ok(Simulator(Arc::new(Inner {
            table,
            buckets,
            directory,
            lookups,
            refusals: RefusalLog::default(),
            clock: directory_clock,
            manual_clock: self.manual_clock,
            shared,
            followed: Mutex::default(),
            signer: self.signer,
            verifier: self.verifier,
            requires_signatures: self.requires_signatures,
            tls: tls.map(Arc::new),
            participants: self.participants,
            default_caller: default_caller.unwrap_or_else(|| DEFAULT_CALLER.to_owned()),
            version,
            transcript,
        })))
    }
}

fn redis_client(address: &str, password: Option<&str>) -> redis::RedisResult<redis::Client> {
    install_crypto_provider();
    let url = if address.contains("://") {
        address.to_owned()
    } else {
        format!("redis://{address}")
    };
    let info = url.into_connection_info()?;
    let info = match password {
        Some(password) => {
            let settings = info.redis_settings().clone().set_password(password);
            info.set_redis_settings(settings)
        }
        None => info,
    };
    redis::Client::open(info)
}

impl TlsFiles {
    fn read(&self) -> Result<rustls::ServerConfig, SimulatorBuildError> {
        install_crypto_provider();
        let chain = certificates(&self.chain)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|_| tls(&self.key, "contains no private key in PEM format"))?;
        let builder = rustls::ServerConfig::builder();
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots
                        .add(certificate)
                        .map_err(|_| tls(path, "contains a certificate that cannot be used"))?;
                }
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots))
                    .build()
                    .map_err(|_| tls(path, "contains no certificate that can be used"))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| tls(&self.chain, &format!("does not match its key: {error}")))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SimulatorBuildError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(|_| tls(path, "cannot be read"))?
        .collect();
    let all = all.map_err(|_| tls(path, "is not in PEM format"))?;
    if all.is_empty() {
        return Err(tls(path, "contains no certificate in PEM format"));
    }
    Ok(all)
}

fn tls(path: &Path, reason: &str) -> SimulatorBuildError {
    SimulatorBuildError::Tls {
        reason: format!("{} {reason}", path.display()),
    }
}

impl fmt::Debug for SimulatorBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may contain a password.
        f.debug_struct("SimulatorBuilder")
            .field("category", &self.category)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

/// Why a simulator could not be built.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SimulatorBuildError {
    /// The profile cannot be used with DICT's operations.
    #[error(transparent)]
    Profile(ConfigError),
    /// The profile does not have the default category.
    #[error("the profile has no category {category}")]
    Category {
        /// The category.
        category: Category,
    },
    /// The buckets cannot be created.
    #[error(transparent)]
    Buckets(BuildError),
    /// The directory cannot be opened.
    #[error(transparent)]
    Directory(RecordStoreError),
    /// A manual clock was combined with Redis.
    #[error(
        "a virtual clock is not possible over Redis, where all simulators use the server's clock"
    )]
    ManualClockOverRedis,
    /// A time zone for stepwise refills was combined with Redis.
    #[error(
        "the setting refill-time-zone is not possible over Redis, where periods begin by the server's clock in \
         UTC"
    )]
    TimeZoneOverRedis,
    /// The file of the transcript cannot be created.
    #[error("the transcript {path} cannot be written: {error}")]
    Transcript {
        /// The file.
        path: String,
        /// Why it cannot be created.
        error: std::io::Error,
    },
    /// Certificates or keys cannot be used.
    #[error("TLS cannot be set up: {reason}")]
    Tls {
        /// The file, and why it cannot be used.
        reason: String,
    },
}
