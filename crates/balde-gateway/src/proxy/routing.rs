//! From a request to its route.

use std::sync::Arc;

use http::header::HOST;
use http::{Method, Request};

use super::proxy_fields::ProxyFields;
use super::target::Target;
use crate::body::RequestBody;
use crate::config::{PathsConfig, RouteConfig, ServerConfig};
use crate::dict::Dict;
use crate::host;
use crate::limits::Limits;
use crate::metrics::{RouteMetrics, UpstreamMetrics};
use crate::upstream::Upstream;

/// What one version of the configuration file says about requests.
#[derive(Debug)]
pub(crate) struct Routing {
    pub(crate) server: ServerConfig,
    pub(crate) paths: PathsConfig,
    pub(crate) proxy_fields: ProxyFields,
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
            let methods = &config.methods;
            let names_head = methods.contains(&Method::HEAD);
            std::cmp::Reverse((rank, !methods.is_empty(), names_head))
        });
    }

    /// The upstreams of all routes, each once.
    pub(crate) fn upstreams(&self) -> Vec<Arc<Upstream<RequestBody>>> {
        let mut upstreams: Vec<Arc<Upstream<RequestBody>>> = Vec::new();
        for route in &self.routes {
            if !upstreams
                .iter()
                .any(|one| Arc::ptr_eq(one, &route.upstream))
            {
                upstreams.push(Arc::clone(&route.upstream));
            }
        }
        upstreams
    }

    /// The route of a request whose host and path are in their one spelling.
    pub(super) fn find<B>(&self, request: &Request<B>, target: &Target) -> Option<&Route> {
        let path = target.path(request.uri());
        // Few configurations have routes by host.
        let is_host = |of_route: &str| {
            let own = request.headers().get(HOST);
            let own = own.and_then(|own| own.to_str().ok()).map(host::name_of);
            own == Some(of_route)
        };
        self.routes.iter().find(|route| {
            let config = &route.config;
            is_below(&config.path, path)
                && is_method(&config.methods, request.method())
                && config.host.as_deref().is_none_or(is_host)
        })
    }
}

/// Whether a route has a method; `HEAD` is routed as `GET` is, unless a route names it.
fn is_method(methods: &[Method], method: &Method) -> bool {
    methods.is_empty()
        || methods.contains(method)
        || (method == Method::HEAD && methods.contains(&Method::GET))
}

/// Whether a path is the prefix, or below it.
fn is_below(prefix: &str, path: &str) -> bool {
    let Some(rest) = path.strip_prefix(prefix) else {
        return false;
    };
    rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/')
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
}
