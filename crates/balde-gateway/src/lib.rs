//! A reverse proxy that enforces rate-limit policies, and a guard in front of the Pix DICT.
//!
//! [`Config`] is the validated configuration file, [`Gateway`] is what is built from it. A gateway
//! that is [bound](Gateway::bind) runs until it is shut down; it can be
//! [reloaded](Gateway::reload) meanwhile. docs/gateway.md describes the file and the behaviour.
//!
//! | Module | Holds |
//! |--|--|
//! | [`config`] | the configuration file |
//! | `proxy` | connections, routing, forwarding |
//! | `upstream` | connection pools and health |
//! | `limits` | who sent a request, and whether its policies admit it |
//! | `dict` | the mirror of DICT's buckets, reconciliation, credits, duties |
//! | `state` | the endpoint for operators and monitors |

mod body;
mod certificates;
pub mod config;
mod cut_tasks;
mod deadline;
mod descriptors;
mod dict;
mod gateway;
mod held_responses;
mod host;
mod limits;
mod metrics;
mod proxy;
mod state;
mod upstream;

pub use balde_net::tls::TlsError;
pub use config::Config;
pub use gateway::{Bound, Gateway, GatewayError};
