//! Payment transactions that payment orders have announced: who pays whom.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::DirectoryError;
use super::handle::{Directory, RECORDS_MAX};
use super::store::RecordStoreError;
use crate::wire::{EventNotification, Timestamp, is_end_to_end_id};

/// A payment transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Transaction {
    pub(crate) debited: String,
    pub(crate) credited: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) payee_tax_id: Option<String>,
    pub(crate) at: Timestamp,
}

impl Directory {
    /// Records a payment transaction, unless its id is known already.
    pub(crate) async fn record_transaction(
        &self,
        id: &str,
        payment: &Transaction,
    ) -> Result<(), DirectoryError> {
        let mut transaction = self.records.begin();
        let name = format!("transaction:{id}");
        let known: Option<Arc<Transaction>> = transaction.read(&name).await?;
        if known.is_some() {
            return Ok(());
        }
        transaction.put(name, Arc::new(payment.clone()))?;
        transaction.count("transactions".to_owned(), 1, RECORDS_MAX);
        let at = payment.at.ms();
        for (index, subject) in [("owner", &payment.payee_tax_id), ("key", &payment.key)] {
            if let Some(subject) = subject {
                transaction.append_event(
                    format!("settlements-{index}:{subject}"),
                    at,
                    id.to_owned(),
                );
            }
        }
        // A conflict means that another request has recorded the same transaction. In a full directory
        // the transaction is not recorded.
        transaction.commit(()).await?;
        Ok(())
    }

    pub(crate) async fn transaction(
        &self,
        id: &str,
    ) -> Result<Option<Arc<Transaction>>, RecordStoreError> {
        self.records.get(&format!("transaction:{id}")).await
    }

    /// Returns the payer's and the payee's participant, as far as they are known: from the payment
    /// order, or from the transaction's id, which contains the payer's ISPB.
    pub(super) async fn sides(
        &self,
        participant: &str,
        transaction_id: &str,
        family: &str,
    ) -> Result<(Option<String>, Option<String>), DirectoryError> {
        if let Some(known) = self.transaction(transaction_id).await? {
            let takes_part = known.debited == participant
                || known
                    .credited
                    .as_deref()
                    .is_none_or(|credited| credited == participant);
            if !takes_part {
                return Err(DirectoryError::rejected(
                    "ParticipantInvalid",
                    "The participant does not take part in the transaction",
                ));
            }
            return Ok((Some(known.debited.clone()), known.credited.clone()));
        }
        if self.rules.transactions_must_be_known {
            return Err(DirectoryError::rejected(
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

    /// Carries out listEventNotifications.
    pub(crate) async fn notifications(
        &self,
        participant: &str,
        (start, end): (Timestamp, Timestamp),
        limit: usize,
    ) -> Result<(Vec<EventNotification>, bool), RecordStoreError> {
        let list = format!("events:{participant}");
        let mut found = self
            .records
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
                timestamp: Timestamp::from_ms(ms),
            }
        };
        Ok((found.into_iter().map(read).collect(), has_more))
    }
}
