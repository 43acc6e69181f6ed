//! The tower service that all layers share: admit a request, call the inner service, settle.
//!
//! | File | Holds |
//! |--|--|
//! | `service`, `future` | the service and its response future |
//! | `options` | what every layer can be told: identity, exemptions, responses of refusals |
//! | `refusal`, `no_key_log` | why a request was refused; log lines about requests without a key |
//! | `request_parts`, `body` | a request without its body; the service's response body or a refusal's |

mod body;
mod future;
mod no_key_log;
mod options;
mod refusal;
mod request_parts;
mod service;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{HeaderMap, Response};
use bytes::Bytes;

use super::outcome::Outcome;

pub use body::ResponseBody;
pub use future::ResponseFuture;
pub use options::LayerOptions;
pub use refusal::{Refusal, RefusalCause};
pub use request_parts::RequestParts;
pub use service::RateLimit;

/// Decides which requests a service gets. [`RateLimitLayer`](super::RateLimitLayer) and the layer of
/// `balde-policy` are made of one.
pub trait Admit {
    /// A request that was admitted and has not ended.
    type Ticket: RequestTicket;
    /// What the stores decided.
    type Decided;

    /// Decides on a request as far as that is possible without waiting.
    fn begin(self: &Arc<Self>, request: &RequestParts<'_>) -> Begun<Self::Ticket, Self::Decided>;

    /// Admits a request by what the stores decided, or refuses it.
    fn admit(
        self: &Arc<Self>,
        decided: Self::Decided,
        headers: &HeaderMap,
    ) -> Admission<Self::Ticket>;
}

/// What [`Admit::begin`] found.
pub enum Begun<T, D> {
    /// The decision, made in memory.
    Decided(Admission<T>),
    /// The decision of a store, which takes time.
    Deciding(Deciding<D>),
}

/// A decision that waits for a store.
pub type Deciding<D> = Pin<Box<dyn Future<Output = D> + Send>>;

/// What becomes of a request.
pub enum Admission<T> {
    /// The request is not limited, or nothing is left to do after its response.
    Forward,
    /// The request is admitted.
    Admitted(T),
    /// The request is refused with this response.
    Refused(Box<Response<Bytes>>),
}

/// A request that was admitted and has not ended. A ticket that is dropped before it is settled settles
/// itself as abandoned.
pub trait RequestTicket {
    /// Remembers that the service panicked, which settles a ticket that is dropped.
    fn panicked(&mut self) {}

    /// Begins to settle the request by its outcome.
    fn settle(&mut self, outcome: &Outcome<'_>);

    /// Waits until the request is settled, so that a client that has the response finds the bucket
    /// settled.
    fn poll_settled(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Adds the header fields of the decisions to the response.
    fn write_headers(&self, headers: &mut HeaderMap);
}
