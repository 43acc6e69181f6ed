//! An upstream for one test: it answers by the path of a request, and keeps what it received.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

/// What a backend received, without the bodies of `/sink`.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
}

pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    pub(crate) connections: Arc<AtomicUsize>,
    /// Requests of `/gate` wait for a permit.
    pub(crate) gate: Arc<Semaphore>,
    task: JoinHandle<()>,
}

type Body = BoxBody<Bytes, Infallible>;

impl Backend {
    pub(crate) async fn start() -> Self {
        Self::start_on("127.0.0.1:0".parse().unwrap()).await
    }

    pub(crate) async fn start_on(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let gate = Arc::new(Semaphore::new(0));
        let (kept, counted, gated) = (received.clone(), connections.clone(), gate.clone());
        let task = tokio::spawn(async move {
            // Its connections end with it.
            let mut serving = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let (kept, gated) = (kept.clone(), gated.clone());
                serving.spawn(async move {
                    let service = service_fn(|request| {
                        let (kept, gated) = (kept.clone(), gated.clone());
                        async move { Ok::<_, Infallible>(answer(request, &kept, &gated).await) }
                    });
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let serving =
                        builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
                    // Tests break connections on purpose.
                    let _ = serving.await;
                });
            }
        });
        Self {
            address,
            received,
            connections,
            gate,
            task,
        }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().clone()
    }

    pub(crate) fn only(&self) -> Received {
        let received = self.received();
        assert_eq!(received.len(), 1, "{received:?}");
        received[0].clone()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed()
}

async fn answer(
    mut request: Request<Incoming>,
    kept: &Mutex<Vec<Received>>,
    gate: &Semaphore,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    if path == "/ws" {
        let upgrade = hyper::upgrade::on(&mut request);
        let (parts, _) = request.into_parts();
        kept.lock().push(Received {
            parts,
            body: Bytes::new(),
        });
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut buffer = [0; 64];
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                stream.write_all(&buffer[..read]).await.unwrap();
            }
        });
        return Response::builder()
            .status(101)
            .header("connection", "upgrade")
            .header("upgrade", "echo")
            .body(full(""))
            .unwrap();
    }
    let (parts, body) = request.into_parts();
    if path == "/sink" {
        // Counts without keeping.
        let mut body = body;
        let mut length = 0;
        while let Some(Ok(frame)) = body.frame().await {
            length += frame.data_ref().map_or(0, Bytes::len);
        }
        return Response::new(full(length.to_string()));
    }
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return Response::new(full("broken")),
    };
    kept.lock().push(Received {
        parts,
        body: body.clone(),
    });
    if path == "/gate" {
        gate.acquire().await.unwrap().forget();
    }
    if let Some(status) = path.strip_prefix("/status/") {
        let mut response = Response::new(full("as asked"));
        *response.status_mut() = StatusCode::from_bytes(status.as_bytes()).unwrap();
        return response;
    }
    if let Some(length) = path.strip_prefix("/bytes/") {
        return Response::new(full(vec![b'x'; length.parse().unwrap()]));
    }
    if path == "/hang" {
        std::future::pending::<()>().await;
    }
    if path == "/headers" {
        return Response::builder()
            .header("connection", "x-hop")
            .header("x-hop", "1")
            .header("keep-alive", "timeout=5")
            .header("x-end", "2")
            .body(full("ok"))
            .unwrap();
    }
    Response::new(full(body))
}
