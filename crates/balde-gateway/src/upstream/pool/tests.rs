use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::{BodyExt as _, Full};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use tokio::net::TcpListener;

use super::*;
use crate::config::Config;
use crate::upstream::Upstream;

type Body = Full<Bytes>;

/// An upstream whose requests wait for permits, and how many connections it has accepted.
async fn start(settings: &str) -> (Upstream<Body>, Arc<Semaphore>, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (gate, accepted) = (Arc::new(Semaphore::new(0)), Arc::default());
    let (gated, counted) = (Arc::clone(&gate), Arc::clone(&accepted));
    tokio::spawn(async move {
        let counted: Arc<AtomicUsize> = counted;
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            let gated = Arc::clone(&gated);
            let service = service_fn(move |_| {
                let gated = Arc::clone(&gated);
                async move {
                    gated.acquire().await.unwrap().forget();
                    Ok::<_, Infallible>(Response::new(Body::from("answer")))
                }
            });
            let serving = server::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(serving);
        }
    });
    let text = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"one\"\n\
         url = \"http://{address}\"\n{settings}\n[[route]]\npath = \"/\"\nupstream = \"one\"\n"
    );
    let config = Config::parse(&text, "test.toml", Path::new(""), |_| None).unwrap();
    let upstream = Upstream::new(
        config.upstreams[0].clone(),
        config.upstreams[0].connections_max,
    )
    .unwrap();
    (upstream, gate, accepted)
}

fn request() -> Request<Body> {
    Request::new(Body::default())
}

async fn text_of(response: Result<Response<Incoming>, SendError>) -> Bytes {
    let body = response.unwrap().into_body();
    body.collect().await.unwrap().to_bytes()
}

fn unused(upstream: &Upstream<Body>) -> usize {
    upstream.pool.unused.lock().http1.len()
}

#[tokio::test]
async fn a_request_waits_for_the_connection_of_another() {
    let (upstream, gate, accepted) = start("connections_max = 1").await;
    let sending = Sending::default();
    let mut asked = Some(request());
    let mut first = pin!(upstream.send(&mut asked, &sending));
    let of_second = Sending::default();
    let mut asked_again = Some(request());
    let mut second = pin!(upstream.send(&mut asked_again, &of_second));
    tokio::select! {
        biased;
        _ = &mut first => panic!("the gate is closed"),
        () = async { while accepted.load(Ordering::SeqCst) == 0 { tokio::task::yield_now().await } } => {}
    }
    let is_pending = poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx).is_pending())).await;
    assert!(is_pending, "there is one connection, and it is in use");
    gate.add_permits(2);
    assert_eq!(text_of(first.await).await, "answer");
    assert_eq!(text_of(second.await).await, "answer");
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
    assert_eq!(unused(&upstream), 1);
}

#[tokio::test]
async fn a_request_that_gets_no_connection_in_time_was_not_sent() {
    let (upstream, _gate, accepted) = start("connections_max = 1").await;
    let sending = Sending::default();
    let mut asked = Some(request());
    let mut first = pin!(upstream.send(&mut asked, &sending));
    tokio::select! {
        biased;
        _ = &mut first => panic!("the gate is closed"),
        () = async { while accepted.load(Ordering::SeqCst) == 0 { tokio::task::yield_now().await } } => {}
    }
    tokio::time::pause();
    let sent = upstream
        .send(&mut Some(request()), &Sending::default())
        .await;
    assert!(
        matches!(sent, Err(SendError::NotSent(ConnectError::TooMany))),
        "{sent:?}"
    );
    let sent = first.await;
    assert!(matches!(sent, Err(SendError::Timeout)), "{sent:?}");
    assert_eq!(unused(&upstream), 0, "what did not answer is closed");
}

#[tokio::test]
async fn an_unused_connection_is_closed_after_a_while() {
    let (upstream, gate, accepted) = start("").await;
    let idle_timeout = upstream.config().idle_timeout;
    gate.add_permits(2);
    text_of(
        upstream
            .send(&mut Some(request()), &Sending::default())
            .await,
    )
    .await;
    assert_eq!(unused(&upstream), 1);
    tokio::time::pause();
    tokio::time::advance(idle_timeout / 2).await;
    tokio::task::yield_now().await;
    assert_eq!(unused(&upstream), 1);
    tokio::time::advance(idle_timeout / 2 + 2 * CHECK_INTERVAL_MAX).await;
    sleep(CHECK_INTERVAL_MAX).await;
    assert_eq!(unused(&upstream), 0);
    assert!(!upstream.pool.unused.lock().is_checked, "nothing is left");
    tokio::time::resume();
    text_of(
        upstream
            .send(&mut Some(request()), &Sending::default())
            .await,
    )
    .await;
    assert_eq!(accepted.load(Ordering::SeqCst), 2);
}
