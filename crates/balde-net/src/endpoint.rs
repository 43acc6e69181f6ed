//! An endpoint for operators, served on a separate thread: few connections, short answers.

use std::convert::Infallible;
use std::time::Duration;
use std::{io, thread};

use balde::http::ConnectionSlots;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};

use crate::accept::{Serving, accept, shutdown_begun};

/// How long a client may accept no byte of a response.
const WRITE_MAX: Duration = Duration::from_secs(10);

/// How long a connection may be idle.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Serves an endpoint on a separate thread until `shutdown` is true: a health check does not wait for the
/// server's other work, however much that is. Of more than `connections_max` connections, the one
/// that has been idle for the longest time is closed.
pub async fn serve_on_thread<R, F, B>(
    listener: TcpListener,
    connections_max: usize,
    shutdown: watch::Receiver<bool>,
    respond: R,
) where
    R: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data: Send, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    let (ended, has_ended) = oneshot::channel::<Infallible>();
    let thread = thread::Builder::new().name("balde-state".to_owned());
    let started = thread.spawn(move || {
        let _ended_when_dropped = ended;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let listener = listener.into_std()?;
        runtime.block_on(async move {
            let listener = TcpListener::from_std(listener)?;
            serve(listener, connections_max, shutdown, respond).await;
            Ok::<_, io::Error>(())
        })
    });
    match started {
        Ok(thread) => {
            let _always_dropped = has_ended.await;
            if let Ok(Err(error)) = thread.join() {
                tracing::error!(%error, "the state endpoint could not be started");
            }
        }
        Err(error) => tracing::error!(%error, "the state endpoint got no thread"),
    }
}

async fn serve<R, F, B>(
    listener: TcpListener,
    connections_max: usize,
    mut shutdown: watch::Receiver<bool>,
    respond: R,
) where
    R: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data: Send, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    let slots = ConnectionSlots::new(connections_max);
    let shutdown = shutdown_begun(&mut shutdown);
    accept(
        listener,
        shutdown,
        || Duration::ZERO,
        |stream, _| {
            let stream = slots.open(stream, WRITE_MAX);
            let respond = respond.clone();
            let serving: Serving = Box::pin(async move {
                let service = service_fn(|request| {
                    let answer = respond(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let serving = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(IDLE_MAX)
                    // A client that closes its half after a request still gets the response, which
                    // does not take long.
                    .half_close(true)
                    .serve_connection(TokioIo::new(stream), service);
                if let Err(error) = serving.await {
                    tracing::debug!(%error, "a connection to the state endpoint ended with an error");
                }
            });
            std::future::ready(serving)
        },
    )
    .await;
}
