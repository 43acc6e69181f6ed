//! A bare reverse proxy of Pingora, on one thread.
//!
//! `pingora-proxy LISTEN UPSTREAM`, for example `pingora-proxy 127.0.0.1:19708 127.0.0.1:19700`

use async_trait::async_trait;
use pingora_core::Result;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_http::RequestHeader;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Proxy {
    upstream: String,
}

#[async_trait]
impl ProxyHttp for Proxy {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, _: &mut ()) -> Result<Box<HttpPeer>> {
        let peer = HttpPeer::new(self.upstream.as_str(), false, String::new());
        Ok(Box::new(peer))
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        _: &mut (),
    ) -> Result<()> {
        let address = session.client_addr().and_then(|address| address.as_inet());
        if let Some(address) = address {
            request.append_header("x-forwarded-for", address.ip().to_string())?;
        }
        Ok(())
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: pingora-proxy LISTEN UPSTREAM";
    let listen = arguments.next().ok_or(usage)?;
    let upstream = arguments.next().ok_or(usage)?;
    let conf = ServerConf {
        threads: 1,
        upstream_keepalive_pool_size: 256,
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, Proxy { upstream });
    service.add_tcp(&listen);
    server.add_service(service);
    server.run_forever();
}
