//! DICT's operations.

/// Where a request names its participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParticipantFrom {
    /// In the header `PI-RequestingParticipant`.
    Header,
    /// In the query parameter `Participant`.
    Query,
    /// In the query, or else in the header or the certificate: the parameter is optional.
    HeaderOrQuery,
    /// In the body; for entries, in the account within it.
    Body,
    /// In the client's certificate, not in the request.
    Certificate,
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $method:literal $path:literal, $from:ident, $ok:literal;)*) => {
        /// An operation of the DICT API.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Operation {
            $($(#[$doc])* $name,)*
        }

        impl Operation {
            /// All operations, in the order of the published table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The operation's name in the API.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The HTTP method.
            pub const fn method(self) -> &'static str {
                match self { $(Self::$name => $method,)* }
            }

            /// The path template, below the base path.
            pub const fn path(self) -> &'static str {
                match self { $(Self::$name => $path,)* }
            }

            /// Where a request of this operation names its participant.
            pub const fn participant(self) -> ParticipantFrom {
                match self { $(Self::$name => ParticipantFrom::$from,)* }
            }
        }
    };
}

operations! {
    /// Creates an entry.
    CreateEntry = "createEntry", "POST" "/entries/", Body, 201;
    /// Looks a key up.
    GetEntry = "getEntry", "GET" "/entries/{Key}", Header, 200;
    /// Changes an entry.
    UpdateEntry = "updateEntry", "PUT" "/entries/{Key}", Body, 200;
    /// Deletes an entry.
    DeleteEntry = "deleteEntry", "POST" "/entries/{Key}/delete", Body, 200;
    /// Statistics of a key.
    GetEntryStatistics = "getEntryStatistics", "GET" "/entries/{Key}/statistics", Header, 200;
    /// Statistics of a person.
    GetPersonStatistics = "getPersonStatistics", "GET" "/persons/{TaxIdNumber}/statistics", Header, 200;
    /// Looks a key up for a payment initiator. Only in version 1.8.0, which deprecated it.
    GetEntryInitiator = "getEntryInitiator", "GET" "/entries/{Key}/initiator", Header, 200;
    /// Statistics of a person. Only in version 1.8.0.
    GetOwnerStatistics = "getOwnerStatistics", "GET" "/statistics/owner/{TaxIdNumber}", Header, 200;
    /// Asks which of some keys exist.
    CheckKeys = "checkKeys", "POST" "/keys/check", Certificate, 200;
    /// Opens a claim.
    CreateClaim = "createClaim", "POST" "/claims/", Body, 201;
    /// Lists claims.
    ListClaims = "listClaims", "GET" "/claims/", Query, 200;
    /// Reads a claim.
    GetClaim = "getClaim", "GET" "/claims/{ClaimId}", Header, 200;
    /// Acknowledges a claim.
    AcknowledgeClaim = "acknowledgeClaim", "POST" "/claims/{ClaimId}/acknowledge", Body, 200;
    /// Confirms a claim.
    ConfirmClaim = "confirmClaim", "POST" "/claims/{ClaimId}/confirm", Body, 200;
    /// Cancels a claim.
    CancelClaim = "cancelClaim", "POST" "/claims/{ClaimId}/cancel", Body, 200;
    /// Completes a claim.
    CompleteClaim = "completeClaim", "POST" "/claims/{ClaimId}/complete", Body, 200;
    /// Compares all entries by their check value.
    CreateSyncVerification = "createSyncVerification", "POST" "/sync-verifications/", Body, 201;
    /// Asks for a file of CIDs.
    CreateCidSetFile = "createCidSetFile", "POST" "/cids/files/", Body, 201;
    /// Reads the state of a file of CIDs.
    GetCidSetFile = "getCidSetFile", "GET" "/cids/files/{Id}", Header, 200;
    /// Lists events of CIDs.
    ListCidSetEvents = "listCidSetEvents", "GET" "/cids/events", Query, 200;
    /// Looks an entry up by its CID.
    GetEntryByCid = "getEntryByCid", "GET" "/cids/entries/{Cid}", Header, 200;
    /// Reports an infraction.
    CreateInfractionReport = "createInfractionReport", "POST" "/infraction-reports/", Body, 201;
    /// Lists reports of infractions.
    ListInfractionReports = "listInfractionReports", "GET" "/infraction-reports/", Query, 200;
    /// Reads a report of an infraction.
    GetInfractionReport = "getInfractionReport", "GET" "/infraction-reports/{Id}", Header, 200;
    /// Changes a report of an infraction.
    UpdateInfractionReport = "updateInfractionReport", "PUT" "/infraction-reports/{Id}", Body, 200;
    /// Acknowledges a report of an infraction.
    AcknowledgeInfractionReport = "acknowledgeInfractionReport", "POST" "/infraction-reports/{Id}/acknowledge", Body, 200;
    /// Cancels a report of an infraction.
    CancelInfractionReport = "cancelInfractionReport", "POST" "/infraction-reports/{Id}/cancel", Body, 200;
    /// Closes a report of an infraction.
    CloseInfractionReport = "closeInfractionReport", "POST" "/infraction-reports/{Id}/close", Body, 200;
    /// Creates a funds recovery.
    CreateFundsRecovery = "createFundsRecovery", "POST" "/funds-recoveries/", Body, 201;
    /// Reads a funds recovery.
    GetFundsRecovery = "getFundsRecovery", "GET" "/funds-recoveries/{Id}", Header, 200;
    /// Changes what the creator of a funds recovery says.
    UpdateFundsRecovery = "updateFundsRecovery", "PUT" "/funds-recoveries/{Id}", Body, 200;
    /// Follows the money of a funds recovery. Deprecated.
    CreateTrackingGraph = "createTrackingGraph", "POST" "/funds-recoveries/{Id}/tracking-graph", Body, 200;
    /// Reads the transactions that a funds recovery follows.
    GetTrackingGraph = "getTrackingGraph", "GET" "/funds-recoveries/{Id}/tracking-graph", Header, 200;
    /// Reports the transactions of a funds recovery. Deprecated.
    BlockFundsRecovery = "blockFundsRecovery", "POST" "/funds-recoveries/{Id}/block", Body, 200;
    /// Lists the reports of a funds recovery.
    ListFundsRecoveryInfractionReports = "listFundsRecoveryInfractionReports", "GET" "/funds-recoveries/{Id}/infraction-reports", Header, 200;
    /// Requests the refunds of a funds recovery.
    RefundFundsRecovery = "refundFundsRecovery", "POST" "/funds-recoveries/{Id}/refund", Body, 200;
    /// Lists the refunds of a funds recovery.
    ListFundsRecoveryRefunds = "listFundsRecoveryRefunds", "GET" "/funds-recoveries/{Id}/refunds", Header, 200;
    /// Cancels a funds recovery.
    CancelFundsRecovery = "cancelFundsRecovery", "POST" "/funds-recoveries/{Id}/cancel", Body, 200;
    /// Marks a fraud.
    CreateFraudMarker = "createFraudMarker", "POST" "/fraud-markers/", Body, 201;
    /// Lists fraud markers of a person.
    ListFraudMarkers = "listFraudMarkers", "GET" "/fraud-markers/", HeaderOrQuery, 200;
    /// Reads a fraud marker.
    GetFraudMarker = "getFraudMarker", "GET" "/fraud-markers/{Id}", Header, 200;
    /// Cancels a fraud marker.
    CancelFraudMarker = "cancelFraudMarker", "POST" "/fraud-markers/{Id}/cancel", Body, 200;
    /// Asks for a refund.
    CreateRefund = "createRefund", "POST" "/refunds/", Body, 201;
    /// Lists refunds.
    ListRefunds = "listRefunds", "GET" "/refunds/", Query, 200;
    /// Reads a refund.
    GetRefund = "getRefund", "GET" "/refunds/{Id}", Header, 200;
    /// Cancels a refund.
    CancelRefund = "cancelRefund", "POST" "/refunds/{Id}/cancel", Body, 200;
    /// Closes a refund.
    CloseRefund = "closeRefund", "POST" "/refunds/{Id}/close", Body, 200;
    /// Lists event notifications.
    ListEventNotifications = "listEventNotifications", "GET" "/event-notifications", Query, 200;
    /// Lists the states of the participant's buckets.
    ListBucketStates = "listBucketStates", "GET" "/policies/", Header, 200;
    /// Reads the state of one of the participant's buckets.
    GetBucketState = "getBucketState", "GET" "/policies/{policy}", Header, 200;
}

impl Operation {
    /// Returns the operation with this name, either in the table of policies or as `operationId`.
    pub fn parse(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|one| one.as_str() == name || one.operation_id() == name)
    }

    /// The published `operationId`, which for four operations differs from the name in the table of
    /// policies.
    pub const fn operation_id(self) -> &'static str {
        match self {
            Self::ListInfractionReports => "listInfractionReport",
            Self::ListRefunds => "listRefund",
            Self::ListBucketStates => "bucketStates",
            Self::GetBucketState => "getPolicy",
            _ => self.as_str(),
        }
    }

    /// Whether version 2.12.1 has deprecated the operation.
    pub const fn is_deprecated(self) -> bool {
        matches!(
            self,
            Self::CreateInfractionReport
                | Self::UpdateInfractionReport
                | Self::CreateTrackingGraph
                | Self::BlockFundsRecovery
        )
    }

    /// Whether the operation is about funds recoveries.
    pub const fn is_funds_recovery(self) -> bool {
        matches!(
            self,
            Self::CreateFundsRecovery
                | Self::GetFundsRecovery
                | Self::UpdateFundsRecovery
                | Self::CreateTrackingGraph
                | Self::GetTrackingGraph
                | Self::BlockFundsRecovery
                | Self::ListFundsRecoveryInfractionReports
                | Self::RefundFundsRecovery
                | Self::ListFundsRecoveryRefunds
                | Self::CancelFundsRecovery
        )
    }

    /// Whether version 1.8.0 has the operation.
    pub const fn is_in_version_1(self) -> bool {
        !self.is_funds_recovery()
            && !matches!(
                self,
                Self::CreateFraudMarker
                    | Self::ListFraudMarkers
                    | Self::GetFraudMarker
                    | Self::CancelFraudMarker
                    | Self::ListEventNotifications
                    | Self::GetEntryStatistics
                    | Self::GetPersonStatistics
            )
    }

    /// Whether version 2.12.1 has the operation.
    pub const fn is_in_version_2(self) -> bool {
        !matches!(self, Self::GetEntryInitiator | Self::GetOwnerStatistics)
    }

    /// Whether the query's `Participant` has digits only.
    pub(crate) const fn has_numeric_participant(self) -> bool {
        matches!(
            self,
            Self::ListClaims | Self::ListCidSetEvents | Self::ListEventNotifications
        )
    }

    /// Whether the path contains a Pix key.
    pub const fn has_key(self) -> bool {
        matches!(
            self,
            Self::GetEntry
                | Self::GetEntryInitiator
                | Self::UpdateEntry
                | Self::DeleteEntry
                | Self::GetEntryStatistics
        )
    }
}
