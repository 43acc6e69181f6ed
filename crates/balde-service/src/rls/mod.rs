//! Envoy's rate limit service (`envoy.service.ratelimit.v3.RateLimitService`) over gRPC, with health
//! checks and reflection.
//!
//! | File | Holds |
//! |--|--|
//! | `request.rs` | from the descriptors of a request to commands |
//! | `response.rs` | from verdicts to the answer, with header fields |
//! | `rate_limit_service.binpb` | the description of the service for reflection, made by `protoc` |

mod request;
mod response;

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use hyper_util::service::TowerToHyperService;
use parking_lot::RwLock;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_health::server::HealthReporter;

use self::request::{Descriptors, Hits};
use self::response::Outcome;
use crate::access::{Rights, SharedAccess};
use crate::config::RlsConfig;
use crate::decisions::{Answer, Caller, Command, CommandError, Decisions, Tokens, Verdict};
use crate::descriptors::DescriptorRules;
use crate::hyper_server;
use crate::listener::{Connection, Protocol};
use crate::metrics::{ProtocolMetrics, RequestResult};

/// The description of the service, for reflection.
const DESCRIPTION: &[u8] = include_bytes!("rate_limit_service.binpb");

/// The name of the service in health checks.
const NAME: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// What all connections share.
pub(crate) struct RlsServer {
    routes: Routes,
    rules: Arc<RwLock<Arc<DescriptorRules>>>,
    health: HealthReporter,
    idle_timeout: Duration,
}

impl RlsServer {
    pub(crate) fn new(
        config: &RlsConfig,
        decisions: Decisions,
        access: SharedAccess,
        metrics: Arc<ProtocolMetrics>,
    ) -> Self {
        let rules = Arc::new(RwLock::new(Arc::new(config.rules.clone())));
        let limiting = Limiting {
            decisions,
            access,
            metrics,
            rules: Arc::clone(&rules),
            descriptors_max: config.descriptors_max,
            has_headers: config.has_headers,
        };
        let limiting = RateLimitServiceServer::new(limiting)
            .max_decoding_message_size(config.message_bytes_max);
        let health = HealthReporter::new();
        let checks = tonic_health::server::HealthService::from_health_reporter(health.clone());
        let checks = tonic_health::pb::health_server::HealthServer::new(checks);
        let mut routes = Routes::new(limiting).add_service(checks);
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTION)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        // Clients ask for either version. The description is fixed, and a test reads it.
        if let (Ok(v1), Ok(v1alpha)) = (reflection().build_v1(), reflection().build_v1alpha()) {
            routes = routes.add_service(v1).add_service(v1alpha);
        }
        Self {
            routes: routes.prepare(),
            rules,
            health,
            idle_timeout: config.listener.idle_timeout,
        }
    }

    /// Uses other rules from now on.
    pub(crate) fn replace(&self, rules: &DescriptorRules) {
        *self.rules.write() = Arc::new(rules.clone());
    }

    /// Says in health checks whether the service takes requests.
    pub(crate) async fn set_serving(&self, is_serving: bool) {
        let status = if is_serving {
            tonic_health::ServingStatus::Serving
        } else {
            tonic_health::ServingStatus::NotServing
        };
        self.health.set_service_status(NAME, status).await;
        self.health.set_service_status("", status).await;
    }
}

impl std::fmt::Debug for RlsServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RlsServer").finish_non_exhaustive()
    }
}

impl Protocol for RlsServer {
    async fn serve(self: Arc<Self>, connection: Connection) {
        let Connection {
            stream, shutdown, ..
        } = connection;
        let service = TowerToHyperService::new(self.routes.clone());
        hyper_server::serve(stream, service, self.idle_timeout, shutdown).await;
    }

    /// A client of HTTP/2 that is closed at once connects again later.
    fn too_many(&self) -> &'static [u8] {
        &[]
    }

    fn alpn(&self) -> &'static [&'static [u8]] {
        &[b"h2"]
    }
}

/// The service itself.
#[derive(Debug)]
struct Limiting {
    decisions: Decisions,
    access: SharedAccess,
    metrics: Arc<ProtocolMetrics>,
    rules: Arc<RwLock<Arc<DescriptorRules>>>,
    descriptors_max: usize,
    has_headers: bool,
}

#[tonic::async_trait]
impl RateLimitService for Limiting {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let decided = self.decide(request).await;
        let (result, response) = match decided {
            Ok(response) if response::is_over_limit(&response) => {
                (RequestResult::Refused, Ok(Response::new(response)))
            }
            Ok(response) => (RequestResult::Allowed, Ok(Response::new(response))),
            Err(error) if error.is_failure() => (RequestResult::Failed, Err(status(&error))),
            Err(error) => (RequestResult::Invalid, Err(status(&error))),
        };
        self.metrics.count(result);
        response
    }
}

impl Limiting {
    async fn decide(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<RateLimitResponse, CommandError> {
        let caller = Caller {
            rights: self.rights(request.metadata()),
            idempotency_key: None,
            deadline: deadline(request.metadata()),
        };
        let message = request.into_inner();
        if message.descriptors.len() > self.descriptors_max {
            let most = self.descriptors_max;
            let text = format!("a request has at most {most} descriptors");
            return Err(CommandError::Invalid(text));
        }
        let rules = Arc::clone(&self.rules.read());
        let descriptors = Descriptors::new(&message, &rules)?;
        let outcomes = self.outcomes(&descriptors, &caller).await?;
        Ok(response::response(&outcomes, self.has_headers))
    }

    /// Takes from the buckets of all descriptors or of none, and then does what cannot be refused: reads,
    /// refunds, and descriptors in shadow mode.
    async fn outcomes<'d>(
        &self,
        descriptors: &'d Descriptors<'_>,
        caller: &Caller<'_>,
    ) -> Result<Vec<Outcome<'d>>, CommandError> {
        let mut outcomes: Vec<Outcome<'d>> = Vec::new();
        outcomes.resize_with(descriptors.len(), Outcome::default);
        let (places, enforced) = descriptors.enforced();
        let mut is_refused = false;
        if !enforced.is_empty() {
            let answer = self
                .decisions
                .run(Command::CheckAll(&enforced), caller)
                .await?;
            let Answer::All {
                is_allowed,
                verdicts,
                ..
            } = answer
            else {
                return Err(CommandError::Overloaded);
            };
            is_refused = !is_allowed;
            for ((place, name), verdict) in places.into_iter().zip(verdicts) {
                outcomes[place].add(name, verdict);
            }
        }
        for other in descriptors.others() {
            // What is given back for a request that was refused was not taken.
            if is_refused && matches!(other.hits, Hits::GiveBack(_)) {
                continue;
            }
            let verdict = self.one(other.tokens, other.hits, caller).await?;
            if other.is_shadow {
                outcomes[other.place].add_shadow(other.name, verdict);
            } else {
                outcomes[other.place].add(other.name, verdict);
            }
        }
        Ok(outcomes)
    }

    async fn one(
        &self,
        tokens: Tokens<'_>,
        hits: Hits,
        caller: &Caller<'_>,
    ) -> Result<Verdict, CommandError> {
        let command = match hits {
            Hits::Take(_) => Command::Check(tokens),
            Hits::Read => Command::Peek(tokens.bucket),
            Hits::GiveBack(_) => Command::Credit(tokens),
        };
        match self.decisions.run(command, caller).await? {
            Answer::One(verdict) => Ok(verdict),
            _ => Err(CommandError::Overloaded),
        }
    }

    fn rights(&self, metadata: &MetadataMap) -> Rights {
        let access = self.access.read();
        let Some(given) = metadata.get("authorization") else {
            return access.anonymous();
        };
        let given = given.to_str().ok().and_then(|value| value.split_once(' '));
        let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("Bearer"));
        let rights = given.and_then(|(_, secret)| access.rights_of(secret.trim()));
        rights.unwrap_or(Rights::NONE)
    }
}

/// When the caller stops waiting, from `grpc-timeout`: a number and a unit.
fn deadline(metadata: &MetadataMap) -> Option<Instant> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    // The protocol allows eight digits.
    let number: u32 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    let unit = match unit {
        "H" => Duration::from_secs(3_600),
        "M" => Duration::from_secs(60),
        "S" => Duration::from_secs(1),
        "m" => Duration::from_millis(1),
        "u" => Duration::from_micros(1),
        "n" => Duration::from_nanos(1),
        _ => return None,
    };
    Instant::now().checked_add(unit.checked_mul(number)?)
}

fn status(error: &CommandError) -> Status {
    let text = error.to_string();
    match error {
        CommandError::Forbidden(_) => Status::permission_denied(text),
        CommandError::UnknownLimit(_)
        | CommandError::UnknownHold
        | CommandError::UnknownTier { .. } => Status::not_found(text),
        CommandError::BadKey(_)
        | CommandError::Invalid(_)
        | CommandError::NotListed
        | CommandError::KeyReused => Status::invalid_argument(text),
        CommandError::Full(_) => Status::resource_exhausted(text),
        CommandError::DeadlineExceeded => Status::deadline_exceeded(text),
        CommandError::Overloaded | CommandError::Store(_) => Status::unavailable(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_read_and_nonsense_is_none() {
        let read = |text: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().unwrap());
            deadline(&metadata)
        };
        assert!(read("20m").unwrap() > Instant::now());
        assert!(read("20m").unwrap() < Instant::now() + Duration::from_secs(1));
        assert!(read("99999999H").is_some());
        for nonsense in ["", "m", "20", "-1S", "999999999S", "1x"] {
            assert_eq!(read(nonsense), None, "{nonsense}");
        }
    }
}
