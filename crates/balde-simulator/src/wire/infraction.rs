//! Messages about infraction reports, by which a participant reports a suspicious transaction.

use balde_dict::wire::{Element, Timestamp, Violation, Writer, formats};
use serde::{Deserialize, Serialize};

use super::contact::Contact;
use super::enums::{
    AnalysisResult, FraudType, InfractionReason, InfractionStatus, ReportedBy, SituationType,
    WireEnum,
};
use super::envelope::{Envelope, ResponseHead};
use super::request_reader::{RequestReader, no_match};
use super::version::ApiVersion;

/// The most characters of a details field.
pub(super) const DETAILS_CHARS_MAX: usize = 2_000;

/// Stands for the other side of a transaction that no payment order has announced, until a
/// participant acts for that side. Answers must name a participant there.
pub(super) const UNKNOWN_PARTICIPANT: &str = "99999999";

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
    /// The reporter's contact.
    pub(crate) contact: Option<Contact>,
    /// The funds recovery that made it.
    pub(crate) funds_recovery_id: Option<String>,
    /// The status.
    pub(crate) status: InfractionStatus,
    /// The participant that reported.
    pub(crate) reporter: String,
    /// The participant on the other side of the transaction, if it is known.
    pub(crate) counterparty: Option<String>,
    /// Whether the reporter is the payer's or the payee's participant.
    pub(crate) reported_by: ReportedBy,
    /// The fraud marker that closing it created.
    pub(crate) fraud_marker_id: Option<String>,
    /// The counterparty's conclusion.
    pub(crate) analysis_result: Option<AnalysisResult>,
    /// The counterparty's details.
    pub(crate) analysis_details: Option<String>,
    /// The kind of fraud.
    pub(crate) fraud_type: Option<FraudType>,
    /// The amount of the transaction, in cents.
    pub(crate) amount_cents: Option<u64>,
    /// When it was created.
    pub(crate) creation_time: Timestamp,
    /// When it last changed.
    pub(crate) last_modified: Timestamp,
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
    /// The reporter's contact.
    pub(crate) contact: Option<Contact>,
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
    /// The reporter's contact, to update.
    pub(crate) contact: Option<Contact>,
    /// The conclusion, to close.
    pub(crate) analysis_result: Option<AnalysisResult>,
    /// The counterparty's details.
    pub(crate) analysis_details: Option<String>,
    /// The kind of fraud.
    pub(crate) fraud_type: Option<FraudType>,
}

/// How reports are written: in the form of a version, with or without the details fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportForm {
    /// The version of the API.
    pub(crate) version: ApiVersion,
    /// Whether the details of both sides are included.
    pub(crate) has_details: bool,
}

impl InfractionReport {
    /// The participant that answers name as the counterparty.
    fn counterparty_text(&self) -> &str {
        self.counterparty.as_deref().unwrap_or(UNKNOWN_PARTICIPANT)
    }

    pub(super) fn write(&self, xml: &mut Writer, form: ReportForm) {
        let details = |text: &Option<String>| text.clone().filter(|_| form.has_details);
        xml.open("InfractionReport")
            .element("TransactionId", &self.transaction_id);
        if form.version == ApiVersion::V1 {
            self.write_v1(xml, form);
            xml.close("InfractionReport");
            return;
        }
        xml.element("Reason", self.reason.as_str())
            .element("SituationType", self.situation_type.as_str())
            .optional("ReportDetails", details(&self.report_details).as_deref())
            .element("Id", &self.id)
            .optional("FundsRecoveryId", self.funds_recovery_id.as_deref())
            .element("Status", self.status.as_str())
            .element("ReporterParticipant", &self.reporter)
            .element("CounterpartyParticipant", self.counterparty_text())
            .optional("FraudMarkerId", self.fraud_marker_id.as_deref())
            .optional(
                "AnalysisResult",
                self.analysis_result.map(AnalysisResult::as_str),
            )
            .optional(
                "AnalysisDetails",
                details(&self.analysis_details).as_deref(),
            );
        if let Some(contact) = &self.contact {
            contact.write(xml);
        }
        let amount = self.amount_cents.map(formats::amount_text);
        xml.optional("InfractionAmount", amount.as_deref())
            .element("CreationTime", &self.creation_time.to_string())
            .element("LastModified", &self.last_modified.to_string())
            .close("InfractionReport");
    }

    /// The fields of version 1 after the transaction.
    fn write_v1(&self, xml: &mut Writer, form: ReportForm) {
        let details = |text: &Option<String>| text.clone().filter(|_| form.has_details);
        let (debited, credited) = match self.reported_by {
            ReportedBy::Debited => (self.reporter.as_str(), self.counterparty_text()),
            ReportedBy::Credited => (self.counterparty_text(), self.reporter.as_str()),
        };
        xml.element("InfractionType", self.reason.as_str())
            .optional("ReportDetails", details(&self.report_details).as_deref())
            .element("Id", &self.id)
            .element("ReportedBy", self.reported_by.as_str())
            .element("Status", self.status.as_str())
            .element("DebitedParticipant", debited)
            .element("CreditedParticipant", credited)
            .element("CreationTime", &self.creation_time.to_string())
            .element("LastModified", &self.last_modified.to_string())
            .optional(
                "AnalysisResult",
                self.analysis_result.map(AnalysisResult::as_str),
            )
            .optional(
                "AnalysisDetails",
                details(&self.analysis_details).as_deref(),
            );
    }
}

impl CreateInfractionReport {
    pub(crate) fn read(root: &Element, version: ApiVersion) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, "CreateInfractionReportRequest");
        let participant = reader.ispb("Participant");
        let transaction_id = reader.text_matching(
            "InfractionReport/TransactionId",
            no_match!(r"\w{8,32}"),
            formats::is_reported_transaction_id,
        );
        let is_v1 = version == ApiVersion::V1;
        // Version 1 names the field InfractionType and has no SituationType.
        let (reason, situation_type) = if is_v1 {
            let parse = InfractionReason::parse;
            let reason = reader.value("InfractionReport/InfractionType", parse);
            (reason, Some(SituationType::Unknown))
        } else {
            let reason = reader.value("InfractionReport/Reason", |text| {
                InfractionReason::parse(text).filter(|reason| *reason != InfractionReason::Fraud)
            });
            let path = "InfractionReport/SituationType";
            (reason, reader.value(path, parse_situation))
        };
        let report_details =
            reader.optional_text("InfractionReport/ReportDetails", DETAILS_CHARS_MAX);
        if situation_type == Some(SituationType::Other) && report_details.is_none() {
            reader.add_violation_at(
                "InfractionReport/ReportDetails",
                "is missing: SituationType OTHER requires it",
            );
        }
        let is_cancelled = reason == Some(InfractionReason::RefundCancelled);
        if is_cancelled && !is_v1 && situation_type != Some(SituationType::Other) {
            reader.add_violation_at(
                "InfractionReport/SituationType",
                "is not OTHER, which Reason REFUND_CANCELLED requires",
            );
        }
        let contact = Contact::read(&mut reader, "InfractionReport/ContactInformation");
        let request = reason.zip(situation_type);
        let request = request.map(|(reason, situation_type)| Self {
            participant,
            transaction_id,
            reason,
            situation_type,
            report_details,
            contact,
        });
        reader.finish(request)
    }
}

impl InfractionActionRequest {
    pub(crate) fn read(
        root: &Element,
        name: &str,
        version: ApiVersion,
    ) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, name);
        let mut request = Self {
            id: reader.uuid("InfractionReportId"),
            participant: reader.ispb("Participant"),
            situation_type: None,
            report_details: None,
            contact: None,
            analysis_result: None,
            analysis_details: None,
            fraud_type: None,
        };
        match name {
            "CloseInfractionReportRequest" => request.read_analysis(&mut reader, version),
            "UpdateInfractionReportRequest" => {
                request.situation_type = reader.optional_value("SituationType", parse_situation);
                request.report_details = reader.optional_text("ReportDetails", DETAILS_CHARS_MAX);
                request.contact = Contact::read(&mut reader, "ContactInformation");
                let is_other = request.situation_type == Some(SituationType::Other);
                if is_other && request.report_details.is_none() {
                    let reason = "is missing: SituationType OTHER requires it";
                    reader.add_violation_at("ReportDetails", reason);
                }
            }
            _ => {}
        }
        reader.finish(Some(request))
    }

    fn read_analysis(&mut self, reader: &mut RequestReader<'_>, version: ApiVersion) {
        self.analysis_result = reader.value("AnalysisResult", AnalysisResult::parse);
        self.fraud_type = reader.optional_value("FraudType", |text| {
            FraudType::parse(text).filter(|kind| *kind != FraudType::Unknown)
        });
        self.analysis_details = reader.optional_text("AnalysisDetails", DETAILS_CHARS_MAX);
        let is_agreed = self.analysis_result == Some(AnalysisResult::Agreed);
        if version == ApiVersion::V1 {
            // Version 1 does not say of what kind a fraud is.
            self.fraud_type = is_agreed.then_some(FraudType::Unknown);
            return;
        }
        if is_agreed && self.fraud_type.is_none() && !reader.has("FraudType") {
            let reason = "is missing: AnalysisResult AGREED requires it";
            reader.add_violation_at("FraudType", reason);
        }
        if self.fraud_type == Some(FraudType::Other) && self.analysis_details.is_none() {
            let reason = "is missing: FraudType OTHER requires it";
            reader.add_violation_at("AnalysisDetails", reason);
        }
        if !is_agreed && self.fraud_type.is_some() {
            reader.add_violation_at("FraudType", "is only for AnalysisResult AGREED");
        }
    }
}

/// UNKNOWN is only in responses.
pub(super) fn parse_situation(text: &str) -> Option<SituationType> {
    SituationType::parse(text).filter(|situation| *situation != SituationType::Unknown)
}

/// Writes the response to an operation on one report.
pub(crate) fn infraction_response(
    name: &'static str,
    head: &ResponseHead,
    report: &InfractionReport,
    version: ApiVersion,
) -> String {
    let mut envelope = Envelope::new(name, head, 1_200);
    let form = ReportForm {
        version,
        has_details: true,
    };
    report.write(envelope.xml(), form);
    envelope.finish()
}

/// Writes the response to listInfractionReports.
pub(crate) fn list_infractions(
    head: &ResponseHead,
    reports: &[InfractionReport],
    has_more: bool,
    form: ReportForm,
) -> String {
    let bytes = 400 + 900 * reports.len();
    let mut envelope = Envelope::new("ListInfractionReportsResponse", head, bytes);
    let xml = envelope.xml();
    xml.element("HasMoreElements", if has_more { "true" } else { "false" });
    xml.within("InfractionReports", |xml| {
        for report in reports {
            report.write(xml, form);
        }
    });
    envelope.finish()
}
