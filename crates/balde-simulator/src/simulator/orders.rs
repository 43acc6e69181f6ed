//! Payment orders, as SPI reports them to DICT. An order credits tokens for the lookup before it.

use std::borrow::Cow;

use balde::{Error as BucketError, OpId};
use balde_policy::Subject;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use super::Simulator;
use super::lookups::{Claimed, LookupId};
use crate::directory::{DirectoryError, Transaction, TransactionKind};
use crate::wire::{Problem, canonical_ispb, cents, is_end_to_end_id, is_ispb, is_tax_id};
use balde_dict::{END_TO_END_ID_HEADER, Incoming, PARTICIPANT_HEADER, PAYER_HEADER, PAYMENT_ORDER};

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
    /// The participant that initiated the payment, if it is not the payer's.
    #[serde(default)]
    initiator: Option<String>,
    /// The amount, such as `100.00`.
    #[serde(default)]
    amount: Option<String>,
    /// The payee's tax number, if it does not follow from the lookup.
    #[serde(default)]
    payee_tax_id: Option<String>,
    /// The purpose of the payment, such as `IPAY`, or `IPRT` for the refund of a transaction that follows
    /// the root of a funds recovery.
    #[serde(default)]
    purpose: Option<String>,
    /// Whether the transaction is settled. By default, it is.
    #[serde(default = "yes")]
    settled: bool,
    /// The message: `pacs.008`, a payment, or `pacs.004`, a refund.
    #[serde(default = "payment")]
    message: TransactionKind,
}

fn yes() -> bool {
    true
}

fn payment() -> TransactionKind {
    TransactionKind::Payment
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
    participant: String,
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
        let is_purpose =
            |text: &str| text.len() == 4 && text.bytes().all(|b| b.is_ascii_uppercase());
        if order
            .purpose
            .as_deref()
            .is_some_and(|text| !is_purpose(text))
        {
            let detail = "purpose is not four capital letters, such as IPAY";
            return Err(Problem::bad_request(detail));
        }
        let named = [&order.credited_participant, &order.initiator];
        let mut participants = named.into_iter().flatten().chain([&order.participant]);
        if !participants.all(|participant| is_ispb(participant)) {
            return Err(Problem::bad_request(
                "a participant is not an ISPB of 8 characters",
            ));
        }
        if order
            .amount
            .as_deref()
            .is_some_and(|text| cents(text).is_none())
        {
            return Err(Problem::bad_request("amount is not one such as 100.00"));
        }
        if order
            .payee_tax_id
            .as_deref()
            .is_some_and(|text| !is_tax_id(text))
        {
            return Err(Problem::bad_request(
                "payee_tax_id is neither a CPF nor a CNPJ",
            ));
        }
        self.follow()
            .await
            .map_err(|error| Problem::unavailable(error.to_string()))?;
        // Each participant that looked the key up gets its own tokens back.
        let payer = canonical_ispb(&order.participant).into_owned();
        // An order's id begins with the participant that initiated the payment.
        let id = order.end_to_end_id.as_str();
        let in_id = is_end_to_end_id(id).then(|| &id[1..9]);
        let initiator = order.initiator.as_deref().or(in_id).map(canonical_ispb);
        let mut credited = vec![payer.clone()];
        credited.extend(initiator.map(Cow::into_owned).filter(|own| *own != payer));
        if let Some(transcript) = &self.0.transcript {
            transcript.record_order(self.now(), &credited, &order.payer, id);
        }
        let (mut buckets, mut is_credited, mut reason, mut key) = (Vec::new(), false, None, None);
        for participant in &credited {
            let claimed = self.credit_participant(order, participant).await?;
            match claimed {
                Ok((lookup_key, credits)) => {
                    is_credited = true;
                    key = Some(lookup_key);
                    buckets.extend(credits);
                }
                Err(why) => reason = Some(why),
            }
        }
        self.record_transaction(order, &payer, key.as_deref())
            .await?;
        Ok(OrderResult {
            is_credited,
            reason: reason.filter(|_| !is_credited),
            buckets,
        })
    }

    /// Gives tokens back to one participant, or says why not.
    async fn credit_participant(
        &self,
        order: &Order,
        participant: &str,
    ) -> Result<Result<(Box<str>, Vec<Credit>), &'static str>, Problem> {
        let id = LookupId {
            participant,
            payer: &order.payer,
            end_to_end_id: &order.end_to_end_id,
        };
        let claimed = self.0.lookups.claim(id, self.now()).await;
        let claimed = claimed.map_err(|error| Problem::unavailable(error.to_string()))?;
        let lookup = match claimed {
            Claimed::Yes(lookup) => lookup,
            Claimed::NoLookup => {
                return Ok(Err("no lookup by this participant for this payer and id"));
            }
            Claimed::TooLate => return Ok(Err("the lookup was too long ago")),
            Claimed::Before => return Ok(Err("it was credited before")),
        };
        match self.give_back(order, participant, &lookup.key).await {
            Ok(credits) => Ok(Ok((lookup.key, credits))),
            Err(error) => {
                // Without the claim, a repeated order can still be credited.
                let _as_far_as_possible = self.0.lookups.give_back(id).await;
                Err(Problem::unavailable(error.to_string()))
            }
        }
    }

    /// Credits the buckets that the lookup took from, each with what an order is worth there.
    async fn give_back(
        &self,
        order: &Order,
        participant: &str,
        key: &str,
    ) -> Result<Vec<Credit>, BucketError> {
        let table = &self.0.table;
        let base = table.profile().base_paths().first();
        let path = format!(
            "{}/entries/{}",
            base.map_or("", |base| base),
            utf8_percent_encode(key, NON_ALPHANUMERIC)
        );
        let headers = [
            (PARTICIPANT_HEADER, participant),
            (PAYER_HEADER, order.payer.as_str()),
            (END_TO_END_ID_HEADER, order.end_to_end_id.as_str()),
        ];
        let headers = headers.as_slice();
        let Ok(route) = table.route("GET", &path) else {
            return Ok(Vec::new());
        };
        let call = table.resolve(&route, &Incoming::new("", &headers));
        let id = if table.settings().credit_once {
            let id = format!("{participant}/{}/{}", order.payer, order.end_to_end_id);
            OpId::new(id).unwrap_or_else(|_| OpId::random())
        } else {
            OpId::random()
        };
        let subject = Subject::request(call.request());
        let engine = self.0.buckets.engine();
        let credited = engine.credit(PAYMENT_ORDER, &subject, &id).await?;
        let credits = credited.iter().map(|credited| Credit {
            participant: participant.to_owned(),
            policy: credited.policy().to_owned(),
            tokens: credited.tokens(),
            level: credited.level(),
        });
        Ok(credits.collect())
    }

    /// Records the transaction for infraction reports, refunds and statistics.
    async fn record_transaction(
        &self,
        order: &Order,
        payer: &str,
        key: Option<&str>,
    ) -> Result<(), Problem> {
        let entry = match key {
            Some(key) => {
                let found = self.0.directory.entry(key).await;
                found.map_err(|error| DirectoryError::from(error).into_problem())?
            }
            None => None,
        };
        let entry = entry.as_ref().map(|record| &record.entry);
        let transaction = Transaction {
            debited: payer.to_owned(),
            credited: order
                .credited_participant
                .as_deref()
                .map(|own| canonical_ispb(own).into_owned())
                .or_else(|| entry.map(|entry| entry.account.participant.clone())),
            key: key.map(str::to_owned),
            payee_tax_id: order
                .payee_tax_id
                .clone()
                .or_else(|| entry.map(|entry| entry.owner.tax_id_number.clone())),
            payer_tax_id: Some(order.payer.clone()),
            amount_cents: order.amount.as_deref().and_then(cents),
            kind: order.message,
            purpose: order.purpose.clone(),
            is_settled: order.settled,
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
