//! Words that mean something to DICT, each an enum with the text that DICT writes.

use serde::{Deserialize, Serialize};

/// Declares an enum whose variants are words of the wire.
macro_rules! words {
    ($($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)? })+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $text)] $variant),+
        }

        impl $name {
            /// Every word there is.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// What the word means, if anything.
            pub fn read(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }
    )+};
}

words! {
    /// What an owner is.
    OwnerType {
        /// A person, with a CPF.
        NaturalPerson = "NATURAL_PERSON",
        /// A company, with a CNPJ.
        LegalPerson = "LEGAL_PERSON",
    }

    /// Why an entry is created, changed or removed.
    EntryReason {
        /// The owner asked for it.
        UserRequested = "USER_REQUESTED",
        /// The account is closed.
        AccountClosure = "ACCOUNT_CLOSURE",
        /// The account moved to another branch.
        BranchTransfer = "BRANCH_TRANSFER",
        /// Nobody used the key.
        EntryInactivity = "ENTRY_INACTIVITY",
        /// The participant's books differ from DICT's.
        Reconciliation = "RECONCILIATION",
        /// The key was used for fraud.
        Fraud = "FRAUD",
        /// The tax authority knows the owner otherwise.
        RfbValidation = "RFB_VALIDATION",
    }

    /// What is claimed.
    ClaimType {
        /// The key, by somebody else than its owner.
        Ownership = "OWNERSHIP",
        /// The key's place, by its owner.
        Portability = "PORTABILITY",
    }

    /// How far a claim has come.
    ClaimStatus {
        /// Created by the claimer.
        Open = "OPEN",
        /// Received by the donor.
        WaitingResolution = "WAITING_RESOLUTION",
        /// Granted by the donor.
        Confirmed = "CONFIRMED",
        /// Called off by either.
        Cancelled = "CANCELLED",
        /// Done: the key is the claimer's.
        Completed = "COMPLETED",
    }

    /// Why a claim is granted or called off.
    ClaimReason {
        /// The user asked for it.
        UserRequested = "USER_REQUESTED",
        /// The account is closed.
        AccountClosure = "ACCOUNT_CLOSURE",
        /// The key was used for fraud.
        Fraud = "FRAUD",
        /// Nobody answered in time.
        DefaultOperation = "DEFAULT_OPERATION",
        /// The participant's books differ from DICT's.
        Reconciliation = "RECONCILIATION",
    }

    /// Which side called a claim off.
    ClaimSide {
        /// Who has the key.
        Donor = "DONOR",
        /// Who wants it.
        Claimer = "CLAIMER",
    }

    /// What an infraction report is for.
    InfractionReason {
        /// To ask for money back.
        RefundRequest = "REFUND_REQUEST",
        /// To call a refund off.
        RefundCancelled = "REFUND_CANCELLED",
        /// Fraud, as version 1 says it.
        Fraud = "FRAUD",
    }

    /// How a fraud came about.
    SituationType {
        /// The payer was deceived.
        Scam = "SCAM",
        /// The payer's account was taken over.
        AccountTakeover = "ACCOUNT_TAKEOVER",
        /// The payer was forced.
        Coercion = "COERCION",
        /// Somebody got in.
        FraudulentAccess = "FRAUDULENT_ACCESS",
        /// Something else, which the details tell.
        Other = "OTHER",
        /// Not told, as in version 1.
        Unknown = "UNKNOWN",
    }

    /// How far an infraction report has come.
    InfractionStatus {
        /// Created by the reporter.
        Open = "OPEN",
        /// Received by the counterparty.
        Acknowledged = "ACKNOWLEDGED",
        /// Analysed by the counterparty.
        Closed = "CLOSED",
        /// Called off by the reporter.
        Cancelled = "CANCELLED",
    }

    /// Which side reported.
    ReportedBy {
        /// The payer's participant.
        Debited = "DEBITED_PARTICIPANT",
        /// The payee's participant.
        Credited = "CREDITED_PARTICIPANT",
    }

    /// What the counterparty found.
    AnalysisResult {
        /// It was an infraction.
        Agreed = "AGREED",
        /// It was none.
        Disagreed = "DISAGREED",
    }

    /// What kind of fraud it was.
    FraudType {
        /// An account opened under false names.
        ApplicationFraud = "APPLICATION_FRAUD",
        /// An account lent to others.
        MuleAccount = "MULE_ACCOUNT",
        /// The account of a deceiver.
        ScammerAccount = "SCAMMER_ACCOUNT",
        /// Something else.
        Other = "OTHER",
        /// Not told, as in version 1.
        Unknown = "UNKNOWN",
    }

    /// Whether a fraud marker counts.
    FraudMarkerStatus {
        /// It does.
        Registered = "REGISTERED",
        /// It was called off.
        Cancelled = "CANCELLED",
    }

    /// Why money is asked back.
    RefundReason {
        /// Fraud.
        Fraud = "FRAUD",
        /// A mistake in operation.
        OperationalFlaw = "OPERATIONAL_FLAW",
        /// A refund that was called off.
        RefundCancelled = "REFUND_CANCELLED",
    }

    /// How far a refund has come.
    RefundStatus {
        /// Asked for.
        Open = "OPEN",
        /// Answered.
        Closed = "CLOSED",
        /// Called off.
        Cancelled = "CANCELLED",
    }

    /// What the contested participant did.
    RefundResult {
        /// All was paid back.
        TotallyAccepted = "TOTALLY_ACCEPTED",
        /// A part was paid back.
        PartiallyAccepted = "PARTIALLY_ACCEPTED",
        /// Nothing was.
        Rejected = "REJECTED",
    }

    /// Why nothing was paid back.
    RefundRejection {
        /// There is no money.
        NoBalance = "NO_BALANCE",
        /// The account is closed.
        AccountClosure = "ACCOUNT_CLOSURE",
        /// It cannot be done.
        CannotRefund = "CANNOT_REFUND",
        /// Something else.
        Other = "OTHER",
    }

    /// A participant's side of a refund.
    RefundRole {
        /// Who asks for it.
        Requesting = "REQUESTING",
        /// Who is asked.
        Contested = "CONTESTED",
    }

    /// What became of a set of CIDs.
    CidEventType {
        /// One more.
        Added = "ADDED",
        /// One less.
        Removed = "REMOVED",
    }
}
