//! From a request to its route.

use std::sync::Arc;

use http::Request;
use http::header::HOST;

use crate::body::RequestBody;
use crate::config::{RouteConfig, ServerConfig};
use crate::dict::Dict;
use crate::limits::Limits;
use crate::metrics::{RouteMetrics, UpstreamMetrics};
use crate::upstream::Upstream;

/// What one version of the configuration file says about requests.
#[derive(Debug)]
pub(crate) struct Routing {
    pub(crate) server: ServerConfig,
    pub(crate) routes: Vec<Route>,
    pub(crate) limits: Option<Arc<Limits>>,
    pub(crate) dict: Option<Arc<Dict>>,
}

/// A route with everything that its requests need.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) config: RouteConfig,
    pub(crate) upstream: Arc<Upstream<RequestBody>>,
    pub(crate) metrics: Arc<RouteMetrics>,
    pub(crate) upstream_metrics: Arc<UpstreamMetrics>,
}

impl Routing {
    /// Orders the routes: the longest path first, those of one host before those of any.
    pub(crate) fn sort(routes: &mut [Route]) {
        routes.sort_by_key(|route| {
            let config = &route.config;
            let rank = (config.host.is_some(), config.path.len());
            std::cmp::Reverse((rank, !config.methods.is_empty()))
        });
    }

    pub(crate) fn find<B>(&self, request: &Request<B>) -> Option<&Route> {
        let path = request.uri().path();
        self.routes.iter().find(|route| {
            let config = &route.config;
            is_below(&config.path, path)
                && (config.methods.is_empty() || config.methods.contains(request.method()))
                && config
                    .host
                    .as_deref()
                    .is_none_or(|host| host_of(request).is_some_and(|own| is_host(own, host)))
        })
    }
}

/// Whether a path is the prefix, or below it.
fn is_below(prefix: &str, path: &str) -> bool {
    let Some(rest) = path.strip_prefix(prefix) else {
        return false;
    };
    rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/')
}

fn host_of<B>(request: &Request<B>) -> Option<&str> {
    let of_uri = request.uri().authority().map(http::uri::Authority::as_str);
    of_uri.or_else(|| request.headers().get(HOST)?.to_str().ok())
}

/// Whether a host with an optional port is this host.
fn is_host(own: &str, host: &str) -> bool {
    let name = match own.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => own,
    };
    name.eq_ignore_ascii_case(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_at_a_slash() {
        for (prefix, path, expected) in [
            ("/", "/anything", true),
            ("/shop", "/shop", true),
            ("/shop", "/shop/1", true),
            ("/shop", "/shopping", false),
            ("/shop/", "/shop", false),
            ("/shop/", "/shop/1", true),
        ] {
            assert_eq!(is_below(prefix, path), expected, "{prefix} {path}");
        }
    }

    #[test]
    fn the_port_of_a_host_does_not_matter() {
        assert!(is_host("Shop.example:8443", "shop.example"));
        assert!(is_host("shop.example", "shop.example"));
        assert!(!is_host("shop.example.evil", "shop.example"));
        assert!(is_host("[::1]:80", "[::1]"));
    }
}
