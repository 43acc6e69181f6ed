//! Messages about infraction reports, by which a participant reports a suspicious transaction.

use serde::{Deserialize, Serialize};

use super::element::Element;
use super::enums::{
    AnalysisResult, FraudType, InfractionReason, InfractionStatus, ReportedBy, SituationType,
    WireEnum,
};
use super::envelope::{Envelope, ResponseHead};
use super::formats;
use super::problem::Violation;
use super::request_reader::RequestReader;
use super::timestamp::Timestamp;
use super::writer::Writer;

/// The most characters of a details field.
pub(super) const DETAILS_CHARS_MAX: usize = 2_000;

/// An infraction report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InfractionReport {
    /// The id.
    pub(crate) id: String,
    /// The id of the reported transaction.
    pub(crate) transaction_id: String,
    /// The purpose of the report.
    pub(crate) reason: InfractionReason,
    /// How the fraud was committed.
    pub(crate) situation_type: SituationType,
    /// The reporter's details.
    pub(crate) report_details: Option<String>,
    /// Which side reported it.
    pub(crate) reported_by: ReportedBy,
    /// The status.
    pub(crate) status: InfractionStatus,
    /// The payer's participant, if it is known.
    pub(crate) debited_participant: Option<String>,
    /// The payee's participant, if it is known.
    pub(crate) credited_participant: Option<String>,
    /// When it was created.
    pub(crate) creation_time: Timestamp,
    /// When it last changed.
    pub(crate) last_modified: Timestamp,
    /// The counterparty's conclusion.
    pub(crate) analysis_result: Option<AnalysisResult>,
    /// The counterparty's details.
    pub(crate) analysis_details: Option<String>,
    /// The kind of fraud.
    pub(crate) fraud_type: Option<FraudType>,
}

/// A createInfractionReport request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateInfractionReport {
    /// The participant that reports.
    pub(crate) participant: String,
    /// The id of the reported transaction.
    pub(crate) transaction_id: String,
    /// The purpose of the report.
    pub(crate) reason: InfractionReason,
    /// How the fraud was committed.
    pub(crate) situation_type: SituationType,
    /// The reporter's details.
    pub(crate) report_details: Option<String>,
}

/// An update-, acknowledge-, cancel- or closeInfractionReport request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InfractionActionRequest {
    /// The id of the report.
    pub(crate) id: String,
    /// The participant that acts.
    pub(crate) participant: String,
    /// How the fraud was committed, to update.
    pub(crate) situation_type: Option<SituationType>,
    /// The reporter's details, to update.
    pub(crate) report_details: Option<String>,
    /// The conclusion, to close.
    pub(crate) analysis_result: Option<AnalysisResult>,
    /// The counterparty's details.
    pub(crate) analysis_details: Option<String>,
    /// The kind of fraud.
    pub(crate) fraud_type: Option<FraudType>,
}

impl InfractionReport {
    /// The participant that reported, if it is known.
    pub(crate) fn reporter(&self) -> Option<&str> {
        match self.reported_by {
            ReportedBy::Debited => self.debited_participant.as_deref(),
            ReportedBy::Credited => self.credited_participant.as_deref(),
        }
    }

    /// The participant on the other side of the transaction, if it is known.
    pub(crate) fn counterparty(&self) -> Option<&str> {
        match self.reported_by {
            ReportedBy::Debited => self.credited_participant.as_deref(),
            ReportedBy::Credited => self.debited_participant.as_deref(),
        }
    }

    /// Sets the counterparty of a transaction whose other side is not known yet.
    pub(crate) fn set_counterparty(&mut self, participant: &str) {
        let field = match self.reported_by {
            ReportedBy::Debited => &mut self.credited_participant,
            ReportedBy::Credited => &mut self.debited_participant,
        };
        *field = Some(participant.to_owned());
    }

    fn write(&self, xml: &mut Writer) {
        xml.open("InfractionReport")
            .element("TransactionId", &self.transaction_id)
            .element("Reason", self.reason.as_str())
            .element("SituationType", self.situation_type.as_str())
            .optional("ReportDetails", self.report_details.as_deref())
            .element("Id", &self.id)
            .element("ReportedBy", self.reported_by.as_str())
            .element("Status", self.status.as_str())
            .optional("DebitedParticipant", self.debited_participant.as_deref())
            .optional("CreditedParticipant", self.credited_participant.as_deref())
            .element("CreationTime", &self.creation_time.to_string())
            .element("LastModified", &self.last_modified.to_string())
            .optional("FraudType", self.fraud_type.map(FraudType::as_str))
            .optional(
                "AnalysisResult",
                self.analysis_result.map(AnalysisResult::as_str),
            )
            .optional("AnalysisDetails", self.analysis_details.as_deref())
            .close("InfractionReport");
    }
}

impl CreateInfractionReport {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, "CreateInfractionReportRequest");
        let participant = reader.ispb("Participant");
        let transaction_id = reader.text_matching(
            "InfractionReport/TransactionId",
            "is not the id of a transaction",
            formats::is_transaction_id,
        );
        // Version 1 of the API names the field InfractionType and has no SituationType.
        let reason = if root.at("InfractionReport/InfractionType").is_some() {
            reader.value("InfractionReport/InfractionType", InfractionReason::parse)
        } else {
            reader.value("InfractionReport/Reason", InfractionReason::parse)
        };
        let situation_type =
            reader.optional_value("InfractionReport/SituationType", SituationType::parse);
        let report_details =
            reader.optional_text("InfractionReport/ReportDetails", DETAILS_CHARS_MAX);
        if situation_type == Some(SituationType::Other) && report_details.is_none() {
            reader.add_violation_at(
                "InfractionReport/ReportDetails",
                "is missing: SituationType OTHER requires it",
            );
        }
        let request = reason.map(|reason| Self {
            participant,
            transaction_id,
            reason,
            situation_type: situation_type.unwrap_or(SituationType::Unknown),
            report_details,
        });
        reader.finish(request)
    }
}

impl InfractionActionRequest {
    pub(crate) fn read(root: &Element, name: &str) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, name);
        let id = reader.uuid("InfractionReportId");
        let participant = reader.ispb("Participant");
        let is_close = name == "CloseInfractionReportRequest";
        let is_update = name == "UpdateInfractionReportRequest";
        let analysis_result = is_close
            .then(|| reader.value("AnalysisResult", AnalysisResult::parse))
            .flatten();
        let fraud_type = reader.optional_value("FraudType", FraudType::parse);
        let analysis_details = reader.optional_text("AnalysisDetails", DETAILS_CHARS_MAX);
        let (mut situation_type, mut report_details) = (None, None);
        if is_update {
            // Clients write these fields either inside the report or beside it.
            let at = |name: &str| match root.at(&format!("InfractionReport/{name}")) {
                Some(_) => format!("InfractionReport/{name}"),
                None => name.to_owned(),
            };
            situation_type = reader.optional_value(&at("SituationType"), SituationType::parse);
            report_details = reader.optional_text(&at("ReportDetails"), DETAILS_CHARS_MAX);
        }
        reader.finish(Some(Self {
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

/// Writes the response to an operation on one report.
pub(crate) fn infraction_response(
    name: &'static str,
    head: &ResponseHead,
    report: &InfractionReport,
) -> String {
    let mut envelope = Envelope::new(name, head, 1_200);
    report.write(envelope.xml());
    envelope.finish()
}

/// Writes the response to listInfractionReports.
pub(crate) fn list_infractions(
    head: &ResponseHead,
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
