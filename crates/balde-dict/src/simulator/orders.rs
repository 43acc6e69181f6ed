//! Payment orders, as SPI reports them to DICT. An order credits tokens for the lookup before it.

use balde::{Error as BucketError, OpId};
use balde_policy::Subject;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use super::Simulator;
use super::lookups::{Claimed, LookupId};
use crate::directory::{DirectoryError, Transaction};
use crate::wire::{Problem, is_ispb};
use crate::{END_TO_END_ID_HEADER, Incoming, PARTICIPANT_HEADER, PAYER_HEADER, PAYMENT_ORDER};

/// A payment order.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    #[serde(alias = "EndToEndId", alias = "endToEndId")]
    end_to_end_id: String,
    #[serde(
        alias = "Payer",
        alias = "payer_id",
        alias = "payerId",
        alias = "PayerId"
    )]
    payer: String,
    #[serde(alias = "Participant", alias = "ispb")]
    participant: String,
    /// The payee's participant, if it does not follow from the lookup.
    #[serde(default, alias = "CreditedParticipant")]
    credited_participant: Option<String>,
}

/// The result of a payment order.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OrderResult {
    /// Whether it was credited.
    #[serde(rename = "credited")]
    is_credited: bool,
    /// Why it was not credited.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    buckets: Vec<Credit>,
}

#[derive(Clone, Debug, Serialize)]
struct Credit {
    policy: String,
    tokens: u64,
    level: i64,
}

impl Simulator {
    /// Records an order, and gives tokens back for the lookup that it belongs to, if there is one.
    pub(crate) async fn order(&self, order: &Order) -> Result<OrderResult, Problem> {
        let table = &self.0.table;
        if !table.is_end_to_end_id(&order.end_to_end_id) {
            return Err(Problem::bad_request("end_to_end_id is not valid"));
        }
        if table.payer_kind(&order.payer).is_none() {
            return Err(Problem::bad_request("payer is neither a CPF nor a CNPJ"));
        }
        let mut participants = order
            .credited_participant
            .iter()
            .chain([&order.participant]);
        if !participants.all(|participant| is_ispb(participant)) {
            return Err(Problem::bad_request(
                "a participant is not an ISPB of 8 characters",
            ));
        }
        let unavailable = |error: String| Problem::unavailable(error);
        self.follow()
            .await
            .map_err(|error| unavailable(error.to_string()))?;
        let id = LookupId {
            participant: &order.participant,
            payer: &order.payer,
            end_to_end_id: &order.end_to_end_id,
        };
        let now = self.now();
        let claimed = self.0.lookups.claim(id, now).await;
        let claimed = claimed.map_err(|error| unavailable(error.to_string()))?;
        let reason = match &claimed {
            Claimed::Yes(_) => None,
            Claimed::NoLookup => Some("no lookup by this participant for this payer and id"),
            Claimed::TooLate => Some("the lookup was too long ago"),
            Claimed::Before => Some("it was credited before"),
        };
        let key = match claimed {
            Claimed::Yes(lookup) => Some(lookup.key),
            _ => None,
        };
        self.record_transaction(order, key.as_deref()).await?;
        let mut buckets = Vec::new();
        if let Some(key) = key {
            match self.give_back(order, &key).await {
                Ok(credits) => buckets = credits,
                Err(error) => {
                    // Without the claim, a repeated order can still be credited.
                    let _as_far_as_possible = self.0.lookups.give_back(id).await;
                    return Err(unavailable(error.to_string()));
                }
            }
        }
        Ok(OrderResult {
            is_credited: reason.is_none(),
            reason,
            buckets,
        })
    }

    /// Credits the buckets that the lookup took from, each with what an order is worth there.
    async fn give_back(&self, order: &Order, key: &str) -> Result<Vec<Credit>, BucketError> {
        let table = &self.0.table;
        let base = table.profile().base_paths().first();
        let path = format!(
            "{}/entries/{}",
            base.map_or("", |base| base),
            utf8_percent_encode(key, NON_ALPHANUMERIC)
        );
        let headers = [
            (PARTICIPANT_HEADER, order.participant.as_str()),
            (PAYER_HEADER, order.payer.as_str()),
            (END_TO_END_ID_HEADER, order.end_to_end_id.as_str()),
        ];
        let headers = headers.as_slice();
        let Ok(route) = table.route("GET", &path) else {
            return Ok(Vec::new());
        };
        let call = table.resolve(&route, &Incoming::new("", &headers));
        let id = if table.settings().credit_once {
            let id = format!("{}/{}", order.payer, order.end_to_end_id);
            OpId::new(id).unwrap_or_else(|_| OpId::random())
        } else {
            OpId::random()
        };
        let subject = Subject::request(call.request());
        let engine = self.0.buckets.engine();
        let credited = engine.credit(PAYMENT_ORDER, &subject, &id).await?;
        let credits = credited.iter().map(|credited| Credit {
            policy: credited.policy().to_owned(),
            tokens: credited.tokens(),
            level: credited.level(),
        });
        Ok(credits.collect())
    }

    /// Records the transaction for infraction reports, refunds and statistics.
    async fn record_transaction(&self, order: &Order, key: Option<&str>) -> Result<(), Problem> {
        let entry = match key {
            Some(key) => {
                let found = self.0.directory.entry(key).await;
                found.map_err(|error| DirectoryError::from(error).into_problem())?
            }
            None => None,
        };
        let entry = entry.as_ref().map(|record| &record.entry);
        let transaction = Transaction {
            debited: order.participant.clone(),
            credited: order
                .credited_participant
                .clone()
                .or_else(|| entry.map(|entry| entry.account.participant.clone())),
            key: key.map(str::to_owned),
            payee_tax_id: entry.map(|entry| entry.owner.tax_id_number.clone()),
            at: self.now(),
        };
        let recorded = self
            .0
            .directory
            .record_transaction(&order.end_to_end_id, &transaction)
            .await;
        recorded.map_err(DirectoryError::into_problem)
    }
}
