//! Rate-limit decisions over the network, for programs in any language and for proxies.
//!
//! [`Config`] is the validated configuration file, [`Service`] is what is built from it. A service
//! that is [bound](Service::bind) runs until it is shut down; it can be [reloaded](Service::reload)
//! meanwhile. docs/service.md describes the file and the protocols.
//!
//! | Module | Holds |
//! |--|--|
//! | [`config`] | the configuration file |
//! | [`decisions`] | commands as values, and the one place that runs them |
//! | `policies` | the policy engine, for requests that proxies describe |
//! | `http`, `resp`, `rls`, `proxy` | the protocols: each turns its requests into commands |
//! | `listener` | connections, TLS, limits on connections |
//! | `state` | the endpoint for operators |

pub mod access;
pub mod config;
pub mod decisions;
pub mod descriptors;
mod http;
mod hyper_server;
mod input_budget;
mod listener;
mod metrics;
mod policies;
mod proxy;
mod resp;
mod rls;
mod service;
mod state;

pub use self::http::OPENAPI;
pub use balde_net::tls::TlsError;
pub use config::Config;
pub use service::{Bound, Service, ServiceError};
