//! Messages about refunds, by which a participant requests a transaction's money back.

use balde_dict::wire::{Element, Timestamp, Violation, Writer, formats};
use serde::{Deserialize, Serialize};

use super::enums::{RefundReason, RefundRejection, RefundResult, RefundStatus, WireEnum};
use super::envelope::{Envelope, ResponseHead};
use super::infraction::{DETAILS_CHARS_MAX, UNKNOWN_PARTICIPANT};
use super::request_reader::{RequestReader, no_match};

/// A refund request and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_field_names,
    reason = "fields have the names of DICT's elements"
)]
pub(crate) struct Refund {
    /// The id.
    pub(crate) id: String,
    /// The id of the transaction to refund.
    pub(crate) transaction_id: String,
    /// The reason.
    pub(crate) reason: RefundReason,
    /// The amount, in cents.
    pub(crate) amount_cents: u64,
    /// The requesting participant's details.
    pub(crate) details: Option<String>,
    /// The status.
    pub(crate) status: RefundStatus,
    /// The participant that requests the refund.
    pub(crate) requesting_participant: String,
    /// The participant that is to refund, if it is known.
    pub(crate) contested_participant: Option<String>,
    /// When it was created.
    pub(crate) creation_time: Timestamp,
    /// When it last changed.
    pub(crate) last_modified: Timestamp,
    /// The infraction report that it follows from.
    pub(crate) infraction_report_id: Option<String>,
    /// The funds recovery that made it.
    pub(crate) funds_recovery_id: Option<String>,
    /// Whether the money was refunded.
    pub(crate) analysis_result: Option<RefundResult>,
    /// The contested participant's details.
    pub(crate) analysis_details: Option<String>,
    /// Why nothing was refunded.
    pub(crate) rejection_reason: Option<RefundRejection>,
    /// The id of the transaction that refunded the money.
    pub(crate) refund_transaction_id: Option<String>,
    /// The account to refund to, if a funds recovery made it.
    pub(crate) refund_account: Option<RefundAccount>,
    /// Whether the account that received the money is watched for new deposits.
    #[serde(default)]
    pub(crate) is_account_monitored: bool,
    /// What was refunded, in cents.
    pub(crate) effective_cents: Option<u64>,
}

/// The account that a funds recovery refunds to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RefundAccount {
    /// The owner's CPF or CNPJ.
    pub(crate) tax_id_number: String,
    /// The participant that holds the account.
    pub(crate) participant: String,
    /// The account number.
    pub(crate) account_number: String,
}

/// A createRefund request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateRefund {
    /// The participant that requests the refund.
    pub(crate) participant: String,
    /// The id of the transaction to refund.
    pub(crate) transaction_id: String,
    /// The reason.
    pub(crate) reason: RefundReason,
    /// The amount, in cents.
    pub(crate) amount_cents: u64,
    /// The requesting participant's details.
    pub(crate) details: Option<String>,
}

/// A cancelRefund or closeRefund request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefundActionRequest {
    /// The id of the refund.
    pub(crate) id: String,
    /// The participant that acts.
    pub(crate) participant: String,
    /// Whether the money was refunded, to close.
    pub(crate) result: Option<RefundResult>,
    /// The contested participant's details.
    pub(crate) details: Option<String>,
    /// Why nothing was refunded.
    pub(crate) rejection: Option<RefundRejection>,
    /// The id of the transaction that refunded the money.
    pub(crate) refund_transaction_id: Option<String>,
    /// What was refunded, in cents.
    pub(crate) effective_cents: Option<u64>,
}

impl Refund {
    pub(super) fn write(&self, xml: &mut Writer, has_details: bool) {
        let details = |text: &Option<String>| text.clone().filter(|_| has_details);
        let contested = self.contested_participant.as_deref();
        xml.open("Refund")
            .element("TransactionId", &self.transaction_id)
            .element("RefundReason", self.reason.as_str())
            .element("RefundAmount", &formats::amount_text(self.amount_cents))
            .optional("RefundDetails", details(&self.details).as_deref())
            .element("Id", &self.id)
            .optional("InfractionReportId", self.infraction_report_id.as_deref())
            .optional("FundsRecoveryId", self.funds_recovery_id.as_deref())
            .element("Status", self.status.as_str())
            .element(
                "ContestedParticipant",
                contested.unwrap_or(UNKNOWN_PARTICIPANT),
            )
            .element("RequestingParticipant", &self.requesting_participant)
            .optional(
                "AnalysisResult",
                self.analysis_result.map(RefundResult::as_str),
            )
            .optional(
                "AnalysisDetails",
                details(&self.analysis_details).as_deref(),
            )
            .optional(
                "RefundRejectionReason",
                self.rejection_reason.map(RefundRejection::as_str),
            )
            .optional("RefundTransactionId", self.refund_transaction_id.as_deref());
        if let Some(account) = &self.refund_account {
            let is_monitored = if self.is_account_monitored {
                "true"
            } else {
                "false"
            };
            xml.element("MonitorAccount", is_monitored);
            xml.open("RefundAccount")
                .element("TaxIdNumber", &account.tax_id_number)
                .element("Participant", &account.participant)
                .element("AccountNumber", &account.account_number)
                .element("AccountType", "CACC")
                .close("RefundAccount");
        }
        let effective = self.effective_cents.map(formats::amount_text);
        xml.optional("EffectiveRefundedAmount", effective.as_deref())
            .element("CreationTime", &self.creation_time.to_string())
            .element("LastModified", &self.last_modified.to_string())
            .close("Refund");
    }
}

impl CreateRefund {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, "CreateRefundRequest");
        let participant = reader.ispb("Participant");
        let transaction_id = reader.text_matching(
            "Refund/TransactionId",
            no_match!(r"\w{32}"),
            formats::is_transaction_id,
        );
        let reason = reader.value("Refund/RefundReason", RefundReason::parse);
        let amount = reader.text_matching(
            "Refund/RefundAmount",
            "is not an amount such as 100.00",
            |text| formats::cents(text).is_some(),
        );
        let details = reader.optional_text("Refund/RefundDetails", DETAILS_CHARS_MAX);
        if reason == Some(RefundReason::OperationalFlaw) && details.is_none() {
            reader.add_violation_at(
                "Refund/RefundDetails",
                "is missing: RefundReason OPERATIONAL_FLAW requires it",
            );
        }
        let request = reason.map(|reason| Self {
            participant,
            transaction_id,
            reason,
            amount_cents: formats::cents(&amount).unwrap_or(0),
            details,
        });
        reader.finish(request)
    }
}

impl RefundActionRequest {
    pub(crate) fn read(root: &Element, name: &str) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, name);
        let mut request = Self {
            id: reader.uuid("RefundId"),
            participant: reader.ispb("Participant"),
            result: None,
            details: None,
            rejection: None,
            refund_transaction_id: None,
            effective_cents: None,
        };
        if name == "CloseRefundRequest" {
            request.read_analysis(&mut reader);
        }
        reader.finish(Some(request))
    }

    fn read_analysis(&mut self, reader: &mut RequestReader<'_>) {
        self.result = reader.value("RefundAnalysisResult", RefundResult::parse);
        self.details = reader.optional_text("RefundAnalysisDetails", DETAILS_CHARS_MAX);
        self.rejection = reader.optional_value("RefundRejectionReason", |text| {
            RefundRejection::parse(text)
                .filter(|reason| *reason != RefundRejection::ParticipantExclusion)
        });
        self.refund_transaction_id = reader.optional_matching(
            "RefundTransactionId",
            no_match!(r"\w{32}"),
            formats::is_transaction_id,
        );
        let amount = reader.optional_matching(
            "EffectiveRefundedAmount",
            "is not an amount such as 100.00",
            |text| formats::cents(text).is_some(),
        );
        self.effective_cents = amount.as_deref().and_then(formats::cents);
        match self.result {
            Some(RefundResult::Rejected) if !reader.has("RefundRejectionReason") => {
                let reason = "is missing: RefundAnalysisResult REJECTED requires it";
                reader.add_violation_at("RefundRejectionReason", reason);
            }
            Some(RefundResult::TotallyAccepted | RefundResult::PartiallyAccepted)
                if !reader.has("RefundTransactionId") =>
            {
                let reason = "is missing: an accepted refund requires it";
                reader.add_violation_at("RefundTransactionId", reason);
            }
            _ => {}
        }
        let is_invalid = self.rejection == Some(RefundRejection::InvalidRequest);
        if is_invalid && self.details.is_none() {
            let reason = "is missing: RefundRejectionReason INVALID_REQUEST requires it";
            reader.add_violation_at("RefundAnalysisDetails", reason);
        }
    }
}

/// Writes the response to an operation on one refund.
pub(crate) fn refund_response(name: &'static str, head: &ResponseHead, refund: &Refund) -> String {
    let mut envelope = Envelope::new(name, head, 1_200);
    refund.write(envelope.xml(), true);
    envelope.finish()
}

/// Writes the response to listRefunds.
pub(crate) fn list_refunds(
    head: &ResponseHead,
    refunds: &[Refund],
    next_cursor: Option<&str>,
    has_details: bool,
) -> String {
    let mut envelope = Envelope::new("ListRefundsResponse", head, 400 + 900 * refunds.len());
    let xml = envelope.xml();
    let has_more = next_cursor.is_some();
    xml.element("HasMoreElements", if has_more { "true" } else { "false" })
        .optional("NextCursor", next_cursor);
    xml.within("Refunds", |xml| {
        for refund in refunds {
            refund.write(xml, has_details);
        }
    });
    envelope.finish()
}
