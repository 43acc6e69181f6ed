//! The reverse proxy.
//!
//! | File | Holds |
//! |--|--|
//! | `server` | accepts connections and serves their requests |
//! | `request` | what holds for every request: the drain, the access log |
//! | `handle` | the life of a request: route, check, admit, forward, settle, answer |
//! | `call` | an admitted request until it is settled |
//! | `acceptable` | requests that are refused, and responses that are not passed on, for their framing |
//! | `target` | what a request asks for: one host and one path, each in one spelling |
//! | `routing` | from a request to its route |
//! | `head_fields` | which of the header fields that matter a request has |
//! | `headers`, `trace` | header fields that are removed, added and continued |
//! | `proxy_fields` | header fields that only trusted proxies may write |
//! | `client_stream`, `framing` | connections with their limits and timeouts; where their requests begin and end |
//! | `upgrade` | connections that switch to another protocol |
//! | `answer`, `answering` | responses that the gateway writes itself; when a response has ended |

mod acceptable;
mod answer;
mod answering;
mod call;
mod client_stream;
mod framing;
mod handle;
mod head_fields;
mod headers;
mod proxy_fields;
mod request;
mod routing;
mod server;
mod target;
mod trace;
mod upgrade;

pub(crate) use proxy_fields::ProxyFields;
pub(crate) use routing::{Route, Routing};
pub(crate) use server::{Listener, Shared, serve};
