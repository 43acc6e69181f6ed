//! Infraction reports: one participant tells another of a suspicious transaction.

use serde::{Deserialize, Serialize};

use super::element::Element;
use super::envelope::{Envelope, Head};
use super::form::Form;
use super::formats;
use super::problem::Violation;
use super::time::Moment;
use super::words::{
    AnalysisResult, FraudType, InfractionReason, InfractionStatus, ReportedBy, SituationType,
};
use super::writer::Writer;

/// The longest details, in characters.
pub(super) const DETAILS_CHARS_MAX: usize = 2_000;

/// An infraction report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InfractionReport {
    /// Its id.
    pub id: String,
    /// The transaction it is about.
    pub transaction_id: String,
    /// What it is for.
    pub reason: InfractionReason,
    /// How it came about.
    pub situation_type: SituationType,
    /// More about it.
    pub report_details: Option<String>,
    /// Which side reported.
    pub reported_by: ReportedBy,
    /// How far it has come.
    pub status: InfractionStatus,
    /// The payer's participant, once it is known.
    pub debited_participant: Option<String>,
    /// The payee's participant, once it is known.
    pub credited_participant: Option<String>,
    /// When it was created.
    pub creation_time: Moment,
    /// When it last changed.
    pub last_modified: Moment,
    /// What the counterparty found.
    pub analysis_result: Option<AnalysisResult>,
    /// More about that.
    pub analysis_details: Option<String>,
    /// What kind of fraud it was.
    pub fraud_type: Option<FraudType>,
}

/// createInfractionReport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateInfractionReport {
    /// Who reports.
    pub participant: String,
    /// The transaction.
    pub transaction_id: String,
    /// What for.
    pub reason: InfractionReason,
    /// How it came about.
    pub situation_type: SituationType,
    /// More about it.
    pub report_details: Option<String>,
}

/// update-, acknowledge-, cancel- or closeInfractionReport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveInfractionReport {
    /// Which report.
    pub id: String,
    /// Who moves it.
    pub participant: String,
    /// How it came about, to update.
    pub situation_type: Option<SituationType>,
    /// More about it, to update.
    pub report_details: Option<String>,
    /// What was found, to close.
    pub analysis_result: Option<AnalysisResult>,
    /// More about that.
    pub analysis_details: Option<String>,
    /// What kind of fraud it was.
    pub fraud_type: Option<FraudType>,
}

impl InfractionReport {
    /// Who reported.
    pub fn reporter(&self) -> Option<&str> {
        match self.reported_by {
            ReportedBy::Debited => self.debited_participant.as_deref(),
            ReportedBy::Credited => self.credited_participant.as_deref(),
        }
    }

    /// Who was told, once that is known.
    pub fn counterparty(&self) -> Option<&str> {
        match self.reported_by {
            ReportedBy::Debited => self.credited_participant.as_deref(),
            ReportedBy::Credited => self.debited_participant.as_deref(),
        }
    }

    /// Whoever first acts as the counterparty of a transaction that nobody knows becomes it.
    pub(crate) fn set_counterparty(&mut self, participant: &str) {
        let place = match self.reported_by {
            ReportedBy::Debited => &mut self.credited_participant,
            ReportedBy::Credited => &mut self.debited_participant,
        };
        *place = Some(participant.to_owned());
    }

    fn write(&self, xml: &mut Writer) {
        xml.open("InfractionReport")
            .element("TransactionId", &self.transaction_id)
            .element("Reason", self.reason.as_str())
            .element("SituationType", self.situation_type.as_str())
            .maybe("ReportDetails", self.report_details.as_deref())
            .element("Id", &self.id)
            .element("ReportedBy", self.reported_by.as_str())
            .element("Status", self.status.as_str())
            .maybe("DebitedParticipant", self.debited_participant.as_deref())
            .maybe("CreditedParticipant", self.credited_participant.as_deref())
            .element("CreationTime", &self.creation_time.to_string())
            .element("LastModified", &self.last_modified.to_string())
            .maybe("FraudType", self.fraud_type.map(FraudType::as_str))
            .maybe(
                "AnalysisResult",
                self.analysis_result.map(AnalysisResult::as_str),
            )
            .maybe("AnalysisDetails", self.analysis_details.as_deref())
            .close("InfractionReport");
    }
}

impl CreateInfractionReport {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut form = Form::new(root, "CreateInfractionReportRequest");
        let participant = form.checked(
            "Participant",
            "is not an ISPB of 8 characters",
            formats::is_ispb,
        );
        let transaction_id = form.checked(
            "InfractionReport/TransactionId",
            "is not the id of a transaction",
            formats::is_transaction_id,
        );
        // Version 1 calls it InfractionType and has no situations.
        let reason = if root.at("InfractionReport/InfractionType").is_some() {
            form.word("InfractionReport/InfractionType", InfractionReason::read)
        } else {
            form.word("InfractionReport/Reason", InfractionReason::read)
        };
        let situation_type = form.maybe_word("InfractionReport/SituationType", SituationType::read);
        let report_details = form.maybe("InfractionReport/ReportDetails", DETAILS_CHARS_MAX);
        if situation_type == Some(SituationType::Other) && report_details.is_none() {
            form.note_at(
                "InfractionReport/ReportDetails",
                "is missing: the situation OTHER needs it",
            );
        }
        let request = reason.map(|reason| Self {
            participant,
            transaction_id,
            reason,
            situation_type: situation_type.unwrap_or(SituationType::Unknown),
            report_details,
        });
        form.finish(request)
    }
}

impl MoveInfractionReport {
    pub(crate) fn read(root: &Element, name: &str) -> Result<Self, Vec<Violation>> {
        let mut form = Form::new(root, name);
        let id = form.checked("InfractionReportId", "is not a UUID", formats::is_uuid);
        let participant = form.checked(
            "Participant",
            "is not an ISPB of 8 characters",
            formats::is_ispb,
        );
        let is_close = name == "CloseInfractionReportRequest";
        let is_update = name == "UpdateInfractionReportRequest";
        let analysis_result = is_close
            .then(|| form.word("AnalysisResult", AnalysisResult::read))
            .flatten();
        let fraud_type = form.maybe_word("FraudType", FraudType::read);
        let analysis_details = form.maybe("AnalysisDetails", DETAILS_CHARS_MAX);
        let (mut situation_type, mut report_details) = (None, None);
        if is_update {
            // Clients write the fields inside or beside the report.
            let at = |name: &str| match root.at(&format!("InfractionReport/{name}")) {
                Some(_) => format!("InfractionReport/{name}"),
                None => name.to_owned(),
            };
            situation_type = form.maybe_word(&at("SituationType"), SituationType::read);
            report_details = form.maybe(&at("ReportDetails"), DETAILS_CHARS_MAX);
        }
        form.finish(Some(Self {
            id,
            participant,
            situation_type,
            report_details,
            analysis_result,
            analysis_details,
            fraud_type,
        }))
    }
}

/// The answer to every operation on one report.
pub(crate) fn infraction_response(
    name: &'static str,
    head: &Head,
    report: &InfractionReport,
) -> String {
    let mut envelope = Envelope::new(name, head, 1_200);
    report.write(envelope.xml());
    envelope.finish()
}

/// The answer to listInfractionReports.
pub(crate) fn list_infractions(
    head: &Head,
    reports: &[InfractionReport],
    has_more: bool,
) -> String {
    let bytes = 400 + 900 * reports.len();
    let mut envelope = Envelope::new("ListInfractionReportsResponse", head, bytes);
    let xml = envelope.xml();
    xml.element("HasMoreElements", if has_more { "true" } else { "false" });
    xml.within("InfractionReports", |xml| {
        for report in reports {
            report.write(xml);
        }
    });
    envelope.finish()
}
