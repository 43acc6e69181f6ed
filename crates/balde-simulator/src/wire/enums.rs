//! Enumerations of DICT's messages. Each variant has the text that DICT writes.

use serde::{Deserialize, Serialize};

/// An enumeration with a text for each value in DICT's messages.
pub(crate) trait WireEnum: Copy {
    /// The text in DICT's messages.
    fn as_str(self) -> &'static str;

    /// Parses the text of DICT's messages.
    fn parse(text: &str) -> Option<Self>;
}

/// Declares enums whose variants have a text in DICT's messages.
macro_rules! wire_enums {
    ($($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)? })+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub(crate) enum $name {
            $($(#[$doc])* #[serde(rename = $text)] $variant),+
        }

        impl WireEnum for $name {
            fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }
    )+};
}

wire_enums! {
    /// Whether an owner is a person or a company.
    OwnerType {
        /// A person, with a CPF.
        NaturalPerson = "NATURAL_PERSON",
        /// A company, with a CNPJ.
        LegalPerson = "LEGAL_PERSON",
    }

    /// Why an entry is created, changed or removed.
    EntryReason {
        /// The owner requested it.
        UserRequested = "USER_REQUESTED",
        /// The account is closed.
        AccountClosure = "ACCOUNT_CLOSURE",
        /// The account moved to another branch.
        BranchTransfer = "BRANCH_TRANSFER",
        /// The participant's records differ from DICT's.
        Reconciliation = "RECONCILIATION",
        /// The key was used for fraud.
        Fraud = "FRAUD",
        /// The tax authority's data differ.
        RfbValidation = "RFB_VALIDATION",
        /// The participant leaves Pix. Only DICT itself uses it.
        ParticipantExclusion = "PARTICIPANT_EXCLUSION",
    }

    /// The type of an account.
    AccountType {
        /// A current account.
        Current = "CACC",
        /// A payment account.
        Payment = "TRAN",
        /// A salary account.
        Salary = "SLRY",
        /// A savings account.
        Savings = "SVGS",
        /// Another type.
        Other = "OTHR",
    }

    /// What is claimed.
    ClaimType {
        /// A new owner claims the key.
        Ownership = "OWNERSHIP",
        /// The owner claims the key for another participant.
        Portability = "PORTABILITY",
    }

    /// The status of a claim.
    ClaimStatus {
        /// Created by the claimer.
        Open = "OPEN",
        /// Acknowledged by the donor.
        WaitingResolution = "WAITING_RESOLUTION",
        /// Confirmed by the donor.
        Confirmed = "CONFIRMED",
        /// Cancelled by either side.
        Cancelled = "CANCELLED",
        /// The claimer has the key.
        Completed = "COMPLETED",
    }

    /// Why a claim is confirmed or cancelled.
    ClaimReason {
        /// The user requested it.
        UserRequested = "USER_REQUESTED",
        /// The account is closed.
        AccountClosure = "ACCOUNT_CLOSURE",
        /// The key was used for fraud.
        Fraud = "FRAUD",
        /// The period to answer has ended.
        DefaultOperation = "DEFAULT_OPERATION",
        /// The participant's records differ from DICT's.
        Reconciliation = "RECONCILIATION",
        /// The tax authority's data differ.
        RfbValidation = "RFB_VALIDATION",
        /// The participant leaves Pix. Only DICT itself uses it.
        ParticipantExclusion = "PARTICIPANT_EXCLUSION",
    }

    /// A side of a claim.
    ClaimSide {
        /// The participant that has the key.
        Donor = "DONOR",
        /// The participant that claims the key.
        Claimer = "CLAIMER",
    }

    /// The purpose of an infraction report.
    InfractionReason {
        /// To request a refund.
        RefundRequest = "REFUND_REQUEST",
        /// To cancel a refund.
        RefundCancelled = "REFUND_CANCELLED",
        /// Fraud, in version 1 of the API.
        Fraud = "FRAUD",
    }

    /// How a fraud was committed.
    SituationType {
        /// The payer was deceived.
        Scam = "SCAM",
        /// The payer's account was taken over.
        AccountTakeover = "ACCOUNT_TAKEOVER",
        /// The payer was forced.
        Coercion = "COERCION",
        /// The payer's account was accessed without permission.
        FraudulentAccess = "FRAUDULENT_ACCESS",
        /// Something else, described in the details.
        Other = "OTHER",
        /// Not stated, as in version 1 of the API.
        Unknown = "UNKNOWN",
    }

    /// The status of an infraction report.
    InfractionStatus {
        /// Created by the reporter.
        Open = "OPEN",
        /// Acknowledged by the counterparty.
        Acknowledged = "ACKNOWLEDGED",
        /// Analysed by the counterparty.
        Closed = "CLOSED",
        /// Cancelled by the reporter.
        Cancelled = "CANCELLED",
    }

    /// Which side reported an infraction.
    ReportedBy {
        /// The payer's participant.
        Debited = "DEBITED_PARTICIPANT",
        /// The payee's participant.
        Credited = "CREDITED_PARTICIPANT",
    }

    /// The counterparty's conclusion.
    AnalysisResult {
        /// It was an infraction.
        Agreed = "AGREED",
        /// It was not an infraction.
        Disagreed = "DISAGREED",
    }

    /// The kind of fraud.
    FraudType {
        /// An account opened with a false identity.
        ApplicationFraud = "APPLICATION_FRAUD",
        /// An account that receives money for others.
        MuleAccount = "MULE_ACCOUNT",
        /// A scammer's account.
        ScammerAccount = "SCAMMER_ACCOUNT",
        /// Something else.
        Other = "OTHER",
        /// Not stated, as in version 1 of the API.
        Unknown = "UNKNOWN",
    }

    /// The status of a fraud marker.
    FraudMarkerStatus {
        /// In force.
        Registered = "REGISTERED",
        /// Cancelled.
        Cancelled = "CANCELLED",
    }

    /// Why a refund is requested.
    RefundReason {
        /// Fraud.
        Fraud = "FRAUD",
        /// An operational error.
        OperationalFlaw = "OPERATIONAL_FLAW",
        /// A cancelled refund. Deprecated.
        RefundCancelled = "REFUND_CANCELLED",
        /// An error of a recurring payment.
        PixAutomatico = "PIX_AUTOMATICO",
    }

    /// The status of a refund.
    RefundStatus {
        /// Requested.
        Open = "OPEN",
        /// Answered by the contested participant.
        Closed = "CLOSED",
        /// Cancelled.
        Cancelled = "CANCELLED",
    }

    /// The contested participant's answer to a refund.
    RefundResult {
        /// The whole amount was refunded.
        TotallyAccepted = "TOTALLY_ACCEPTED",
        /// A part was refunded.
        PartiallyAccepted = "PARTIALLY_ACCEPTED",
        /// Nothing was refunded.
        Rejected = "REJECTED",
    }

    /// Why nothing was refunded.
    RefundRejection {
        /// The account has no balance.
        NoBalance = "NO_BALANCE",
        /// The account is closed.
        AccountClosure = "ACCOUNT_CLOSURE",
        /// The request is not justified, for operational errors only.
        InvalidRequest = "INVALID_REQUEST",
        /// Something else.
        Other = "OTHER",
        /// The participant leaves Pix. Only DICT itself uses it.
        ParticipantExclusion = "PARTICIPANT_EXCLUSION",
    }

    /// A participant's side of a refund.
    RefundRole {
        /// The participant that requests it.
        Requesting = "REQUESTING",
        /// The participant that is to refund.
        Contested = "CONTESTED",
    }

    /// The status of a funds recovery.
    FundsRecoveryStatus {
        /// Created by the payer's participant.
        Created = "CREATED",
        /// The money has been followed.
        Tracked = "TRACKED",
        /// Infraction reports wait for their counterparties.
        AwaitingAnalysis = "AWAITING_ANALYSIS",
        /// All its infraction reports are closed.
        Analysed = "ANALYSED",
        /// Refunds have been requested.
        Refunding = "REFUNDING",
        /// All its refunds are closed, or the root transaction was no fraud.
        Completed = "COMPLETED",
        /// Cancelled by its creator.
        Cancelled = "CANCELLED",
    }

    /// How the transactions to block are chosen. Deprecated.
    PrioritizationStrategy {
        /// DICT chooses.
        StandardAlgorithm = "STANDARD_ALGORITHM",
        /// The request lists them.
        TransactionList = "TRANSACTION_LIST",
    }

    /// The state of a CID set file.
    FileStatus {
        /// Requested.
        Requested = "REQUESTED",
        /// Being written.
        Processing = "PROCESSING",
        /// Ready.
        Available = "AVAILABLE",
    }

    /// What happened to a CID in its set.
    CidEventType {
        /// Added.
        Added = "ADDED",
        /// Removed.
        Removed = "REMOVED",
    }
}
