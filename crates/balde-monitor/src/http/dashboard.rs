//! The files of the dashboard. They are compiled into the binary, and nothing is loaded from
//! anywhere else.

use axum::extract::Path;
use axum::http::HeaderValue;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::response::{IntoResponse, Response};

use super::api::{ApiError, not_found};

/// The Content-Security-Policy: only files and data of this server, and no frames.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self'; connect-src 'self'; form-action 'none'; frame-ancestors 'none'; \
     base-uri 'none'";

/// The Content-Security-Policy of everything else.
const DATA_POLICY: &str = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! files {
    ($($path:literal $kind:ident),* $(,)?) => {
        &[$(($path, $kind, include_str!(concat!("../../dashboard/", $path)))),*]
    };
}

/// The path below `/dashboard/`, the content type and the text of each file.
const FILES: &[(&str, &str, &str)] = files![
    "alerts.js" SCRIPT,
    "api.js" SCRIPT,
    "dashboard.css" CSS,
    "dashboard.js" SCRIPT,
    "dom.js" SCRIPT,
    "format.js" SCRIPT,
    "gateway.js" SCRIPT,
    "icon.svg" SVG,
    "incidents.js" SCRIPT,
    "operations.js" SCRIPT,
    "overview.js" SCRIPT,
    "operator.js" SCRIPT,
    "parts.js" SCRIPT,
    "policy.js" SCRIPT,
    "texts.js" SCRIPT,
    "vendor/uPlot.iife.min.js" SCRIPT,
    "vendor/uPlot.min.css" CSS,
];

pub(super) async fn page() -> Response {
    response(HTML, include_str!("../../dashboard/index.html"))
}

pub(super) async fn file(Path(path): Path<String>) -> Result<Response, ApiError> {
    match FILES.iter().find(|(name, ..)| *name == path) {
        Some((_, kind, text)) => Ok(response(kind, text)),
        None => Err(not_found().await),
    }
}

fn response(kind: &'static str, text: &'static str) -> Response {
    let header = |name: HeaderName, value: &'static str| (name, HeaderValue::from_static(value));
    let headers = [
        header(CONTENT_TYPE, kind),
        header(CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        // A new version of the monitor has other files under the same names.
        header(CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}

/// Adds what forbids frames, guessed content types and readers of other sites to every response. A
/// response that is no file of the dashboard may not load or run anything, either.
pub(super) async fn secure(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &'static str| {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    };
    set(CONTENT_SECURITY_POLICY, DATA_POLICY);
    set(CACHE_CONTROL, "no-store");
    set(X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(X_FRAME_OPTIONS, "DENY");
    set(REFERRER_POLICY, "no-referrer");
    for name in ["cross-origin-opener-policy", "cross-origin-resource-policy"] {
        set(HeaderName::from_static(name), "same-origin");
    }
    response
}
