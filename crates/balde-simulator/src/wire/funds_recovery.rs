//! Messages about funds recoveries, which follow the money of a fraud through several accounts.

use balde_dict::wire::{Element, Timestamp, Violation, Writer, formats};
use serde::{Deserialize, Serialize};

use super::contact::Contact;
use super::enums::{
    FundsRecoveryStatus, OwnerType, PrioritizationStrategy, SituationType, WireEnum,
};
use super::envelope::{Envelope, ResponseHead};
use super::infraction::{DETAILS_CHARS_MAX, InfractionReport, ReportForm, parse_situation};
use super::refund::Refund;
use super::request_reader::{RequestReader, no_match};
use super::version::ApiVersion;

/// The longest time between two transactions of a graph, in seconds.
const HOP_WINDOW_MAX_S: u64 = 2 * 3_600;

/// The most transactions of a graph, and the most layers that it has, with the root as the first.
const TRANSACTIONS_MAX: u64 = 5;
const HOPS_MAX: u64 = 2;

/// A funds recovery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FundsRecovery {
    /// The id.
    pub(crate) id: String,
    /// Whether the request named its flow, which is always `AUTOMATED`.
    pub(crate) has_flow_type: bool,
    /// The id of the transaction that the fraud began with.
    pub(crate) root_transaction_id: String,
    /// How the fraud was committed.
    pub(crate) situation_type: SituationType,
    /// The creator's details.
    pub(crate) report_details: Option<String>,
    /// The creator's contact.
    pub(crate) contact: Contact,
    /// The status.
    pub(crate) status: FundsRecoveryStatus,
    /// The participant that created it.
    pub(crate) reporter: String,
    /// When it was created.
    pub(crate) creation_time: Timestamp,
    /// When it last changed.
    pub(crate) last_modified: Timestamp,
    /// When its infraction reports were all closed.
    pub(crate) analysed_at: Option<Timestamp>,
    /// How the graph is made.
    pub(crate) parameters: GraphParameters,
    /// The graph, once it was made.
    pub(crate) graph: Option<TrackingGraph>,
    /// The ids of its infraction reports, that of the root transaction first.
    pub(crate) reports: Vec<String>,
    /// The ids of its refunds, in the order of their creation.
    pub(crate) refunds: Vec<String>,
}

/// How a tracking graph is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GraphParameters {
    /// The least amount of a transaction after the root, in cents.
    pub(crate) min_cents: u64,
    /// The most transactions.
    pub(crate) transactions_max: u64,
    /// The longest time between two transactions, in seconds.
    pub(crate) hop_window_s: u64,
    /// The most layers of transactions, of which the root is the first.
    pub(crate) hops_max: u64,
}

/// The persons, accounts and transactions that the money went through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrackingGraph {
    /// When it was made.
    pub(crate) creation_time: Timestamp,
    /// The persons, whose ids are their positions, from one.
    pub(crate) persons: Vec<OwnerType>,
    /// The accounts, whose ids are their positions, from one.
    pub(crate) accounts: Vec<GraphAccount>,
    /// The transactions, the root first.
    pub(crate) transactions: Vec<GraphTransaction>,
}

/// An account of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GraphAccount {
    /// The id of its owner.
    pub(crate) owner: usize,
    /// The participant that holds it.
    pub(crate) participant: String,
}

/// A transaction of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GraphTransaction {
    /// The id of the transaction.
    pub(crate) id: String,
    /// The id of the payer's account.
    pub(crate) debtor: usize,
    /// The id of the payee's account.
    pub(crate) creditor: usize,
    /// The amount, in cents.
    pub(crate) cents: u64,
    /// When it was settled.
    pub(crate) settlement_time: Timestamp,
}

/// A createFundsRecovery request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateFundsRecovery {
    /// The participant that creates it.
    pub(crate) participant: String,
    /// Whether the request names its flow.
    pub(crate) has_flow_type: bool,
    /// The id of the transaction that the fraud began with.
    pub(crate) root_transaction_id: String,
    /// How the fraud was committed.
    pub(crate) situation_type: SituationType,
    /// The creator's details.
    pub(crate) report_details: Option<String>,
    /// The creator's contact.
    pub(crate) contact: Contact,
}

/// An update-, block-, refund- or cancelFundsRecovery or createTrackingGraph request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FundsRecoveryActionRequest {
    /// The id of the funds recovery.
    pub(crate) id: String,
    /// The participant that acts.
    pub(crate) participant: String,
    /// How the fraud was committed, to update.
    pub(crate) situation_type: Option<SituationType>,
    /// The creator's contact, to update.
    pub(crate) contact: Option<Contact>,
    /// The creator's details, to update.
    pub(crate) report_details: Option<String>,
    /// The transactions to block, if the request lists them.
    pub(crate) transactions: Option<Vec<String>>,
}

impl Default for GraphParameters {
    fn default() -> Self {
        Self {
            min_cents: 20_000,
            transactions_max: TRANSACTIONS_MAX,
            hop_window_s: HOP_WINDOW_MAX_S,
            hops_max: HOPS_MAX,
        }
    }
}

impl GraphParameters {
    /// Reads the parameters of a request. The error names what is above its maximum.
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, root.name());
        let path = |name: &str| format!("TrackingGraphParameters/{name}");
        let default = Self::default();
        let up_to =
            |most: u64| move |text: &str| text.parse().ok().filter(|n| (1..=most).contains(n));
        let parameters = Self {
            min_cents: reader
                .optional_value(&path("MinTransactionAmount"), formats::cents)
                .unwrap_or(default.min_cents),
            transactions_max: reader
                .optional_value(&path("MaxTransactions"), up_to(TRANSACTIONS_MAX))
                .unwrap_or(default.transactions_max),
            hop_window_s: reader
                .optional_value(&path("HopWindow"), duration_s)
                .unwrap_or(default.hop_window_s),
            hops_max: reader
                .optional_value(&path("MaxHops"), up_to(HOPS_MAX))
                .unwrap_or(default.hops_max),
        };
        reader.finish(Some(parameters))
    }

    fn write(self, xml: &mut Writer) {
        let window = jiff::SignedDuration::from_secs(i64::try_from(self.hop_window_s).unwrap_or(0));
        xml.open("Parameters")
            .element(
                "MinTransactionAmount",
                &formats::amount_text(self.min_cents),
            )
            .element("MaxTransactions", &self.transactions_max.to_string())
            .element("HopWindow", &window.to_string())
            .element("MaxHops", &self.hops_max.to_string())
            .close("Parameters");
    }
}

/// The seconds of a duration such as `PT2H`, unless it is longer than allowed.
fn duration_s(text: &str) -> Option<u64> {
    let duration: jiff::SignedDuration = text.parse().ok()?;
    let seconds = u64::try_from(duration.as_secs()).ok()?;
    (1..=HOP_WINDOW_MAX_S).contains(&seconds).then_some(seconds)
}

impl CreateFundsRecovery {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, "CreateFundsRecoveryRequest");
        let participant = reader.ispb("Participant");
        let flow = reader.optional_value("FundsRecovery/FlowType", |text| {
            (text == "AUTOMATED").then_some(())
        });
        let root_transaction_id = reader.text_matching(
            "FundsRecovery/RootTransactionId",
            no_match!(r"\w{32}"),
            formats::is_transaction_id,
        );
        let situation_type = reader.value("FundsRecovery/SituationType", parse_situation);
        let report_details = reader.optional_text("FundsRecovery/ReportDetails", DETAILS_CHARS_MAX);
        if situation_type == Some(SituationType::Other) && report_details.is_none() {
            reader.add_violation_at(
                "FundsRecovery/ReportDetails",
                "is missing: SituationType OTHER requires it",
            );
        }
        let contact = Contact::read(&mut reader, "FundsRecovery/ContactInformation");
        if contact.is_none() {
            reader.add_violation_at("FundsRecovery/ContactInformation", "is missing");
        }
        let request = situation_type.zip(contact);
        let request = request.map(|(situation_type, contact)| Self {
            participant,
            has_flow_type: flow.is_some(),
            root_transaction_id,
            situation_type,
            report_details,
            contact,
        });
        reader.finish(request)
    }
}

impl FundsRecoveryActionRequest {
    pub(crate) fn read(root: &Element, name: &str) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, name);
        let mut request = Self {
            id: reader.uuid("FundsRecoveryId"),
            participant: reader.ispb("Participant"),
            situation_type: None,
            contact: None,
            report_details: None,
            transactions: None,
        };
        match name {
            "UpdateFundsRecoveryRequest" => {
                request.situation_type = reader.optional_value("SituationType", parse_situation);
                request.contact = Contact::read(&mut reader, "ContactInformation");
                request.report_details = reader.optional_text("ReportDetails", DETAILS_CHARS_MAX);
            }
            "BlockFundsRecoveryRequest" => {
                let parse = PrioritizationStrategy::parse;
                let strategy = reader.value("PrioritizationStrategy", parse);
                let listed = root.child("Transactions").map(|list| {
                    let ids = list.children().iter().map(|id| id.text().to_owned());
                    ids.collect::<Vec<_>>()
                });
                if strategy == Some(PrioritizationStrategy::TransactionList) {
                    if listed.as_ref().is_none_or(Vec::is_empty) {
                        let reason = "is missing: TRANSACTION_LIST requires it";
                        reader.add_violation_at("Transactions", reason);
                    }
                    request.transactions = listed;
                }
            }
            _ => {}
        }
        reader.finish(Some(request))
    }
}

impl TrackingGraph {
    /// The ids of the transactions that a path connects with the root, on which every transaction is
    /// accepted. A transaction follows another if its payer is the other's payee.
    pub(crate) fn connected(&self, is_accepted: impl Fn(&str) -> bool) -> Vec<String> {
        let owner = |account: usize| self.accounts.get(account - 1).map(|account| account.owner);
        let mut connected: Vec<&GraphTransaction> = Vec::new();
        // Every layer stands behind the one before it.
        for (at, transaction) in self.transactions.iter().enumerate() {
            let follows =
                |other: &&GraphTransaction| owner(other.creditor) == owner(transaction.debtor);
            let is_reached = at == 0 || connected.iter().any(follows);
            if is_reached && is_accepted(&transaction.id) {
                connected.push(transaction);
            }
        }
        let ids = connected
            .into_iter()
            .map(|transaction| transaction.id.clone());
        ids.collect()
    }
}

impl FundsRecovery {
    fn write(&self, xml: &mut Writer) {
        xml.open("FundsRecovery")
            .optional("FlowType", self.has_flow_type.then_some("AUTOMATED"))
            .element("RootTransactionId", &self.root_transaction_id)
            .element("SituationType", self.situation_type.as_str())
            .optional("ReportDetails", self.report_details.as_deref());
        self.contact.write(xml);
        xml.element("Id", &self.id)
            .element("Status", self.status.as_str())
            .element("ReporterParticipant", &self.reporter)
            .element("CreationTime", &self.creation_time.to_string())
            .element("LastModified", &self.last_modified.to_string())
            .close("FundsRecovery");
    }

    fn write_graph(&self, xml: &mut Writer, graph: &TrackingGraph) {
        xml.open("TrackingGraph")
            .element("FundsRecoveryId", &self.id)
            .element("RootTransactionId", &self.root_transaction_id)
            .element("CreationTime", &graph.creation_time.to_string());
        self.parameters.write(xml);
        xml.within("Persons", |xml| {
            for (id, kind) in (1..).zip(&graph.persons) {
                xml.open("Person")
                    .element("Id", &usize::to_string(&id))
                    .element("Type", kind.as_str())
                    .close("Person");
            }
        });
        xml.within("Accounts", |xml| {
            for (id, account) in (1..).zip(&graph.accounts) {
                xml.open("Account")
                    .element("Id", &usize::to_string(&id))
                    .element("OwnerId", &account.owner.to_string())
                    .element("Participant", &account.participant)
                    .close("Account");
            }
        });
        xml.within("Transactions", |xml| {
            for transaction in &graph.transactions {
                let amount = formats::amount_text(transaction.cents);
                xml.open("Transaction")
                    .element("Id", &transaction.id)
                    .element("DebtorAccountId", &transaction.debtor.to_string())
                    .element("CreditorAccountId", &transaction.creditor.to_string())
                    .element("Amount", &amount)
                    .element("RefundableAmount", &amount)
                    .element("SettlementTime", &transaction.settlement_time.to_string())
                    .close("Transaction");
            }
        });
        xml.close("TrackingGraph");
    }
}

/// Writes the response to an operation on one funds recovery. That of its creation has the graph.
pub(crate) fn funds_recovery_response(
    name: &'static str,
    head: &ResponseHead,
    recovery: &FundsRecovery,
) -> String {
    let mut envelope = Envelope::new(name, head, 1_200);
    recovery.write(envelope.xml());
    if let ("CreateFundsRecoveryResponse", Some(graph)) = (name, &recovery.graph) {
        recovery.write_graph(envelope.xml(), graph);
    }
    envelope.finish()
}

/// Writes the response to createTrackingGraph and getTrackingGraph.
pub(crate) fn tracking_graph_response(
    name: &'static str,
    head: &ResponseHead,
    recovery: &FundsRecovery,
    graph: &TrackingGraph,
) -> String {
    let mut envelope = Envelope::new(name, head, 2_000);
    recovery.write_graph(envelope.xml(), graph);
    envelope.finish()
}

/// Writes the response to listFundsRecoveryInfractionReports.
pub(crate) fn recovery_reports_response(
    head: &ResponseHead,
    reports: &[InfractionReport],
) -> String {
    let name = "ListFundsRecoveryInfractionReportsResponse";
    let mut envelope = Envelope::new(name, head, 400 + 900 * reports.len());
    let form = ReportForm {
        version: ApiVersion::V2,
        has_details: true,
    };
    envelope.xml().within("InfractionReports", |xml| {
        for report in reports {
            report.write(xml, form);
        }
    });
    envelope.finish()
}

/// Writes the response to listFundsRecoveryRefunds.
pub(crate) fn recovery_refunds_response(head: &ResponseHead, refunds: &[Refund]) -> String {
    let bytes = 400 + 900 * refunds.len();
    let mut envelope = Envelope::new("ListFundsRecoveryRefundsResponse", head, bytes);
    envelope.xml().within("Refunds", |xml| {
        for refund in refunds {
            refund.write(xml, true);
        }
    });
    envelope.finish()
}
