//! The files of the dashboard. They are compiled into the binary, and nothing is loaded from
//! anywhere else.

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use balde_console::{CSS, HTML, SCRIPT, SHARED};

use super::api::{ApiError, not_found};

macro_rules! files {
    ($($path:literal $kind:ident),* $(,)?) => {
        &[$(($path, $kind, include_str!(concat!("../../dashboard/", $path)))),*]
    };
}

/// The path below `/dashboard/`, the content type and the text of each file that only the monitor has.
const FILES: &[(&str, &str, &str)] = files![
    "alerts.js" SCRIPT,
    "api.js" SCRIPT,
    "dashboard.js" SCRIPT,
    "format.js" SCRIPT,
    "gateway.js" SCRIPT,
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
    if let Some((_, kind, text)) = FILES.iter().find(|(name, ..)| *name == path) {
        return Ok(response(kind, text));
    }
    match SHARED.iter().find(|file| file.name == path) {
        Some(file) => Ok(response(file.kind, file.text)),
        None => Err(not_found().await),
    }
}

fn response(kind: &'static str, text: &'static str) -> Response {
    let mut response = text.into_response();
    balde_console::page_headers(response.headers_mut(), kind);
    response
}

/// Adds the header fields that keep other sites out to every response.
pub(super) async fn secure(mut response: Response) -> Response {
    balde_console::secure(response.headers_mut());
    response
}
