//! Properties that hold for arbitrary bytes, shared by the fuzz targets and an ordinary test.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use balde::http::headers::read;
use balde::http::{ForwardedHeader, HeaderOptions, Identity, PeerAddr, Problem};
use balde::store::redis::script::{self, LimitBlob, Step};
use balde::{KEY_BYTES_MAX, Limit, Options, RateLimiter, Reason};
use balde_core::Command;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue};

/// The maximum number of limits that are read from structured fields.
const LIMITS_MAX: usize = 64;

/// The longest duration that is read, about a hundred years.
const DURATION_MAX: Duration = Duration::from_secs(36_500 * 86_400);

/// The body of a target.
pub(crate) fn body(target: &str) -> fn(&[u8]) {
    match target {
        "identity" => identity,
        "keys" => keys,
        "fields" => fields,
        "options" => options,
        "replies" => replies,
        _ => panic!("there is no target {target}"),
    }
}

/// What a Redis server answers, and what somebody else may have stored under a key: an error, or numbers that are
/// possible under the limit.
fn replies(data: &[u8]) {
    let limits = ["10/s burst 20", "5/min window", "7/min burst 30 stepwise"];
    let limits = limits.map(|text| text.parse::<Limit>().expect("a limit"));
    let step = |limit: &Limit, command| Step::new(*limit, LimitBlob::new(limit), command);
    let (count, reply) = data
        .split_first()
        .map_or((0, data), |(first, rest)| (*first, rest));
    for limit in &limits {
        for command in [
            Command::Peek,
            Command::Take { n: 1 },
            Command::TakeUpTo { n: 7 },
            Command::Charge { n: 3 },
        ] {
            let steps = vec![step(limit, command); usize::from(count % 4)];
            if let Ok(reply) = script::decode(&steps, reply) {
                assert_eq!(reply.decisions.len(), steps.len());
                for decision in reply.decisions {
                    assert!(decision.remaining() <= limit.capacity());
                    let _wait = decision.wait();
                }
            }
        }
    }
    if let Ok(stored) = script::decode_stored(data) {
        let _limit = stored.limit.limit();
    }
    if let Some((limit, state, _held)) = script::decode_bucket(data, 1_800_000_000_000_000) {
        let decision = limit.apply(state, Command::Peek, 1_800_000_000_000_000);
        assert!(decision.remaining() <= limit.capacity());
    }
}

/// Header lines: they never change the key of an untrusted peer, and behind a trusted proxy nothing
/// to the left of what the proxy appended is used.
fn identity(data: &[u8]) {
    let names =
        ["x-forwarded-for", "forwarded", "x-api-key", "x-user-id"].map(HeaderName::from_static);
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n').take(32) {
        let (name, value) = line
            .split_first()
            .map_or((0, line), |(first, rest)| (*first, rest));
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(&names[usize::from(name) % names.len()], value);
        }
    }
    for forwarded in [
        ForwardedHeader::XForwardedFor,
        ForwardedHeader::Rfc7239,
        ForwardedHeader::Ignored,
    ] {
        let identity = Identity::new()
            .trusted_proxies(["10.0.0.0/8", "fd00::/8"])
            .expect("networks")
            .forwarded_header(forwarded);
        let with_headers = identity
            .clone()
            .api_key_header(names[2].clone())
            .user_id_header(names[3].clone());
        let untrusted = from([203, 0, 113, 7]);
        let key = with_headers
            .key(&headers, &untrusted)
            .expect("it has an address");
        assert_eq!(
            key.as_ref(),
            b"ip:203.0.113.7",
            "the headers of an untrusted peer are ignored"
        );

        let proxy = from([10, 0, 0, 1]);
        for identity in [&identity, &with_headers] {
            if let Ok(key) = identity.key(&headers, &proxy) {
                assert!((1..=KEY_BYTES_MAX).contains(&key.as_ref().len()));
            }
        }
        // What the proxy itself appends decides, whatever the headers contained before.
        let mut added = headers.clone();
        added.append(
            &names[0],
            HeaderValue::from_static("198.51.100.4, 10.2.2.2"),
        );
        added.append(
            &names[1],
            HeaderValue::from_static("for=198.51.100.4, for=10.2.2.2"),
        );
        if forwarded != ForwardedHeader::Ignored {
            let key = identity
                .key(&added, &proxy)
                .expect("the proxy appended an address");
            assert_eq!(key.as_ref(), b"ip:198.51.100.4");
        }
    }
}

/// Keys: each has its own bucket, or is rejected as a bad key.
fn keys(data: &[u8]) {
    static LIMITER: OnceLock<RateLimiter> = OnceLock::new();
    let limiter = LIMITER.get_or_init(|| {
        let builder = RateLimiter::builder().limit("3/week").keys_max(64);
        builder.build().expect("a limit")
    });
    let limiter = limiter.blocking();
    for key in data.split(|byte| *byte == b'\n').take(8) {
        let is_usable = (1..=KEY_BYTES_MAX).contains(&key.len());
        let decision = limiter.check(key);
        assert_eq!(matches!(decision.reason(), Reason::BadKey(_)), !is_usable);
        assert_eq!(limiter.peek(key).is_ok(), is_usable);
        assert!(decision.remaining() <= 3);
        let mut headers = HeaderMap::new();
        let name = String::from_utf8_lossy(key);
        let parts = [(&*name, &decision)];
        HeaderOptions::default().write(&mut headers, &parts, now());
        sfv::Parser::new(headers["ratelimit-policy"].as_bytes())
            .parse::<sfv::List>()
            .expect("what is written can be read");
        let problem = Problem::from_decisions(&parts);
        serde_json::from_str::<serde_json::Value>(&problem.to_json()).expect("JSON");
        assert!(
            problem
                .to_xml()
                .chars()
                .all(|one| one >= ' ' || "\n\t".contains(one))
        );
    }
}

/// Header fields of a response: what is read is bounded and can be added to any clock.
fn fields(data: &[u8]) {
    let names = [
        "retry-after",
        "ratelimit",
        "ratelimit-policy",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ];
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n').take(64) {
        let (name, value) = line
            .split_first()
            .map_or((0, line), |(first, rest)| (*first, rest));
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(names[usize::from(name) % names.len()], value);
        }
    }
    let reported = read(&headers, now());
    assert!(reported.limits.len() <= LIMITS_MAX + 1);
    let times = reported
        .limits
        .iter()
        .flat_map(|one| [one.window, one.reset]);
    for time in times.chain([reported.retry_after]).flatten() {
        assert!(time <= DURATION_MAX);
        assert!(Instant::now().checked_add(time).is_some());
    }
    assert_eq!(read(&headers, now()), reported);
}

/// Options files: accepted, or rejected with messages that show no password.
fn options(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let secret = "hunter2hunter2";
    let whole = format!("{text}\n[redis]\npassword = \"{secret}\"\n");
    for text in [text, &whole] {
        match Options::parse_with(text, "fuzz.toml", |_| None) {
            Ok(options) => assert!(options.names().count() > 0),
            Err(error) => {
                assert!((1..=100).contains(&error.diagnostics().len()));
                let shown = error.to_string();
                let is_ours = data
                    .windows(secret.len())
                    .any(|part| part == secret.as_bytes());
                assert!(is_ours || !shown.contains(secret), "{shown}");
            }
        }
    }
}

fn from(address: [u8; 4]) -> Extensions {
    let mut extensions = Extensions::new();
    extensions.insert(PeerAddr((IpAddr::from(address), 1).into()));
    extensions
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}
