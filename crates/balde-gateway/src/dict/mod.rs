//! A gateway in front of DICT.
//!
//! The gateway mirrors DICT's buckets and forwards only what DICT will admit. Doubt is resolved
//! against the caller: requests in flight count at their highest price, an outcome that is not known
//! costs the highest price, and a token whose refill is not certain does not count.
//!
//! | File | Holds |
//! |--|--|
//! | `mirror` | DICT's limits as the gateway mirrors them |
//! | `call` | one call, from admission to settlement |
//! | `callers` | who may speak for which participant |
//! | `reconcile`, `level`, `spent` | DICT's own levels, limits and categories correct the mirror |
//! | `external_usage` | what somebody else uses of the same buckets, which is withheld |
//! | `reconciled` | keeps payment orders and reconciliations apart |
//! | `shared`, `redis_lock` | the same for several gateways over one Redis |
//! | `refusal` | a 429 of DICT corrects the mirror, too |
//! | `orders` | payment orders, which give tokens back |
//! | `duties` | what participants must watch themselves |

mod call;
mod callers;
mod duties;
mod external_usage;
mod level;
mod mirror;
mod orders;
mod reconcile;
mod reconciled;
mod redis_lock;
mod refusal;
mod shared;
mod spent;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use balde::{BuildError, Clock, OpId};
use balde_config::ConfigError;
use balde_core::Command;
use balde_dict::{
    END_TO_END_ID_HEADER, HttpHeaders, Incoming, Operation, PARTICIPANT_HEADER, PAYER_HEADER,
    PAYMENT_ORDER, ParticipantFrom, RequestError, RouteError, Table,
};
use balde_policy::{
    Credited, Engine, EngineBuilder, InFlight, KeyPart, OnMissingPart, Outcome, Policy, Profile,
    Subject,
};
use http::request::Parts;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

pub(crate) use call::DictCall;
pub(crate) use mirror::MirroredLimit;
pub(crate) use orders::OrderId;

use self::call::CallFacts;
use self::callers::Callers;
use self::duties::Duties;
use self::external_usage::ExternalUsage;
use self::mirror::{Announced, LimitMap, Mirroring};
use self::orders::{Claim, Lookups};
use self::reconcile::Drift;
use self::reconciled::Reconciled;
use self::refusal::Streaks;
use self::shared::{Last, Shared};
use self::spent::Spent;
use crate::config::{DictConfig, RouteConfig, UserStart};
use crate::limits::{Caller, Limits, NotAdmitted, class_of};

/// The variant that DICT assigns to participants.
pub(crate) const CATEGORY: &str = "category";

/// How long ids of credits are remembered at most.
const CREDIT_ID_TTL_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The most payers whose buckets are remembered as started.
const STARTED_MAX: usize = 1_000_000;

/// What the gateway knows of DICT.
#[derive(Debug)]
pub(crate) struct Dict {
    config: RwLock<Arc<DictConfig>>,
    pub(crate) table: Table,
    /// What gateways over one Redis share beside the buckets; `None` with buckets in memory.
    shared: Option<Shared>,
    pub(crate) clock: Clock,
    started_us: u64,
    announced: Mutex<Announced>,
    limits: Mutex<LimitMap>,
    spent: Spent,
    pub(crate) duties: Duties,
    lookups: Lookups,
    pub(crate) drift: Mutex<Drift>,
    pub(crate) external_usage: ExternalUsage,
    reconciled: Reconciled,
    pub(crate) counters: DictCounters,
    trigger: Notify,
    /// Payers whose buckets have the level that they start with.
    started: tokio::sync::Mutex<HashSet<u64>>,
    hashing: RandomState,
    engine: OnceLock<Engine>,
    /// The payers that DICT refused since the last reconciliation, by participant.
    refused: Mutex<HashMap<String, HashSet<u64>>>,
    /// The payers that DICT refused since it last admitted one of their lookups.
    streaks: Streaks,
}

/// Who has reconciled a participant last.
#[derive(Debug, PartialEq, Eq)]
enum Reconciler {
    /// This gateway, or none so far.
    This,
    /// Another gateway.
    Another(Last),
    /// Some gateway is reconciling it, or Redis does not say.
    Busy,
}

/// Counters of a gateway in front of DICT.
#[derive(Debug, Default)]
pub(crate) struct DictCounters {
    /// Responses of DICT with status 429.
    pub(crate) refusals: AtomicU64,
    /// Calls whose outcome is not known.
    pub(crate) doubts: AtomicU64,
    pub(crate) reconciled: AtomicU64,
    pub(crate) not_reconciled: AtomicU64,
    /// When a participant was last reconciled.
    pub(crate) reconciled_us: AtomicU64,
    pub(crate) credited: AtomicU64,
    pub(crate) not_credited: AtomicU64,
}

/// Why a request is not forwarded to DICT.
#[derive(Debug)]
pub(crate) enum DictRefusal {
    /// A policy does not admit it.
    NotAdmitted {
        /// Why.
        refused: NotAdmitted,
        /// Whose request it is.
        participant: String,
    },
    /// It names no participant, or one that may not use this gateway.
    Invalid {
        /// The status of the response.
        status: u16,
        /// What is wrong.
        detail: String,
    },
}

/// A request to DICT, with what is known of it.
pub(crate) struct DictRequest<'r> {
    pub(crate) parts: &'r Parts,
    /// Its path in normal form.
    pub(crate) path: &'r str,
    pub(crate) body: Option<&'r [u8]>,
    pub(crate) caller: &'r Caller,
    pub(crate) route: &'r RouteConfig,
    /// The name of the upstream that it goes to.
    pub(crate) upstream: &'r str,
}

/// What a payment order gave back.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct OrderResult {
    pub(crate) credited: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'static str>,
    pub(crate) buckets: Vec<CreditedBucket>,
}

#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct CreditedBucket {
    policy: String,
    tokens: u64,
    level: i64,
}

impl Dict {
    /// The longest body that is read to find its participant.
    pub(crate) const BODY_BYTES_MAX: u64 = 1 << 20;

    /// The mirror of a profile. The engine has to be built by [`configure`](Dict::configure) for
    /// [`mirrored`](Dict::mirrored).
    pub(crate) fn new(
        config: &DictConfig,
        profile: &Profile,
        clock: &Clock,
        salt: Option<&str>,
    ) -> Result<Self, ConfigError> {
        let table = Table::new(profile.clone())?;
        let settings = table.settings();
        Ok(Self {
            duties: Duties::new(salt),
            lookups: Lookups::new(settings.credit_deadline, settings.credit_once),
            config: RwLock::new(Arc::new(config.clone())),
            table,
            shared: None,
            started_us: clock.now_us(),
            clock: clock.clone(),
            announced: Mutex::default(),
            limits: Mutex::default(),
            spent: Spent::default(),
            drift: Mutex::default(),
            external_usage: ExternalUsage::default(),
            reconciled: Reconciled::default(),
            counters: DictCounters::default(),
            trigger: Notify::new(),
            started: tokio::sync::Mutex::default(),
            hashing: RandomState::new(),
            engine: OnceLock::new(),
            refused: Mutex::default(),
            streaks: Streaks::default(),
        })
    }

    /// Sets the engine with the mirrored buckets.
    pub(crate) fn set_limits(&mut self, limits: &Limits) -> Result<(), BuildError> {
        let _set_once = self.engine.set(limits.engine().clone());
        let shared = limits.redis().map(|store| Shared::new(store, &self.clock));
        self.shared = shared.transpose()?;
        Ok(())
    }

    pub(crate) fn config(&self) -> Arc<DictConfig> {
        Arc::clone(&self.config.read())
    }

    /// Applies another configuration.
    pub(crate) fn reload(&self, config: &DictConfig) {
        *self.config.write() = Arc::new(config.clone());
    }

    /// The profile that the engine enforces.
    pub(crate) fn mirrored(&self) -> Profile {
        let announced = self.announced.lock().clone();
        let (profile, limits) = self.mirroring().profile(self.table.profile(), &announced);
        *self.limits.lock() = limits;
        profile
    }

    fn mirroring(&self) -> Mirroring {
        Mirroring {
            refill: self.config().refill,
        }
    }

    /// Sets what an engine in front of DICT needs.
    pub(crate) fn configure(&self, builder: EngineBuilder) -> EngineBuilder {
        let settings = self.table.settings();
        let ttl = settings.credit_deadline;
        let category = reconcile::known_category(&self.table, self.config().category);
        builder
            .in_flight(InFlight::HighestPrice)
            .on_missing_part(OnMissingPart::Skip)
            .credit_id_ttl(ttl.clamp(Duration::from_secs(1), CREDIT_ID_TTL_MAX))
            .default_value(CATEGORY, category)
    }

    /// Enforces limits that DICT states.
    fn enforce(&self, limits: &Limits, announced: &Announced) -> Result<(), BuildError> {
        let (mirrored, map) = self.mirroring().profile(self.table.profile(), announced);
        // Reserves and shadow modes of the configuration stay.
        let current = limits.engine().profile();
        let mut profile = current.clone();
        for policy in mirrored.policies() {
            if let Some(own) = current.policy(policy.name()) {
                let changed = own.clone().with_limits(policy.limits().clone());
                profile = profile.with_policy(changed);
            }
        }
        limits.engine().replace(profile)?;
        *self.limits.lock() = map;
        Ok(())
    }

    /// The limit of a policy for a value of its variant.
    pub(crate) fn limit_of(&self, policy: &str, value: Option<&str>) -> Option<MirroredLimit> {
        let name = (policy.to_owned(), value.map(str::to_owned));
        self.limits.lock().get(&name).copied()
    }

    /// Whether the body of a request has to be read to find its participant.
    pub(crate) fn needs_body(&self, parts: &Parts, path: &str) -> bool {
        let route = self.table.route(parts.method.as_str(), path);
        route.is_ok_and(|route| route.operation().participant() == ParticipantFrom::Body)
    }

    /// Admits a request; `None` if it does not go to DICT, so that no policy counts it.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        limits: &Limits,
        incoming: &DictRequest<'_>,
    ) -> Result<Option<DictCall>, DictRefusal> {
        let DictRequest {
            parts,
            caller,
            route,
            ..
        } = *incoming;
        let config = self.config();
        let found = match self.table.route(parts.method.as_str(), incoming.path) {
            Ok(found) => found,
            Err(RouteError::OutsideBase) if incoming.upstream != config.upstream => {
                return Ok(None);
            }
            // What is none of DICT's operations is not forwarded to it: nobody would count it.
            Err(error) => {
                return Err(DictRefusal::Invalid {
                    status: error.status(),
                    detail: error.to_string(),
                });
            }
        };
        let operation = found.operation();
        callers::check_single(parts)?;
        let in_body = incoming
            .body
            .and_then(|body| operation.body_participant(body));
        let callers = Callers::new(&config, caller);
        callers.check(parts, in_body.as_deref())?;
        let in_header = parts.headers.get(PARTICIPANT_HEADER);
        let in_header = in_header.and_then(|value| value.to_str().ok());
        let fields = HttpHeaders(&parts.headers);
        let query = parts.uri.query().unwrap_or_default();
        // DICT charges a request that names no participant to the certificate that it sees: the
        // gateway's own, not the caller's.
        let charged = config.charged.as_deref();
        let named = Incoming::new(query, &fields)
            .with_body_participant(in_body.as_deref().or(in_header).or(charged))
            .with_certificate(charged);
        if operation.participant() == ParticipantFrom::Certificate && charged.is_none() {
            return Err(DictRefusal::Invalid {
                status: 403,
                detail: "the gateway's file does not say whom DICT charges: set `check_keys_as`"
                    .to_owned(),
            });
        }
        let call = self.table.resolve(&found, &named);
        let Some(participant) = call.participant() else {
            // DICT would refuse it too, and without a participant it counts for nobody.
            return Err(call.error().map_or_else(
                || callers::invalid(RequestError::MissingParticipant),
                callers::invalid,
            ));
        };
        if !callers.may_speak_for(participant) {
            return Err(callers::forbidden());
        }
        callers::check_payer(call.error())?;
        let mut request = call.request();
        request.class = class_of(&limits.classes, caller, &parts.headers, route.class);
        if operation == Operation::GetEntry
            && let Some(payer) = call.payer()
        {
            self.start_payer(limits, &request, participant, payer).await;
        }
        let wait = limits.wait(&parts.headers, route);
        let payer = call.payer();
        let waiting_caller = payer.or(caller.address.to_str().ok()).unwrap_or_default();
        let admitted = limits.admit(&request, waiting_caller, wait).await;
        let ticket = admitted.map_err(|refused| {
            if operation == Operation::GetEntry && refused.policy().is_some() {
                let now_us = self.clock.now_us();
                self.duties.count_refused(participant, payer, now_us);
            }
            DictRefusal::NotAdmitted {
                refused,
                participant: participant.to_owned(),
            }
        })?;
        let order = route.order_header.as_ref();
        let order = order.and_then(|name| parts.headers.get(name)?.to_str().ok());
        let text = |name: &str| {
            let value = parts.headers.get(name);
            value
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let facts = CallFacts {
            operation,
            policies: ticket
                .decisions()
                .map(|(name, _)| name.to_owned())
                .collect(),
            participant: participant.to_owned(),
            payer: call
                .payer()
                .map(str::to_owned)
                .or_else(|| text(PAYER_HEADER)),
            end_to_end_id: call.end_to_end_id().map(str::to_owned),
            key: operation.has_key().then(|| found.raw_segment().to_owned()),
            order: order.map(str::to_owned),
        };
        Ok(Some(DictCall::new(self, ticket, facts)))
    }

    /// The status with which DICT refused a participant whose buckets it has never listed.
    pub(crate) fn refused_status(&self, participant: &str) -> Option<u16> {
        self.reconciled.of(participant).refused_status()
    }

    /// Gives a payer's buckets the level that they start with, if the gateway started without
    /// knowing it. Once every bucket must have refilled, there is nothing left to do.
    async fn start_payer(
        &self,
        limits: &Limits,
        request: &balde_policy::Request<'_>,
        participant: &str,
        payer: &str,
    ) {
        let percent = match self.config().user_start {
            UserStart::Full => return,
            UserStart::Empty => 0,
            UserStart::Percent(percent) => percent,
        };
        // Buckets in Redis outlive the gateway, and have their levels.
        if self.shared.is_some() {
            return;
        }
        let passed_us = self.clock.now_us().saturating_sub(self.started_us);
        let engine = limits.engine();
        for (policy, _) in engine.prices(request, Outcome::Failed) {
            let subject = Self::payer_subject(participant, payer);
            let profile = self.table.profile();
            if profile.policy(&policy).is_none_or(is_listed) {
                continue;
            }
            let Ok(found) = engine.state(&policy, &subject).await else {
                continue;
            };
            let limit = *found.limit();
            if passed_us >= limit.fill_us() {
                continue;
            }
            let mut started = self.started.lock().await;
            let hash = self.hashing.hash_one((&*policy, participant, payer));
            if started.len() < STARTED_MAX && !started.insert(hash) {
                continue;
            }
            let level = u128::from(limit.capacity()) * u128::from(percent) / 100;
            let level = i64::try_from(level).unwrap_or(i64::MAX);
            let at_start = limit.apply(None, Command::SetLevel { level }, 0);
            let level = at_start.after(passed_us).level();
            if level < found.level() {
                let _memory_cannot_fail = engine.set_level(&policy, &subject, level).await;
            }
        }
    }

    /// Who has reconciled a participant, as far as several gateways share its buckets.
    async fn last_reconciliation(&self, participant: &str) -> Reconciler {
        let Some(shared) = &self.shared else {
            return Reconciler::This;
        };
        match shared.last_if_idle(participant).await {
            Some(last) if shared.is_own(&last) => Reconciler::This,
            Some(last) => Reconciler::Another(last),
            None => Reconciler::Busy,
        }
    }

    /// Takes back what an order gave to buckets that DICT lists.
    async fn take_back(&self, engine: &Engine, subject: &Subject<'_>, credited: &[Credited]) {
        for one in credited {
            let policy = self.table.profile().policy(one.policy());
            if policy.is_some_and(is_listed) {
                let by = i64::try_from(one.tokens()).unwrap_or(i64::MAX);
                let taken = engine.adjust_level(one.policy(), subject, -by).await;
                if let Err(error) = taken {
                    tracing::warn!(policy = one.policy(), %error, "a bucket could not be corrected");
                }
            }
        }
    }

    fn payer_subject<'s>(participant: &'s str, payer: &'s str) -> Subject<'s> {
        Subject::participant(participant)
            .with(KeyPart::header(PAYER_HEADER), payer)
            .with(KeyPart::User, payer)
    }

    /// Gives tokens back for a payment order, once for each lookup.
    ///
    /// A bucket that DICT lists gets nothing if it was reconciled after the lookup, or is being
    /// corrected: DICT's level may include the tokens of the order. If it does not, the next
    /// reconciliation adds them.
    pub(crate) async fn credit_order(&self, id: OrderId<'_>) -> Result<OrderResult, balde::Error> {
        let now_us = self.clock.now_us();
        let claim = self.lookups.claim(id, now_us);
        let reason = match &claim {
            Claim::Lookup { .. } => None,
            Claim::NoLookup => Some("no lookup by this participant for this payer and id"),
            Claim::TooLate => Some("the lookup was too long ago"),
            Claim::Before => Some("it was credited before"),
        };
        if claim != Claim::Before {
            self.duties.count_order(id.participant, id.payer, now_us);
        }
        let (Claim::Lookup { key, at_us }, Some(engine)) = (claim, self.engine.get()) else {
            self.counters.not_credited.fetch_add(1, Ordering::Relaxed);
            return Ok(OrderResult {
                credited: false,
                reason,
                buckets: Vec::new(),
            });
        };
        let path = format!("{}entries/{key}", self.config().base_path);
        let headers = [
            (PARTICIPANT_HEADER, id.participant),
            (PAYER_HEADER, id.payer),
            (END_TO_END_ID_HEADER, id.end_to_end_id),
        ];
        let headers = headers.as_slice();
        let mut buckets = Vec::new();
        if let Ok(route) = self.table.route("GET", &path) {
            let call = self.table.resolve(&route, &Incoming::new("", &headers));
            let name = format!("{}/{}", id.payer, id.end_to_end_id);
            let once = OpId::new(name).unwrap_or_else(|_| OpId::random());
            let subject = Subject::request(call.request());
            let reconciliations = self.reconciled.of(id.participant);
            let unchanged = reconciliations.while_unchanged().await;
            let last = self.last_reconciliation(id.participant).await;
            let is_by_others = match &last {
                Reconciler::This => false,
                Reconciler::Another(last) => last.may_include_order(at_us),
                Reconciler::Busy => true,
            };
            let may_be_known = is_by_others || unchanged.may_include_order(at_us);
            let credited = engine
                .credit_where(PAYMENT_ORDER, &subject, &once, |policy| {
                    !(may_be_known && is_listed(policy))
                })
                .await;
            let credited = credited.inspect_err(|_| self.lookups.release(id))?;
            if !may_be_known && last != self.last_reconciliation(id.participant).await {
                // Another gateway has begun to reconcile, and may add the same tokens.
                self.take_back(engine, &subject, &credited).await;
            }
            drop(unchanged);
            let shown = credited.iter().map(|credited| CreditedBucket {
                policy: credited.policy().to_owned(),
                tokens: credited.tokens(),
                level: credited.level(),
            });
            buckets.extend(shown);
        }
        self.counters.credited.fetch_add(1, Ordering::Relaxed);
        Ok(OrderResult {
            credited: true,
            reason: None,
            buckets,
        })
    }
}

/// Whether DICT reports the bucket: those of participants, not those of their payers.
fn is_listed(policy: &Policy) -> bool {
    let mut parts = policy.scope().parts().iter();
    parts.all(|part| *part == KeyPart::Participant)
}
