//! Which names the server answers to, and whose pages may write.
//!
//! A page of a foreign site can make a browser send requests to any address. DNS rebinding lets it
//! pretend that the monitor belongs to its own site: its name resolves to the monitor's address. So a
//! `Host` that is a name must be one of the monitor's, and an `Origin` must be the host itself.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::App;
use super::api::ApiError;

/// Paths that probes and scrapers fetch under any name. They hold nothing that a page could use to
/// write, and browsers do not let foreign pages read them under the monitor's own name.
const ANY_HOST: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// Rejects requests under foreign names, and writes by foreign pages.
pub(super) async fn check(State(app): State<App>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let headers = request.headers();
    // A target such as `http://name/path` has a host, too, which HTTP puts before the header's.
    let is_own_target = request
        .uri()
        .authority()
        .is_none_or(|authority| is_own_name(authority.as_str(), app.hosts()));
    let is_own = is_own_target && is_own_host(headers, app.hosts());
    if !ANY_HOST.contains(&path) && !is_own {
        let detail = "this monitor does not answer under the name in the Host header; add the name \
                      to `hosts` in [http], or use its address";
        return ApiError::new(StatusCode::MISDIRECTED_REQUEST, detail).into_response();
    }
    let is_write = !matches!(*request.method(), Method::GET | Method::HEAD);
    if is_write && !is_own_origin(headers, app.public_url()) {
        let detail = "pages of other sites may not write here: the Origin differs from the Host";
        return ApiError::new(StatusCode::FORBIDDEN, detail).into_response();
    }
    next.run(request).await
}

/// Returns true for an address, which cannot be rebound, for `localhost`, and for configured names.
/// A request without a Host is not from a browser.
fn is_own_host(headers: &HeaderMap, hosts: &[String]) -> bool {
    let mut values = headers.get_all(HOST).iter();
    let Some(host) = values.next() else {
        return true;
    };
    let Ok(host) = host.to_str() else {
        return false;
    };
    values.next().is_none() && is_own_name(host, hosts)
}

fn is_own_name(host: &str, hosts: &[String]) -> bool {
    let name = without_port(host)
        .trim_end_matches('.')
        .to_ascii_lowercase();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    address.parse::<IpAddr>().is_ok()
        || name == "localhost"
        || hosts.iter().any(|own| own.eq_ignore_ascii_case(&name))
}

/// Returns true if there is no Origin, which browsers send with every write, if it is the Host, or if it
/// is that of the public address: a proxy may replace the Host.
fn is_own_origin(headers: &HeaderMap, public_url: Option<&str>) -> bool {
    let site = headers
        .get("sec-fetch-site")
        .and_then(|site| site.to_str().ok());
    if site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return false;
    }
    let Some(origin) = headers.get(ORIGIN) else {
        return true;
    };
    let origin = origin.to_str().unwrap_or_default();
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    let is_public = public_url.is_some_and(|url| {
        let rest = url.strip_prefix(origin);
        !origin.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    authority.is_some() && (authority == host || is_public)
}

/// The host without its port. The colons of an IPv6 address are between brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if !port.contains(']') && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_own_names_and_addresses_are_answered() {
        let hosts = ["monitor.example.com".to_owned()];
        for own in [
            "127.0.0.1:9180",
            "127.0.0.1",
            "[::1]:9180",
            "[::1]",
            "localhost:9180",
            "LOCALHOST",
            "monitor.example.com",
            "Monitor.Example.com.:9180",
        ] {
            assert!(is_own_host(&headers(&[("host", own)]), &hosts), "{own}");
        }
        for foreign in [
            "evil.example:9180",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            "[evil]",
        ] {
            assert!(
                !is_own_host(&headers(&[("host", foreign)]), &hosts),
                "{foreign}"
            );
        }
        let twice = headers(&[("host", "localhost"), ("host", "evil.example")]);
        assert!(!is_own_host(&twice, &hosts));
        assert!(is_own_host(&headers(&[]), &hosts));
    }

    #[test]
    fn only_own_pages_may_write() {
        let host = ("host", "127.0.0.1:9180");
        for own in [
            vec![host],
            vec![host, ("origin", "http://127.0.0.1:9180")],
            vec![host, ("sec-fetch-site", "same-origin")],
            vec![host, ("sec-fetch-site", "none")],
        ] {
            assert!(is_own_origin(&headers(&own), None), "{own:?}");
        }
        for foreign in [
            vec![host, ("origin", "http://evil.example")],
            vec![host, ("origin", "http://127.0.0.1:8080")],
            vec![host, ("origin", "null")],
            vec![host, ("sec-fetch-site", "cross-site")],
            vec![
                host,
                ("sec-fetch-site", "same-site"),
                ("origin", "http://127.0.0.1:9180"),
            ],
        ] {
            assert!(!is_own_origin(&headers(&foreign), None), "{foreign:?}");
        }
    }

    #[test]
    fn pages_under_the_public_address_may_write_behind_a_proxy() {
        let url = Some("https://monitor.example.com/balde");
        let is_own = |origin: &str| {
            let headers = headers(&[("host", "127.0.0.1:9180"), ("origin", origin)]);
            is_own_origin(&headers, url)
        };
        assert!(is_own("https://monitor.example.com"));
        for foreign in [
            "http://monitor.example.com",
            "https://monitor.example.co",
            "https://monitor.example.com.evil.example",
            "https://monitor.example.com:444",
            "https://",
            "",
        ] {
            assert!(!is_own(foreign), "{foreign}");
        }
    }
}
