//! Messages about refunds, by which a participant requests a transaction's money back.

use serde::{Deserialize, Serialize};

use super::element::Element;
use super::enums::{RefundReason, RefundRejection, RefundResult, RefundStatus, WireEnum};
use super::envelope::{Envelope, ResponseHead};
use super::formats;
use super::infraction::DETAILS_CHARS_MAX;
use super::problem::Violation;
use super::request_reader::RequestReader;
use super::timestamp::Timestamp;
use super::writer::Writer;

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
    /// The amount.
    pub(crate) amount: Option<String>,
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
    /// Whether the money was refunded.
    pub(crate) analysis_result: Option<RefundResult>,
    /// The contested participant's details.
    pub(crate) analysis_details: Option<String>,
    /// Why nothing was refunded.
    pub(crate) rejection_reason: Option<RefundRejection>,
    /// The id of the transaction that refunded the money.
    pub(crate) refund_transaction_id: Option<String>,
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
    /// The amount.
    pub(crate) amount: Option<String>,
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
}

impl Refund {
    fn write(&self, xml: &mut Writer) {
        xml.open("Refund")
            .element("TransactionId", &self.transaction_id)
            .element("RefundReason", self.reason.as_str())
            .optional("RefundAmount", self.amount.as_deref())
            .optional("RefundDetails", self.details.as_deref())
            .element("Id", &self.id)
            .element("Status", self.status.as_str())
            .optional(
                "ContestedParticipant",
                self.contested_participant.as_deref(),
            )
            .element("RequestingParticipant", &self.requesting_participant)
            .element("CreationTime", &self.creation_time.to_string())
            .element("LastModified", &self.last_modified.to_string())
            .optional(
                "AnalysisResult",
                self.analysis_result.map(RefundResult::as_str),
            )
            .optional("AnalysisDetails", self.analysis_details.as_deref())
            .optional(
                "RefundRejectionReason",
                self.rejection_reason.map(RefundRejection::as_str),
            )
            .optional("RefundTransactionId", self.refund_transaction_id.as_deref())
            .close("Refund");
    }
}

impl CreateRefund {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, "CreateRefundRequest");
        let participant = reader.ispb("Participant");
        let transaction_id = reader.text_matching(
            "Refund/TransactionId",
            "is not the id of a transaction",
            formats::is_transaction_id,
        );
        let reason = reader.value("Refund/RefundReason", RefundReason::parse);
        let amount = reader.optional_text("Refund/RefundAmount", 19);
        if amount
            .as_deref()
            .is_some_and(|amount| !formats::is_amount(amount))
        {
            reader.add_violation_at("Refund/RefundAmount", "is not an amount such as 100.00");
        }
        let details = reader.optional_text("Refund/RefundDetails", DETAILS_CHARS_MAX);
        let request = reason.map(|reason| Self {
            participant,
            transaction_id,
            reason,
            amount,
            details,
        });
        reader.finish(request)
    }
}

impl RefundActionRequest {
    pub(crate) fn read(root: &Element, name: &str) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, name);
        let id = reader.uuid("RefundId");
        let participant = reader.ispb("Participant");
        let result = (name == "CloseRefundRequest")
            .then(|| reader.value("RefundAnalysisResult", parse_result))
            .flatten();
        let details = reader.optional_text("RefundAnalysisDetails", DETAILS_CHARS_MAX);
        let rejection = reader.optional_value("RefundRejectionReason", RefundRejection::parse);
        let refund_transaction_id = reader.optional_text("RefundTransactionId", 32);
        reader.finish(Some(Self {
            id,
            participant,
            result,
            details,
            rejection,
            refund_transaction_id,
        }))
    }
}

/// Parses the result. One published version of the API misspells a value.
fn parse_result(text: &str) -> Option<RefundResult> {
    match text {
        "PARCIALlY_ACCEPTED" => Some(RefundResult::PartiallyAccepted),
        _ => RefundResult::parse(text),
    }
}

/// Writes the response to an operation on one refund.
pub(crate) fn refund_response(name: &'static str, head: &ResponseHead, refund: &Refund) -> String {
    let mut envelope = Envelope::new(name, head, 1_200);
    refund.write(envelope.xml());
    envelope.finish()
}

/// Writes the response to listRefunds.
pub(crate) fn list_refunds(head: &ResponseHead, refunds: &[Refund], has_more: bool) -> String {
    let mut envelope = Envelope::new("ListRefundsResponse", head, 400 + 900 * refunds.len());
    let xml = envelope.xml();
    xml.element("HasMoreElements", if has_more { "true" } else { "false" });
    xml.within("Refunds", |xml| {
        for refund in refunds {
            refund.write(xml);
        }
    });
    envelope.finish()
}
