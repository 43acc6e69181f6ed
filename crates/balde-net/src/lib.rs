//! What the servers of the workspace share.
//!
//! | Name | Purpose |
//! |--|--|
//! | [`accept`] | accepts connections until shutdown, then waits for those that are open |
//! | [`MaybeTlsStream`] | a connection after its TLS handshake, or one without TLS |
//! | [`tls`] | configurations of TLS, from PEM |
//! | [`serve_on_thread`] | an endpoint whose answers do not wait for other work |
//! | [`shutdown_begun`] | waits for the signal that everything ends |

mod accept;
mod endpoint;
mod stream;
pub mod tls;

pub use accept::{Serving, accept, shutdown_begun};
pub use endpoint::serve_on_thread;
pub use stream::{HandshakeError, MaybeTlsStream};
