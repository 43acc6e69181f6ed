//! Problem documents, parsed as clients parse them.

use balde::http::{Problem, ProblemFormat};
use balde::{Decision, RateLimiter};
use serde_json::{Value, json};

fn refused(limit: &str, n: u64) -> Decision {
    let limiter = RateLimiter::new(limit).unwrap();
    let limiter = limiter.blocking();
    limiter.take_up_to("alice", u64::MAX);
    limiter.check_n("alice", n)
}

fn parsed(problem: &Problem) -> Value {
    serde_json::from_str(&problem.body(ProblemFormat::Json)).unwrap()
}

#[test]
fn a_refusal_names_the_policies_and_the_time_to_wait() {
    let (hourly, daily) = (refused("1/h", 1), refused("2/day", 1));
    let passed = RateLimiter::new("5/s").unwrap().blocking().check("alice");
    let parts = [("hourly", &hourly), ("burst", &passed), ("da\"ily", &daily)];
    let problem = Problem::from_decisions(&parts);
    assert_eq!(problem.status(), 429);
    assert_eq!(
        parsed(&problem),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "The quota is used up",
            "status": 429,
            "detail": "The same request can pass in 43200 seconds.",
            "violated-policies": ["hourly", "da\"ily"],
            "retry-after": 43_200,
        })
    );
}

#[test]
fn a_request_that_can_never_pass_has_no_retry_after() {
    let problem = Problem::from_decisions(&[("small", &refused("5/s", 6))]);
    let body = parsed(&problem);
    assert_eq!(problem.status(), 429);
    assert_eq!(body.get("retry-after"), None);
    assert_eq!(
        body["detail"],
        "The request needs more tokens than the limit ever grants at once."
    );
}

#[test]
fn a_request_without_a_usable_key_is_forbidden() {
    let limiter = RateLimiter::new("5/s").unwrap();
    let bad_key = Problem::from_decisions(&[("small", &limiter.blocking().check(""))]);
    for problem in [bad_key, Problem::missing_key()] {
        assert_eq!(problem.status(), 403);
        assert_eq!(
            parsed(&problem),
            json!({
                "type": "about:blank",
                "title": "Forbidden",
                "status": 403,
                "detail": "The sender of the request could not be identified.",
            })
        );
    }
}

#[test]
fn a_service_that_does_not_know_its_peers_is_at_fault() {
    let problem = Problem::missing_peer();
    assert_eq!(problem.status(), 500);
    let body = parsed(&problem);
    let detail = body["detail"].as_str().unwrap();
    let names_the_fix = detail.contains("PeerAddr");
    assert_eq!(names_the_fix, cfg!(debug_assertions), "{detail}");
}

#[test]
fn xml_documents_are_escaped() {
    let problem = Problem::from_decisions(&[("a<b>&\u{1}\"c\"", &refused("1/s", 1))])
        .with_type("https://example.com/?a=1&b=2")
        .with_title("Später")
        .with_detail("]]>");
    assert_eq!(
        problem.body(ProblemFormat::Xml),
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <problem xmlns=\"urn:ietf:rfc:7807\">\
         <type>https://example.com/?a=1&amp;b=2</type><title>Später</title><status>429</status>\
         <detail>]]&gt;</detail>\
         <violated-policies><i>a&lt;b&gt;&amp;\u{fffd}\"c\"</i></violated-policies>\
         <retry-after>1</retry-after></problem>\n"
    );
    assert_eq!(ProblemFormat::Xml.content_type(), "application/problem+xml");
    assert_eq!(
        ProblemFormat::Json.content_type(),
        "application/problem+json"
    );
}

#[cfg(feature = "redis")]
#[test]
fn an_unavailable_store_is_reported_as_503() {
    use balde::http::HeaderOptions;
    use balde::{OnFailure, RedisStore, Share};

    // A port that was free a moment ago: no server listens there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let store = RedisStore::builder().address(address).build().unwrap();
    let check = |on_failure| {
        let builder = RateLimiter::builder()
            .limit("10/s")
            .redis(&store, on_failure);
        builder.build().unwrap().blocking().check("alice")
    };
    let written = |decision: &Decision| {
        let mut headers = http::HeaderMap::new();
        let now = std::time::SystemTime::UNIX_EPOCH;
        HeaderOptions::default().write(&mut headers, &[("shared", decision)], now);
        headers
    };

    let denied = check(OnFailure::Deny);
    let problem = Problem::from_decisions(&[("shared", &denied)]);
    assert_eq!(problem.status(), 503);
    let body = parsed(&problem);
    assert_eq!(body["violated-policies"], json!(["shared"]));
    assert_eq!(body["retry-after"], 1);
    let headers = written(&denied);
    assert_eq!(headers["retry-after"], "1");
    assert_eq!(headers["ratelimit-policy"], "\"shared\";q=10;w=1");
    assert_eq!(
        headers.len(),
        2,
        "there is no bucket to report: {headers:?}"
    );

    let headers = written(&check(OnFailure::Allow));
    assert_eq!(
        headers.len(),
        1,
        "there is no bucket to report: {headers:?}"
    );

    // The local share has a bucket of its own.
    let share = Share::percent(50);
    let headers = written(&check(OnFailure::Local { share }));
    assert_eq!(headers["ratelimit-policy"], "\"shared\";q=5;w=1");
    assert_eq!(headers["x-ratelimit-remaining"], "4");
}
