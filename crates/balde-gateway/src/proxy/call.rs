//! A request that was admitted, or that no policy counts, until it is settled.

use balde_policy::{Outcome, Ticket};

use crate::upstream::Sending;

/// A request that may be sent. Its ticket is settled once: by its outcome, or when this value is
/// dropped. A request of which no byte was written by then is free.
#[derive(Debug, Default)]
pub(super) struct Call {
    /// `None` if no policy counts the request, or once it is settled.
    ticket: Option<Ticket>,
    sending: Sending,
}

impl Call {
    /// A request that no policy counts.
    pub(super) fn free() -> Self {
        Self::default()
    }

    pub(super) fn admitted(ticket: Ticket) -> Self {
        Self {
            ticket: Some(ticket),
            sending: Sending::default(),
        }
    }

    /// Says who sends the request.
    pub(super) fn sent_by(&mut self, sending: Sending) {
        self.sending = sending;
    }

    pub(super) fn sending(&self) -> &Sending {
        &self.sending
    }

    /// The ticket, for the caller to settle.
    pub(super) fn into_ticket(mut self) -> Option<Ticket> {
        self.ticket.take()
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        ticket.settle_blocking(if self.sending.is_written() {
            Outcome::Abandoned
        } else {
            Outcome::NotSent
        });
    }
}
