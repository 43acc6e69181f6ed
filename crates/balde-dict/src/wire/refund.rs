//! Refunds: one participant asks another for a transaction's money back.

use serde::{Deserialize, Serialize};

use super::element::Element;
use super::envelope::{Envelope, Head};
use super::form::Form;
use super::formats;
use super::infraction::DETAILS_CHARS_MAX;
use super::problem::Violation;
use super::time::Moment;
use super::words::{RefundReason, RefundRejection, RefundResult, RefundStatus};
use super::writer::Writer;

/// A refund that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refund {
    /// Its id.
    pub id: String,
    /// The transaction it is about.
    pub transaction_id: String,
    /// Why.
    pub reason: RefundReason,
    /// How much.
    pub amount: Option<String>,
    /// More about it.
    pub details: Option<String>,
    /// How far it has come.
    pub status: RefundStatus,
    /// Who asks.
    pub requesting_participant: String,
    /// Who is asked, once that is known.
    pub contested_participant: Option<String>,
    /// When it was created.
    pub creation_time: Moment,
    /// When it last changed.
    pub last_modified: Moment,
    /// What was done.
    pub analysis_result: Option<RefundResult>,
    /// More about that.
    pub analysis_details: Option<String>,
    /// Why nothing was done.
    pub rejection_reason: Option<RefundRejection>,
    /// The transaction that paid it back.
    pub refund_transaction_id: Option<String>,
}

/// createRefund.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateRefund {
    /// Who asks.
    pub participant: String,
    /// The transaction.
    pub transaction_id: String,
    /// Why.
    pub reason: RefundReason,
    /// How much.
    pub amount: Option<String>,
    /// More about it.
    pub details: Option<String>,
}

/// cancel- or closeRefund.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveRefund {
    /// Which refund.
    pub id: String,
    /// Who moves it.
    pub participant: String,
    /// What was done, to close.
    pub result: Option<RefundResult>,
    /// More about that.
    pub details: Option<String>,
    /// Why nothing was done.
    pub rejection: Option<RefundRejection>,
    /// The transaction that paid it back.
    pub refund_transaction_id: Option<String>,
}

impl Refund {
    fn write(&self, xml: &mut Writer) {
        xml.open("Refund")
            .element("TransactionId", &self.transaction_id)
            .element("RefundReason", self.reason.as_str())
            .maybe("RefundAmount", self.amount.as_deref())
            .maybe("RefundDetails", self.details.as_deref())
            .element("Id", &self.id)
            .element("Status", self.status.as_str())
            .maybe(
                "ContestedParticipant",
                self.contested_participant.as_deref(),
            )
            .element("RequestingParticipant", &self.requesting_participant)
            .element("CreationTime", &self.creation_time.to_string())
            .element("LastModified", &self.last_modified.to_string())
            .maybe(
                "AnalysisResult",
                self.analysis_result.map(RefundResult::as_str),
            )
            .maybe("AnalysisDetails", self.analysis_details.as_deref())
            .maybe(
                "RefundRejectionReason",
                self.rejection_reason.map(RefundRejection::as_str),
            )
            .maybe("RefundTransactionId", self.refund_transaction_id.as_deref())
            .close("Refund");
    }
}

impl CreateRefund {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut form = Form::new(root, "CreateRefundRequest");
        let participant = form.checked(
            "Participant",
            "is not an ISPB of 8 characters",
            formats::is_ispb,
        );
        let transaction_id = form.checked(
            "Refund/TransactionId",
            "is not the id of a transaction",
            formats::is_transaction_id,
        );
        let reason = form.word("Refund/RefundReason", RefundReason::read);
        let amount = form.maybe("Refund/RefundAmount", 19);
        if amount
            .as_deref()
            .is_some_and(|amount| !formats::is_amount(amount))
        {
            form.note_at("Refund/RefundAmount", "is no amount such as 100.00");
        }
        let details = form.maybe("Refund/RefundDetails", DETAILS_CHARS_MAX);
        let request = reason.map(|reason| Self {
            participant,
            transaction_id,
            reason,
            amount,
            details,
        });
        form.finish(request)
    }
}

impl MoveRefund {
    pub(crate) fn read(root: &Element, name: &str) -> Result<Self, Vec<Violation>> {
        let mut form = Form::new(root, name);
        let id = form.checked("RefundId", "is not a UUID", formats::is_uuid);
        let participant = form.checked(
            "Participant",
            "is not an ISPB of 8 characters",
            formats::is_ispb,
        );
        let result = (name == "CloseRefundRequest")
            .then(|| form.word("RefundAnalysisResult", read_result))
            .flatten();
        let details = form.maybe("RefundAnalysisDetails", DETAILS_CHARS_MAX);
        let rejection = form.maybe_word("RefundRejectionReason", RefundRejection::read);
        let refund_transaction_id = form.maybe("RefundTransactionId", 32);
        form.finish(Some(Self {
            id,
            participant,
            result,
            details,
            rejection,
            refund_transaction_id,
        }))
    }
}

/// One published version has a spelling of its own.
fn read_result(text: &str) -> Option<RefundResult> {
    match text {
        "PARCIALlY_ACCEPTED" => Some(RefundResult::PartiallyAccepted),
        _ => RefundResult::read(text),
    }
}

/// The answer to every operation on one refund.
pub(crate) fn refund_response(name: &'static str, head: &Head, refund: &Refund) -> String {
    let mut envelope = Envelope::new(name, head, 1_200);
    refund.write(envelope.xml());
    envelope.finish()
}

/// The answer to listRefunds.
pub(crate) fn list_refunds(head: &Head, refunds: &[Refund], has_more: bool) -> String {
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
