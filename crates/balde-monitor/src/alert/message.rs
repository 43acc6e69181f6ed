//! What a sink delivers.

use super::{Event, SinkClass};

/// An event to be delivered to one sink: a row of the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxMessage {
    /// The id of the row. Later messages have higher ids.
    pub id: i64,
    /// The name of the sink that has to deliver it.
    pub sink: String,
    /// The class that the sink serves for this event.
    pub class: SinkClass,
    /// The event.
    pub event: Event,
    /// The number of attempts so far.
    pub attempts: u32,
}
