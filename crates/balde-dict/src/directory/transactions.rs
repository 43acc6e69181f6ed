//! Transactions that payment orders made known: who pays whom.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::world::{Change, WorldError};
use super::{Directory, Refusal};
use crate::wire::{EventNotification, Moment, is_end_to_end_id};

/// What is known of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Transaction {
    pub(crate) debited: String,
    pub(crate) credited: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) payee_tax_id: Option<String>,
    pub(crate) at: Moment,
}

impl Directory {
    /// Notes a transaction, the first time that it is heard of.
    pub(crate) async fn note_transaction(
        &self,
        id: &str,
        transaction: &Transaction,
    ) -> Result<(), Refusal> {
        let mut change = Change::default();
        let name = format!("transaction:{id}");
        let known: Option<Arc<Transaction>> = self.world.read(&mut change, &name).await?;
        if known.is_some() {
            return Ok(());
        }
        self.world
            .put(&mut change, name, Arc::new(transaction.clone()))?;
        change.count("transactions".to_owned(), 1, super::RECORDS_MAX);
        let at = transaction.at.ms();
        for (what, whose) in [
            ("owner", &transaction.payee_tax_id),
            ("key", &transaction.key),
        ] {
            if let Some(whose) = whose {
                change.event(format!("settlements-{what}:{whose}"), at, id.to_owned());
            }
        }
        // Whoever got in the way noted the same; and a directory that is full of transactions goes
        // without this one.
        self.world.commit(change).await?;
        Ok(())
    }

    pub(crate) async fn transaction(
        &self,
        id: &str,
    ) -> Result<Option<Arc<Transaction>>, WorldError> {
        self.world.get(&format!("transaction:{id}")).await
    }

    /// The payer's and the payee's participant, as far as they are known: from the payment order,
    /// else from the transaction's id, which begins with the payer's.
    pub(super) async fn sides(
        &self,
        participant: &str,
        transaction_id: &str,
        family: &str,
    ) -> Result<(Option<String>, Option<String>), Refusal> {
        if let Some(known) = self.transaction(transaction_id).await? {
            let has_part = known.debited == participant
                || known
                    .credited
                    .as_deref()
                    .is_none_or(|credited| credited == participant);
            if !has_part {
                return Err(Refusal::new(
                    "ParticipantInvalid",
                    "The participant has no part in the transaction",
                ));
            }
            return Ok((Some(known.debited.clone()), known.credited.clone()));
        }
        if self.rules.transactions_must_be_known {
            return Err(Refusal::new(
                &format!("{family}TransactionNotFound"),
                "No payment order with this EndToEndId is known",
            ));
        }
        let payer = is_end_to_end_id(transaction_id).then(|| transaction_id[1..9].to_owned());
        Ok(match payer {
            Some(payer) if payer != participant => (Some(payer), Some(participant.to_owned())),
            _ => (Some(participant.to_owned()), None),
        })
    }

    /// listEventNotifications.
    pub(crate) async fn notifications(
        &self,
        participant: &str,
        (start, end): (Moment, Moment),
        limit: usize,
    ) -> Result<(Vec<EventNotification>, bool), WorldError> {
        let list = format!("events:{participant}");
        let mut found = self
            .world
            .members(&list, start.ms()..=end.ms(), 0, limit + 1)
            .await?;
        let has_more = found.len() > limit;
        found.truncate(limit);
        let read = |(ms, text): (u64, String)| {
            let mut parts = text.splitn(3, ':').map(str::to_owned);
            EventNotification {
                id: parts.next().unwrap_or_default(),
                event_type: parts.next().unwrap_or_default(),
                entity_id: parts.next().unwrap_or_default(),
                timestamp: Moment::from_ms(ms),
            }
        };
        Ok((found.into_iter().map(read).collect(), has_more))
    }
}
