//! Envoy's rate limit service, asked as Envoy asks it.

use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::UInt64Value;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::running::{ADMIN, Running, config};

const FILE: &str = r#"
[limits.addresses]
limit = "10/day"
[limits.logins]
limit = "3/day"

[rls]
address = "127.0.0.1:0"
descriptors_max = 4

[[rls.rule]]
domain = "edge"
match = ["remote_address"]
limit = "addresses"

[[rls.rule]]
domain = "edge"
match = ["path=/login", "remote_address"]
limit = "logins"

[[rls.rule]]
domain = "edge"
match = ["path=/health*", "remote_address"]
unlimited = true

[[rls.rule]]
domain = "edge"
match = ["tried"]
limit = "logins"
shadow = true
"#;

const OK: i32 = 1;
const OVER: i32 = 2;

async fn client(service: &Running) -> RateLimitServiceClient<Channel> {
    let address = format!("http://{}", service.address("rls"));
    RateLimitServiceClient::connect(address).await.unwrap()
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    };
    RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        ..RateLimitDescriptor::default()
    }
}

fn request(hits_addend: u32, descriptors: &[RateLimitDescriptor]) -> RateLimitRequest {
    RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: descriptors.to_vec(),
        hits_addend,
    }
}

async fn ask(
    client: &mut RateLimitServiceClient<Channel>,
    request: RateLimitRequest,
) -> Result<RateLimitResponse, Status> {
    let answered = client.should_rate_limit(request).await;
    answered.map(tonic::Response::into_inner)
}

fn codes(response: &RateLimitResponse) -> (i32, Vec<(i32, u32)>) {
    let statuses = response.statuses.iter();
    let statuses = statuses.map(|status| (status.code, status.limit_remaining));
    (response.overall_code, statuses.collect())
}

#[tokio::test]
async fn descriptors_take_from_all_their_limits_or_from_none() {
    let service = Running::start_only(FILE).await;
    let mut client = client(&service).await;
    let address = descriptor(&[("remote_address", "10.0.0.1")]);
    let login = descriptor(&[("path", "/login"), ("remote_address", "10.0.0.1")]);
    let both = [address.clone(), login];
    let answer = ask(&mut client, request(2, &both)).await.unwrap();
    assert_eq!(codes(&answer), (OK, vec![(OK, 8), (OK, 1)]));
    let limit = answer.statuses[1].current_limit.as_ref().unwrap();
    assert_eq!(
        (limit.name.as_str(), limit.requests_per_unit, limit.unit),
        ("logins", 3, 4)
    );
    let answer = ask(&mut client, request(2, &both)).await.unwrap();
    assert_eq!(answer.overall_code, OVER);
    assert_eq!(answer.statuses[1].code, OVER);
    let names: Vec<&str> = answer
        .response_headers_to_add
        .iter()
        .map(|field| field.key.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "ratelimit-limit",
            "ratelimit-remaining",
            "ratelimit-reset",
            "retry-after"
        ]
    );
    // Nothing was taken from the address. One hit, if nothing is said.
    let answer = ask(&mut client, request(0, &[address])).await.unwrap();
    assert_eq!(codes(&answer), (OK, vec![(OK, 7)]));
    // Neither what no rule matches nor what is unlimited has a limit.
    let free = [
        descriptor(&[("user", "a")]),
        descriptor(&[("path", "/healthz"), ("remote_address", "10.0.0.1")]),
    ];
    let answer = ask(&mut client, request(1_000, &free)).await.unwrap();
    assert_eq!(codes(&answer), (OK, vec![(OK, 0), (OK, 0)]));
    assert_eq!(answer.statuses[0].current_limit, None);
    service.stop().await;
}

#[tokio::test]
async fn hits_can_be_zero_or_given_back() {
    let service = Running::start_only(FILE).await;
    let mut client = client(&service).await;
    let hits = |hits: u64, is_negative_hits: bool| {
        let descriptor = RateLimitDescriptor {
            hits_addend: Some(UInt64Value { value: hits }),
            is_negative_hits,
            ..descriptor(&[("remote_address", "10.0.0.2")])
        };
        request(7, &[descriptor])
    };
    assert_eq!(
        codes(&ask(&mut client, hits(10, false)).await.unwrap()),
        (OK, vec![(OK, 0)])
    );
    assert_eq!(
        codes(&ask(&mut client, hits(0, false)).await.unwrap()),
        (OVER, vec![(OVER, 0)])
    );
    assert_eq!(
        codes(&ask(&mut client, hits(4, true)).await.unwrap()),
        (OK, vec![(OK, 4)])
    );
    assert_eq!(
        codes(&ask(&mut client, hits(0, false)).await.unwrap()),
        (OK, vec![(OK, 4)])
    );
    assert_eq!(
        codes(&ask(&mut client, hits(100, true)).await.unwrap()),
        (OK, vec![(OK, 10)])
    );
    service.stop().await;
}

#[tokio::test]
async fn a_request_can_bring_its_limit_along_and_shadow_rules_never_refuse() {
    let service = Running::start_only(FILE).await;
    let mut client = client(&service).await;
    let given = |requests_per_unit: u32, unit: RateLimitUnit| RateLimitDescriptor {
        limit: Some(RateLimitOverride {
            requests_per_unit,
            unit: unit.into(),
        }),
        ..descriptor(&[("tenant", "a")])
    };
    let day = given(2, RateLimitUnit::Day);
    assert_eq!(
        codes(
            &ask(&mut client, request(2, std::slice::from_ref(&day)))
                .await
                .unwrap()
        ),
        (OK, vec![(OK, 0)])
    );
    assert_eq!(
        codes(&ask(&mut client, request(1, &[day])).await.unwrap()),
        (OVER, vec![(OVER, 0)])
    );
    let larger = given(5, RateLimitUnit::Day);
    assert_eq!(
        codes(&ask(&mut client, request(1, &[larger])).await.unwrap()),
        (OK, vec![(OK, 2)])
    );
    let unknown = given(5, RateLimitUnit::Unknown);
    assert_eq!(
        ask(&mut client, request(1, &[unknown]))
            .await
            .unwrap_err()
            .code(),
        Code::InvalidArgument
    );
    let tried = [descriptor(&[("tried", "x")])];
    for remaining in [0, 0] {
        let answer = ask(&mut client, request(3, &tried)).await.unwrap();
        assert_eq!(codes(&answer), (OK, vec![(OK, remaining)]));
    }
    service.stop().await;
}

#[tokio::test]
async fn limits_on_messages_deadlines_and_rights() {
    let closed = format!(
        "{FILE}\n[[token]]\nname = \"ops\"\ntoken_env = \"ADMIN\"\nrights = [\"check\", \"settle\"]\n"
    );
    let service = Running::start_only(&closed).await;
    let mut client = client(&service).await;
    let address = descriptor(&[("remote_address", "10.0.0.3")]);
    let refused = ask(&mut client, request(1, std::slice::from_ref(&address)))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let authorized = |message: RateLimitRequest| {
        let mut asked = Request::new(message);
        let value = format!("Bearer {ADMIN}").parse().unwrap();
        asked.metadata_mut().insert("authorization", value);
        asked
    };
    let many = vec![address.clone(); 5];
    let refused = client
        .should_rate_limit(authorized(request(1, &many)))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let long = descriptor(&[("remote_address", &"x".repeat(70_000))]);
    let refused = client
        .should_rate_limit(authorized(request(1, &[long])))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange);
    let mut asked = authorized(request(1, &[address]));
    asked.set_timeout(Duration::from_secs(30));
    let answer = client.should_rate_limit(asked).await.unwrap().into_inner();
    assert_eq!(codes(&answer), (OK, vec![(OK, 9)]));
    // Rules can be reloaded.
    let changed = closed.replace(
        "match = [\"remote_address\"]\nlimit = \"addresses\"",
        "match = [\"remote_address\"]\nlimit = \"logins\"",
    );
    assert_ne!(changed, closed);
    service.service.reload(&config(&changed)).unwrap();
    let address = descriptor(&[("remote_address", "10.0.0.3")]);
    let answer = client
        .should_rate_limit(authorized(request(1, &[address])))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(codes(&answer), (OK, vec![(OK, 2)]));
    service.stop().await;
}

#[tokio::test]
async fn health_and_reflection_answer() {
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    let service = Running::start_only(FILE).await;
    let address = format!("http://{}", service.address("rls"));
    let channel = Channel::from_shared(address)
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut health = HealthClient::new(channel.clone());
    let check = HealthCheckRequest {
        service: "envoy.service.ratelimit.v3.RateLimitService".to_owned(),
    };
    let serving = health
        .check(check.clone())
        .await
        .unwrap()
        .into_inner()
        .status;
    assert_eq!(serving, 1);
    let asked = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol(check.service.clone())),
    };
    let mut reflection = ServerReflectionClient::new(channel);
    let asked = tokio_stream(asked);
    let mut answers = reflection
        .server_reflection_info(asked)
        .await
        .unwrap()
        .into_inner();
    let answer = answers
        .message()
        .await
        .unwrap()
        .unwrap()
        .message_response
        .unwrap();
    assert!(
        matches!(answer, MessageResponse::FileDescriptorResponse(_)),
        "{answer:?}"
    );
    drop(answers);
    service.service.drain().await;
    let serving = health.check(check).await.unwrap().into_inner().status;
    assert_eq!(serving, 2);
    drop(health);
    service.stop().await;
}

/// A stream of one message.
fn tokio_stream<M>(message: M) -> tonic::codegen::tokio_stream::Once<M> {
    tonic::codegen::tokio_stream::once(message)
}
