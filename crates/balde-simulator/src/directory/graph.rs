//! The tracking graph of a funds recovery: the transactions by which the money went on.

use super::handle::Directory;
use super::store::RecordStoreError;
use super::transactions::{Payment, Transaction, TransactionKind};
use crate::wire::{
    GraphAccount, GraphParameters, GraphTransaction, OwnerType, Timestamp, TrackingGraph,
};

/// The amount of a transaction whose payment order names none, in cents.
const UNKNOWN_AMOUNT_CENTS: u64 = 10_000;

/// Stands for the participant of an account that no payment order has named.
const UNKNOWN_PARTICIPANT: &str = "99999999";

/// The most debits of a person that are looked at.
const DEBITS_MAX: usize = 1_000;

/// Builds a graph. Persons are identified by their tax numbers, accounts by owner and participant.
#[derive(Default)]
struct GraphBuilder {
    tax_ids: Vec<Option<String>>,
    persons: Vec<OwnerType>,
    accounts: Vec<GraphAccount>,
    transactions: Vec<GraphTransaction>,
}

impl GraphBuilder {
    /// The id of an account, which is added if it is new.
    fn account(&mut self, tax_id: Option<&str>, participant: Option<&str>) -> usize {
        let known = self
            .tax_ids
            .iter()
            .position(|own| own.is_some() && own.as_deref() == tax_id);
        let owner = known.map_or_else(
            || {
                self.tax_ids.push(tax_id.map(str::to_owned));
                let is_company = tax_id.is_some_and(|tax_id| tax_id.len() == 14);
                self.persons.push(if is_company {
                    OwnerType::LegalPerson
                } else {
                    OwnerType::NaturalPerson
                });
                self.persons.len()
            },
            |at| at + 1,
        );
        let participant = participant.unwrap_or(UNKNOWN_PARTICIPANT).to_owned();
        let account = GraphAccount { owner, participant };
        if let Some(at) = self.accounts.iter().position(|own| *own == account) {
            return at + 1;
        }
        self.accounts.push(account);
        self.accounts.len()
    }

    fn add(&mut self, id: &str, payment: &Transaction) {
        let debtor = self.account(payment.payer_tax_id.as_deref(), Some(&payment.debited));
        let creditor = self.account(payment.payee_tax_id.as_deref(), payment.credited.as_deref());
        self.transactions.push(GraphTransaction {
            id: id.to_owned(),
            debtor,
            creditor,
            cents: payment.amount_cents.unwrap_or(UNKNOWN_AMOUNT_CENTS),
            settlement_time: payment.at,
        });
    }
}

impl Directory {
    /// Follows the money of a root transaction.
    pub(super) async fn track(
        &self,
        root_id: &str,
        root: &Payment,
        parameters: GraphParameters,
        now: Timestamp,
    ) -> Result<TrackingGraph, RecordStoreError> {
        let mut graph = GraphBuilder::default();
        let known = self.transaction(root_id).await?;
        let root = known.map_or_else(
            || Transaction {
                debited: root.debited.clone().unwrap_or_default(),
                credited: root.credited.clone(),
                key: None,
                payee_tax_id: None,
                payer_tax_id: None,
                amount_cents: None,
                kind: TransactionKind::Payment,
                purpose: None,
                is_settled: true,
                at: now,
            },
            |known| (*known).clone(),
        );
        graph.add(root_id, &root);
        let mut frontier = vec![root];
        // The root is the first layer.
        for _ in 1..parameters.hops_max {
            let mut next = Vec::new();
            for payment in &frontier {
                for (id, onward) in self.onward(payment, parameters).await? {
                    let is_known = graph.transactions.iter().any(|own| own.id == id);
                    let is_full = graph.transactions.len() as u64 >= parameters.transactions_max;
                    if !is_known && !is_full {
                        graph.add(&id, &onward);
                        next.push(onward);
                    }
                }
            }
            frontier = next;
        }
        Ok(TrackingGraph {
            creation_time: now,
            persons: graph.persons,
            accounts: graph.accounts,
            transactions: graph.transactions,
        })
    }

    /// The transactions by which the payee of one passed money on, within the window.
    async fn onward(
        &self,
        payment: &Transaction,
        parameters: GraphParameters,
    ) -> Result<Vec<(String, Transaction)>, RecordStoreError> {
        let Some(payee) = &payment.payee_tax_id else {
            return Ok(Vec::new());
        };
        let from = payment.at.ms();
        let until = from + parameters.hop_window_s * 1_000;
        let debits = format!("debits:{payee}");
        let ids = self
            .records
            .members(&debits, from..=until, 0, DEBITS_MAX)
            .await?;
        let mut found = Vec::new();
        for (_, id) in ids {
            if let Some(onward) = self.transaction(&id).await? {
                let amount = onward.amount_cents.unwrap_or(UNKNOWN_AMOUNT_CENTS);
                let is_payment = onward.is_settled && onward.kind == TransactionKind::Payment;
                if is_payment && amount >= parameters.min_cents {
                    found.push((id, (*onward).clone()));
                }
            }
        }
        Ok(found)
    }
}
