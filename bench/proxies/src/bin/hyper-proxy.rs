//! A bare reverse proxy of hyper's server and hyper-util's pooled client, on one thread.
//!
//! `hyper-proxy LISTEN UPSTREAM`, for example `hyper-proxy 127.0.0.1:19707 127.0.0.1:19700`

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpListener;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: hyper-proxy LISTEN UPSTREAM";
    let listen = arguments.next().ok_or(usage)?;
    let upstream = arguments.next().ok_or(usage)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(listen, upstream))
}

async fn serve(listen: String, upstream: String) -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind(listen).await?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<_, Incoming> = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .set_host(false)
        .build(connector);
    loop {
        let (stream, peer) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (client, upstream) = (client.clone(), upstream.clone());
        tokio::spawn(async move {
            let service = service_fn(|mut request: Request<Incoming>| {
                let path = request.uri().path_and_query();
                let path = path.map_or("/", |path| path.as_str());
                let uri: Uri = format!("http://{upstream}{path}").parse().expect("a URI");
                *request.uri_mut() = uri;
                request.headers_mut().remove(CONNECTION);
                let address = HeaderValue::try_from(peer.ip().to_string()).expect("an address");
                request.headers_mut().append(X_FORWARDED_FOR, address);
                let responding = client.request(request);
                async {
                    let mut response = responding.await?;
                    response.headers_mut().remove(CONNECTION);
                    Ok::<_, hyper_util::client::legacy::Error>(response)
                }
            });
            let serving = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service);
            let _ended_by_client = serving.await;
        });
    }
}
