//! Payment transactions that payment orders have announced: who pays whom, and how much.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::DirectoryError;
use super::handle::{Directory, RECORDS_MAX};
use super::store::RecordStoreError;
use crate::wire::{Timestamp, canonical_ispb, is_end_to_end_id, is_return_id};

/// The purpose of a payment that refunds a transaction which follows the root of a funds recovery.
pub(super) const RETURN_PURPOSE: &str = "IPRT";

/// A payment transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Transaction {
    pub(crate) debited: String,
    pub(crate) credited: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) payee_tax_id: Option<String>,
    pub(crate) payer_tax_id: Option<String>,
    pub(crate) amount_cents: Option<u64>,
    pub(crate) kind: TransactionKind,
    /// The purpose of a payment, such as `IPAY`, if the payment order names it.
    #[serde(default)]
    pub(crate) purpose: Option<String>,
    pub(crate) is_settled: bool,
    pub(crate) at: Timestamp,
}

/// The message that a transaction was made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TransactionKind {
    /// A payment order.
    #[serde(rename = "pacs.008")]
    Payment,
    /// A refund of a payment.
    #[serde(rename = "pacs.004")]
    Refund,
}

/// What is known of a transaction that a report or a refund is about.
#[derive(Clone, Debug)]
pub(super) struct Payment {
    /// Whether a payment order has announced it.
    pub(super) is_known: bool,
    pub(super) debited: Option<String>,
    pub(super) credited: Option<String>,
    pub(super) amount_cents: Option<u64>,
    pub(super) kind: Option<TransactionKind>,
    pub(super) purpose: Option<String>,
    pub(super) is_settled: bool,
    pub(super) at: Option<Timestamp>,
}

impl Payment {
    pub(super) fn is_older_than(&self, ms: u64, now: Timestamp) -> bool {
        self.at.is_some_and(|at| now > at.plus_ms(ms))
    }

    /// Whether the transaction is a return (pacs.004), by its message or by its id.
    pub(super) fn is_return(&self, id: &str) -> bool {
        match self.kind {
            Some(kind) => kind == TransactionKind::Refund,
            None => is_return_id(id),
        }
    }

    /// The participant on the other side, if it is known.
    pub(super) fn other_side(&self, participant: &str) -> Option<String> {
        if self.debited.as_deref() == Some(participant) {
            self.credited.clone()
        } else {
            self.debited.clone()
        }
    }
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
        let settled = payment.is_settled && payment.kind == TransactionKind::Payment;
        for (index, subject) in [("owner", &payment.payee_tax_id), ("key", &payment.key)] {
            if let Some(subject) = subject.as_ref().filter(|_| settled) {
                transaction.append_event(
                    format!("settlements-{index}:{subject}"),
                    at,
                    id.to_owned(),
                );
            }
        }
        if let Some(payer) = &payment.payer_tax_id {
            transaction.add_member(format!("debits:{payer}"), at, id);
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

    /// What is known of a transaction that a participant takes part in. The sides of one that no
    /// payment order has announced follow from its id, which contains the payer's ISPB.
    pub(super) async fn payment(
        &self,
        participant: &str,
        transaction_id: &str,
        not_found: &str,
    ) -> Result<Payment, DirectoryError> {
        if let Some(known) = self.transaction(transaction_id).await? {
            let credited = known.credited.as_deref();
            let takes_part = known.debited == participant
                || credited.is_none_or(|credited| credited == participant);
            if !takes_part {
                return Err(DirectoryError::rejected(
                    "ParticipantInvalid",
                    "The participant does not take part in the transaction",
                ));
            }
            return Ok(Payment {
                is_known: true,
                debited: Some(known.debited.clone()),
                credited: known.credited.clone(),
                amount_cents: known.amount_cents,
                kind: Some(known.kind),
                purpose: known.purpose.clone(),
                is_settled: known.is_settled,
                at: Some(known.at),
            });
        }
        if self.rules.transactions_must_be_known {
            return Err(DirectoryError::rejected(
                not_found,
                "No payment order with this EndToEndId is known",
            ));
        }
        let names_payer = is_end_to_end_id(transaction_id) || is_return_id(transaction_id);
        let payer = names_payer.then(|| canonical_ispb(&transaction_id[1..9]).into_owned());
        let (debited, credited) = match payer {
            Some(payer) if payer != participant => (payer, Some(participant.to_owned())),
            _ => (participant.to_owned(), None),
        };
        Ok(Payment {
            is_known: false,
            debited: Some(debited),
            credited,
            amount_cents: None,
            kind: None,
            purpose: None,
            is_settled: true,
            at: None,
        })
    }
}
