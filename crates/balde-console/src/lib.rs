//! What the web pages of the monitor and of the service share. The files are compiled into the binary, and
//! nothing is loaded from anywhere else.
//!
//! ```
//! use balde_console::{SHARED, page_headers};
//!
//! let style = SHARED.iter().find(|file| file.name == "console.css").unwrap();
//! let mut headers = http::HeaderMap::new();
//! page_headers(&mut headers, style.kind);
//! assert_eq!(headers["content-type"], "text/css; charset=utf-8");
//! ```

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};

/// The content type of pages.
pub const HTML: &str = "text/html; charset=utf-8";
/// The content type of styles.
pub const CSS: &str = "text/css; charset=utf-8";
/// The content type of scripts.
pub const SCRIPT: &str = "text/javascript; charset=utf-8";
/// The content type of the icon.
pub const SVG: &str = "image/svg+xml";

/// The Content-Security-Policy of pages: only files and data of this server, and no frames.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self'; connect-src 'self'; form-action 'none'; frame-ancestors 'none'; \
     base-uri 'none'";

/// The Content-Security-Policy of everything else.
const DATA_POLICY: &str = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'";

/// A file of a page.
#[derive(Clone, Copy, Debug)]
pub struct PageFile {
    /// The name, by which pages refer to it.
    pub name: &'static str,
    /// The value of its `Content-Type`.
    pub kind: &'static str,
    /// What is sent as the body.
    pub text: &'static str,
}

/// The files that both pages load.
pub const SHARED: [PageFile; 3] = [
    PageFile {
        name: "console.css",
        kind: CSS,
        text: include_str!("../assets/console.css"),
    },
    PageFile {
        name: "dom.js",
        kind: SCRIPT,
        text: include_str!("../assets/dom.js"),
    },
    PageFile {
        name: "icon.svg",
        kind: SVG,
        text: include_str!("../assets/icon.svg"),
    },
];

/// Writes the fields of a page or of one of its files.
pub fn page_headers(headers: &mut HeaderMap, kind: &'static str) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    let policy = HeaderValue::from_static(PAGE_POLICY);
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    // A new version has other files under the same names.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
}

/// Adds what forbids frames, guessed content types and readers of other sites. A response that is no file
/// of a page may not load or run anything, either.
pub fn secure(headers: &mut HeaderMap) {
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
}
