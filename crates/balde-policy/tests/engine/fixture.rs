//! A small profile, an engine with a clock that stands still, and short ways to use them.

use balde::{Clock, ManualClock};
use balde_policy::{
    AdmitError, Engine, EngineBuilder, Outcome, Profile, Refusal, Request, Subject,
};

pub(crate) const PROFILE: &str = r#"
profile = "catalogue"

[variants]
plan = { part = "user", assigned = ["small", "large"] }

[[policy]]
name = "lookups"
match = ["GET /items/{id}"]
scope = "user"
limits = { by = "plan", small = "1/s burst 20", large = "10/s burst 100" }
costs = { 200 = 1, 404 = 5, 5xx = 0, unanswered = 2, default = 1 }
credits = { order = 3 }

[[policy]]
name = "overall"
match = ["GET /items/{id}", "GET /lists"]
limit = "10/s burst 1000"
"#;

pub(crate) struct Fixture {
    pub(crate) engine: Engine,
    pub(crate) clock: ManualClock,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(PROFILE, |builder| builder)
    }

    pub(crate) fn with(profile: &str, build: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Self {
        let clock = ManualClock::new();
        let builder = Engine::builder(parsed(profile))
            .clock(Clock::manual(&clock))
            .default_value("plan", "small");
        let engine = build(builder).build().unwrap();
        Self { engine, clock }
    }

    pub(crate) async fn level(&self, policy: &str, user: &str) -> i64 {
        level(&self.engine, policy, user).await
    }

    /// Admits a lookup and settles it; whether it was admitted.
    pub(crate) async fn lookup(&self, user: &str, status: u16) -> bool {
        match self.engine.admit(&get("/items/1", user)).await {
            Ok(ticket) => {
                ticket.settle(Outcome::Status(status)).await;
                true
            }
            Err(AdmitError::Refused(_)) => false,
            Err(error) => panic!("{error}"),
        }
    }
}

pub(crate) fn parsed(profile: &str) -> Profile {
    Profile::parse(profile).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn get<'r>(path: &'r str, user: &'r str) -> Request<'r> {
    let mut request = Request::new("GET", path, "");
    request.user = Some(user).filter(|user| !user.is_empty());
    request
}

pub(crate) async fn level(engine: &Engine, policy: &str, user: &str) -> i64 {
    let state = engine.state(policy, &Subject::user(user)).await;
    state.unwrap_or_else(|error| panic!("{error}")).level()
}

pub(crate) fn refusal<T>(result: Result<T, AdmitError>) -> Refusal {
    match result {
        Err(AdmitError::Refused(refusal)) => *refusal,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("admitted"),
    }
}
