//! A layer that takes one token of each caller does so in registers, where it can. It gives the same
//! responses as the general path to the same requests at the same times, for all limits, callers,
//! responses and header options.

use std::convert::Infallible;
use std::future::ready;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use balde::http::headers::{HeaderOptions, ResetFormat};
use balde::http::{ApiKey, Identity, LimitRule, OnMissingKey, PeerAddr, RateLimitLayer};
use balde::{Clock, Limit, ManualClock, RateLimiter};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use proptest::prelude::*;
use tower::{Layer, Service, service_fn};

#[derive(Clone, Copy, Debug)]
enum Peer {
    Axum(u8),
    Extension(u8),
    /// The IPv4-mapped address of one of the hosts above.
    Mapped(u8),
    V6(u8),
    Unspecified,
    Absent,
}

#[derive(Clone, Debug)]
struct Call {
    pause_us: u64,
    peer: Peer,
    has_key: bool,
    /// Header fields of the service's response; some have our names, some are repeated.
    own: Vec<(usize, u8)>,
    changes_limit: bool,
}

const OWN: [&str; 12] = [
    "content-type",
    "content-length",
    "set-cookie",
    "x-ratelimit-remaining",
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "x-a",
    "x-b",
    "x-c",
    "x-d",
    "x-e",
];

fn any_call() -> impl Strategy<Value = Call> {
    let peer = prop_oneof![
        4 => (0..3_u8).prop_map(Peer::Axum),
        2 => (0..3_u8).prop_map(Peer::Extension),
        1 => (0..3_u8).prop_map(Peer::Mapped),
        1 => (0..3_u8).prop_map(Peer::V6),
        1 => Just(Peer::Unspecified),
        1 => Just(Peer::Absent),
    ];
    let own = prop::collection::vec((0..OWN.len(), any::<u8>()), 0..16);
    let rarely = prop::bool::weighted(0.05);
    (
        0..3_000_000_u64,
        peer,
        prop::bool::weighted(0.2),
        own,
        rarely,
    )
        .prop_map(|(pause_us, peer, has_key, own, changes_limit)| Call {
            pause_us,
            peer,
            has_key,
            own,
            changes_limit,
        })
}

fn any_limit() -> impl Strategy<Value = Limit> {
    let numbers = (1..=9_u64, 1..=900_000_u64, 1..=8_u64, 0..3_u8);
    numbers.prop_filter_map("must be exact", |(tokens, period_us, capacity, kind)| {
        let period = Duration::from_micros(period_us * 13);
        let bucket = Limit::bucket_of(capacity, tokens, period);
        match kind {
            // Limiters refuse shorter windows.
            0 => Limit::window(tokens, period.max(Duration::from_secs(1))).ok(),
            1 => bucket.ok(),
            _ => bucket.ok().map(Limit::stepwise),
        }
    })
}

fn any_options() -> impl Strategy<Value = HeaderOptions> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(has_x, has_ietf, is_unix)| {
        let options = HeaderOptions::default();
        // The two paths would read the time of day at different moments.
        let reset = if is_unix && !has_x {
            ResetFormat::UnixTime
        } else {
            ResetFormat::Seconds
        };
        let options = options.reset(reset);
        let options = if has_x {
            options
        } else {
            options.without_x_fields()
        };
        if has_ietf {
            options
        } else {
            options.without_ietf_fields()
        }
    })
}

fn request(call: &Call) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    let extensions = request.extensions_mut();
    let v4 = |host: u8| Ipv4Addr::new(203, 0, 113, host * 50);
    let address = |ip: IpAddr| SocketAddr::new(ip, 4711);
    match call.peer {
        Peer::Axum(host) => drop(extensions.insert(ConnectInfo(address(v4(host).into())))),
        Peer::Extension(host) => drop(extensions.insert(PeerAddr(address(v4(host).into())))),
        Peer::Mapped(host) => {
            let mapped = v4(host).to_ipv6_mapped();
            extensions.insert(PeerAddr(address(mapped.into())));
        }
        Peer::V6(host) => {
            let ip = Ipv6Addr::new(0x2001, 0xdb8, u16::from(host), 0, 1, 2, 3, 4);
            extensions.insert(PeerAddr(address(ip.into())));
        }
        Peer::Unspecified => {
            extensions.insert(ConnectInfo(address(Ipv4Addr::UNSPECIFIED.into())));
        }
        Peer::Absent => {}
    }
    if call.has_key {
        extensions.insert(ApiKey("a key".to_owned()));
    }
    request
}

/// A whole response, with its fields sorted by name.
type Seen = (StatusCode, Vec<(String, Vec<u8>)>, Vec<u8>);

/// The header fields of the next response.
type Own = Arc<Mutex<Vec<(usize, u8)>>>;

fn service(layer: &RateLimitLayer, own: &Own) -> impl FnMut(&Call) -> Seen + use<> {
    let own = Arc::clone(own);
    let mut service = layer.layer(service_fn(move |_: Request<Body>| {
        let mut response = Response::new(Body::from("done"));
        for (name, value) in &*own.lock().unwrap() {
            let value = HeaderValue::from(u16::from(*value));
            let name = HeaderName::from_static(OWN[*name]);
            response.headers_mut().append(name, value);
        }
        ready(Ok::<_, Infallible>(response))
    }));
    move |call| {
        let response = now(service.call(request(call))).unwrap();
        let (parts, body) = response.into_parts();
        let body = now(body.collect()).unwrap().to_bytes().to_vec();
        (parts.status, listed(&parts.headers), body)
    }
}

fn listed(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let mut listed: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .collect();
    // Fields of one name keep their order.
    listed.sort_by(|(a, _), (b, _)| a.cmp(b));
    listed
}

fn now<F: Future>(future: F) -> F::Output {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).as_mut().poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("nothing in memory has to wait"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_fast_path_responds_as_the_general_path_does(
        limit in any_limit(),
        other_limit in any_limit(),
        options in any_options(),
        trusts in any::<bool>(),
        is_shared in any::<bool>(),
        on_missing_key in prop_oneof![
            Just(OnMissingKey::Deny), Just(OnMissingKey::Allow), Just(OnMissingKey::Share)
        ],
        calls in prop::collection::vec(any_call(), 1..40),
    ) {
        let clock = ManualClock::at_us(1_700_000_000_000_000);
        let limiter = || {
            let builder = RateLimiter::builder().name("of \"all\"").limit(limit);
            builder.clock(Clock::manual(&clock)).build().unwrap()
        };
        let limiters = [limiter(), limiter()];
        let layer = |limiter: &RateLimiter, is_general: bool| {
            let rule = if is_shared {
                LimitRule::global(limiter.clone())
            } else {
                LimitRule::per_caller(limiter.clone())
            };
            // A cost that changes nothing, but needs the general path.
            let rule = if is_general { rule.cost(|_| 1) } else { rule };
            let identity = Identity::new();
            let identity = if trusts {
                identity.trusted_proxies(["203.0.113.50"]).unwrap()
            } else {
                identity
            };
            let layer = RateLimitLayer::new(rule).headers(options).identity(identity);
            layer.on_missing_key(on_missing_key)
        };
        let own = Own::default();
        let mut fast = service(&layer(&limiters[0], false), &own);
        let mut general = service(&layer(&limiters[1], true), &own);
        for call in &calls {
            clock.advance(Duration::from_micros(call.pause_us));
            if call.changes_limit {
                for limiter in &limiters {
                    limiter.set_limit(other_limit).unwrap();
                }
            }
            own.lock().unwrap().clone_from(&call.own);
            prop_assert_eq!(fast(call), general(call), "{:?}", call);
        }
        for key in ["ip:203.0.113.0", "ip:203.0.113.50", "ip:203.0.113.100", "*", "-"] {
            let levels = limiters.each_ref().map(|one| one.blocking().peek(key).unwrap().level());
            prop_assert_eq!(levels[0], levels[1], "{}", key);
        }
    }
}
