//! One call to DICT, from admission to settlement.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use balde_dict::Operation;
use balde_policy::{Outcome, Ticket};

use super::Dict;
use super::orders::OrderId;

/// An admitted call to DICT. It is settled once: by its outcome, or when it is dropped. A call that
/// was on its way when it was dropped may have been counted by DICT, and costs its highest price.
#[derive(Debug)]
pub(crate) struct DictCall {
    dict: Arc<Dict>,
    ticket: Option<Ticket>,
    pub(super) facts: CallFacts,
    is_sent: bool,
}

/// What has to be known of a call when it ends.
#[derive(Clone, Debug)]
pub(super) struct CallFacts {
    pub(super) operation: Operation,
    /// The policies that count it.
    pub(super) policies: Vec<String>,
    pub(super) participant: String,
    pub(super) payer: Option<String>,
    pub(super) end_to_end_id: Option<String>,
    /// The raw path segment of the key.
    pub(super) key: Option<String>,
    /// The `EndToEndId` of a payment order that the route's header names.
    pub(super) order: Option<String>,
}

impl DictCall {
    pub(super) fn new(dict: &Arc<Dict>, ticket: Ticket, facts: CallFacts) -> Self {
        Self {
            dict: Arc::clone(dict),
            ticket: Some(ticket),
            facts,
            is_sent: false,
        }
    }

    /// Notes that the request may reach DICT from now on.
    pub(crate) fn sending(&mut self) {
        self.is_sent = true;
    }

    /// Settles the call by its outcome.
    pub(crate) async fn settle(mut self, outcome: Outcome) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        self.note(&ticket, outcome);
        let mut settlement = ticket.settle(outcome);
        if !settlement.is_done() {
            (&mut settlement).await;
        }
        drop(settlement);
        if outcome == Outcome::Status(429) {
            self.dict.correct_after_refusal(&self.facts).await;
        }
        if let (Some(order), Some(payer)) = (&self.facts.order, &self.facts.payer) {
            let id = OrderId {
                participant: &self.facts.participant,
                payer,
                end_to_end_id: order,
            };
            let _as_far_as_possible = self.dict.credit_order(id).await;
        }
    }

    /// Counts what the call costs, and what it means for duties and credits.
    fn note(&self, ticket: &Ticket, outcome: Outcome) {
        let dict = &self.dict;
        let facts = &self.facts;
        for (policy, _) in ticket.decisions() {
            let policy_of_table = dict.table.profile().policy(policy);
            let price = policy_of_table.map_or(0, |policy| policy.prices().price(outcome));
            dict.spent.add(&facts.participant, policy, price);
        }
        match outcome {
            Outcome::Unknown => {
                dict.counters.doubts.fetch_add(1, Ordering::Relaxed);
            }
            Outcome::Status(429) => {
                dict.counters.refusals.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        let (Operation::GetEntry, Outcome::Status(status)) = (facts.operation, outcome) else {
            return;
        };
        let now_us = dict.clock.now_us();
        if status != 429 {
            dict.note_admitted(facts);
        }
        let payer = facts.payer.as_deref();
        match status {
            200 | 404 => dict
                .duties
                .count_lookup(&facts.participant, payer, status == 200, now_us),
            429 => dict.duties.count_refused(&facts.participant, payer, now_us),
            _ => {}
        }
        if dict.table.settings().credit_statuses.contains(&status)
            && let (Some(payer), Some(end_to_end_id), Some(key)) =
                (&facts.payer, &facts.end_to_end_id, &facts.key)
        {
            let id = OrderId {
                participant: &facts.participant,
                payer,
                end_to_end_id,
            };
            dict.lookups.note(id, key, now_us);
        }
    }
}

impl Drop for DictCall {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        let outcome = if self.is_sent {
            Outcome::Unknown
        } else {
            Outcome::NotSent
        };
        self.note(&ticket, outcome);
        ticket.settle_blocking(outcome);
    }
}
