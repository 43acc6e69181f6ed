//! The layer around services other than axum.

use std::convert::Infallible;
use std::net::Ipv4Addr;

use axum::body::Body;
use balde::RateLimiter;
use balde::http::identity::{Identity, PeerAddr};
use balde::http::{LimitRule, RateLimitLayer};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tonic::Code;
use tonic::transport::Endpoint;
use tonic::transport::server::TcpConnectInfo;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::{Layer, service_fn};

#[tokio::test]
async fn plain_hyper_is_limited_by_the_address_from_its_accept_loop() {
    let limiter = RateLimiter::new("2/h").unwrap();
    let layer = RateLimitLayer::new(limiter);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        loop {
            let (stream, peer) = listener.accept().await.unwrap();
            let limited = layer.layer(service_fn(hello));
            let service =
                tower::util::MapRequest::new(limited, move |mut request: Request<Incoming>| {
                    request.extensions_mut().insert(PeerAddr(peer));
                    request
                });
            let service = TowerToHyperService::new(service);
            let serving = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(serving);
        }
    });
    let client = Client::builder(TokioExecutor::new()).build_http();
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let request = Request::get(format!("http://{address}/"));
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let response = client.request(request).await.unwrap();
        statuses.push(response.status());
        response.into_body().collect().await.unwrap();
    }
    let [ok, refused] = [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS];
    assert_eq!(statuses, [ok, ok, refused]);
    server.abort();
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello")))
}

#[tokio::test]
async fn tonic_is_limited_and_its_clients_see_resource_exhausted() {
    let limiter = RateLimiter::new("2/h").unwrap();
    let identity = Identity::default().peer_from(|extensions| {
        let info = extensions.get::<TcpConnectInfo>()?;
        info.remote_addr().map(|address| address.ip())
    });
    let layer = RateLimitLayer::new(LimitRule::per_caller(limiter)).identity(identity);
    let (_reporter, health) = tonic_health::server::health_reporter();
    let incoming = tonic::transport::server::TcpIncoming::bind((Ipv4Addr::LOCALHOST, 0).into());
    let incoming = incoming.unwrap();
    let address = incoming.local_addr().unwrap();
    let server = tonic::transport::Server::builder().layer(layer);
    let server = tokio::spawn(async move {
        let mut server = server;
        server
            .add_service(health)
            .serve_with_incoming(incoming)
            .await
    });

    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(channel.connect().await.unwrap());
    let request = || HealthCheckRequest {
        service: String::new(),
    };
    for _ in 0..2 {
        let answer = client.check(request()).await.unwrap();
        assert!(answer.metadata().contains_key("ratelimit"));
    }
    let refused = client.check(request()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.metadata().contains_key("retry-after"));
    server.abort();
}

/// The layer and its service satisfy the bounds of tower's stacks.
#[test]
fn the_layer_and_its_service_fit_into_tower_stacks() {
    fn is_fit<T: Clone + Send + Sync + 'static>(_: &T) {}
    let layer = RateLimitLayer::new(RateLimiter::new("1/s").unwrap());
    is_fit(&layer);
    is_fit(&layer.layer(axum::Router::<()>::new()));
    let boxed = tower::util::BoxCloneSyncService::<Request<Body>, _, _>::new(
        layer.layer(axum::Router::new()),
    );
    is_fit(&boxed);
}
