//! A limiter in either store, an axum server behind the layer on a free port, and a client that
//! parses responses strictly.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use balde::http::RateLimitLayer;
use balde::{Clock, ManualClock, OnFailure, REDIS_TIMEOUT_MAX, RateLimiter, RedisStore};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::redis_server::RedisServer;

/// A store for buckets, and how time passes in it.
pub(crate) enum TestStore {
    Memory(ManualClock),
    Redis(RedisServer),
}

impl TestStore {
    /// Both stores. Without a redis-server binary only memory, with a warning.
    pub(crate) fn all() -> Vec<Self> {
        let mut stores = vec![Self::Memory(ManualClock::new())];
        if let Some(server) = RedisServer::start() {
            stores.push(Self::Redis(server));
        }
        stores
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Redis(_) => "redis",
        }
    }

    /// A limiter with its own buckets. Waits until the store has answered once, because connecting
    /// may take longer than the timeout of a call on a busy machine.
    pub(crate) async fn limiter(&self, name: &str, limit: &str) -> RateLimiter {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let builder = RateLimiter::builder().name(name).limit(limit);
        let builder = match self {
            Self::Memory(clock) => builder.clock(Clock::manual(clock)),
            Self::Redis(server) => {
                let count = COUNT.fetch_add(1, Ordering::Relaxed);
                let store = RedisStore::builder()
                    .address(server.url())
                    .prefix(format!("test{count}"))
                    .timeout(REDIS_TIMEOUT_MAX);
                builder.redis(&store.build().unwrap(), OnFailure::Deny)
            }
        };
        let limiter = builder.build().unwrap();
        while limiter.peek("ready").await.is_err() {
            tokio::task::yield_now().await;
        }
        limiter
    }

    /// Lets this much time pass.
    pub(crate) async fn wait(&self, time: Duration) {
        match self {
            Self::Memory(clock) => clock.advance(time),
            Self::Redis(_) => tokio::time::sleep(time).await,
        }
    }
}

/// A server that is stopped when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(app: Router, layer: RateLimitLayer) -> Self {
        let (listener, address) = listener().await;
        let app = app.layer(layer);
        let task = tokio::spawn(async move { balde::http::serve(listener, app).await.unwrap() });
        Self { address, task }
    }

    /// The same without the addresses of the peers.
    pub(crate) async fn start_without_peers(app: Router, layer: RateLimitLayer) -> Self {
        let (listener, address) = listener().await;
        let app = app.layer(layer);
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, task }
    }
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) struct Client(Http<HttpConnector, Empty<Bytes>>);

impl Client {
    pub(crate) fn new() -> Self {
        Self(Http::builder(TokioExecutor::new()).build_http())
    }

    pub(crate) async fn get(&self, server: &Server, path: &str) -> ReceivedResponse {
        self.get_with(server, path, &[]).await
    }

    pub(crate) async fn get_with(
        &self,
        server: &Server,
        path: &str,
        headers: &[(&str, &str)],
    ) -> ReceivedResponse {
        let mut request = Request::get(format!("http://{}{path}", server.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.0.request(request.body(Empty::new()).unwrap()).await;
        let (parts, body) = response.unwrap().into_parts();
        ReceivedResponse {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct ReceivedResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ReceivedResponse {
    /// A field that must appear exactly once and contain digits only.
    pub(crate) fn integer(&self, name: &str) -> u64 {
        self.optional_integer(name)
            .unwrap_or_else(|| panic!("{name} is missing: {self:?}"))
    }

    pub(crate) fn optional_integer(&self, name: &str) -> Option<u64> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?.to_str().unwrap();
        assert!(values.next().is_none(), "{name} appears twice");
        assert!(
            value.bytes().all(|byte| byte.is_ascii_digit()),
            "{name}: {value}"
        );
        Some(value.parse().unwrap())
    }

    /// The members of a structured field's list, with their integer parameters.
    pub(crate) fn list(&self, name: &str) -> Vec<(String, Vec<(String, i64)>)> {
        let values: Vec<&str> = self
            .headers
            .get_all(name)
            .iter()
            .map(|value| value.to_str().unwrap())
            .collect();
        let list: sfv::List = sfv::Parser::new(&values.join(", ")).parse().unwrap();
        list.into_iter()
            .map(|member| {
                let sfv::ListEntry::Item(item) = member else {
                    panic!("{name} holds an inner list");
                };
                let named = item.bare_item.as_string().unwrap().as_str().to_owned();
                let parameters = item.params.iter().map(|(key, value)| {
                    let number = value.as_integer().unwrap();
                    (key.as_str().to_owned(), i64::from(number))
                });
                (named, parameters.collect())
            })
            .collect()
    }

    pub(crate) fn parameter(&self, name: &str, member: &str, parameter: &str) -> i64 {
        let list = self.list(name);
        let (_, parameters) = list
            .iter()
            .find(|(named, _)| named == member)
            .unwrap_or_else(|| panic!("{name} does not contain {member}: {list:?}"));
        let found = parameters.iter().find(|(key, _)| key == parameter);
        found
            .unwrap_or_else(|| panic!("no {parameter} in {list:?}"))
            .1
    }
}
