//! The conversation: a key is registered, looked up, reconciled, claimed and removed, money is
//! recovered and refunded, a person is marked, and a bucket is emptied.
//!
//! The sentences are short paraphrases of the API 2.12.1 ("API") and of the operational manual 8.0
//! ("manual").

use super::step::Step;

/// The donor's entry, as registered. `{self}` is who sends it.
const ENTRY: &str = "<CreateEntryRequest><Signature></Signature><Entry><Key>{phone}</Key>\
<KeyType>PHONE</KeyType><Account><Participant>{self}</Participant><Branch>0001</Branch>\
<AccountNumber>0007654321</AccountNumber><AccountType>CACC</AccountType>\
<OpeningDate>2010-01-10T03:00:00Z</OpeningDate></Account><Owner><Type>NATURAL_PERSON</Type>\
<TaxIdNumber>{donor}</TaxIdNumber><Name>Maria Souza</Name></Owner></Entry>\
<Reason>USER_REQUESTED</Reason><RequestId>{request}</RequestId></CreateEntryRequest>";

const OTHER_ACCOUNT: &str = "<CreateEntryRequest><Signature></Signature><Entry><Key>{phone}</Key>\
<KeyType>PHONE</KeyType><Account><Participant>{self}</Participant><Branch>0001</Branch>\
<AccountNumber>0001234567</AccountNumber><AccountType>CACC</AccountType>\
<OpeningDate>2010-01-10T03:00:00Z</OpeningDate></Account><Owner><Type>NATURAL_PERSON</Type>\
<TaxIdNumber>{donor}</TaxIdNumber><Name>Maria Souza</Name></Owner></Entry>\
<Reason>USER_REQUESTED</Reason><RequestId>{request}</RequestId></CreateEntryRequest>";

const INVALID_KEY: &str = "<CreateEntryRequest><Signature></Signature><Entry><Key>61988887777</Key>\
<KeyType>PHONE</KeyType><Account><Participant>{self}</Participant><Branch>0001</Branch>\
<AccountNumber>0007654321</AccountNumber><AccountType>CACC</AccountType>\
<OpeningDate>2010-01-10T03:00:00Z</OpeningDate></Account><Owner><Type>NATURAL_PERSON</Type>\
<TaxIdNumber>{donor}</TaxIdNumber><Name>Maria Souza</Name></Owner></Entry>\
<Reason>USER_REQUESTED</Reason><RequestId>{other_request}</RequestId></CreateEntryRequest>";

/// Another person at the participant wants the key.
const OTHER_OWNER: &str = "<CreateEntryRequest><Signature></Signature><Entry><Key>{phone}</Key>\
<KeyType>PHONE</KeyType><Account><Participant>{self}</Participant><Branch>0001</Branch>\
<AccountNumber>0007654321</AccountNumber><AccountType>CACC</AccountType>\
<OpeningDate>2010-01-10T03:00:00Z</OpeningDate></Account><Owner><Type>NATURAL_PERSON</Type>\
<TaxIdNumber>{claimer}</TaxIdNumber><Name>Ana Lima</Name></Owner></Entry>\
<Reason>USER_REQUESTED</Reason><RequestId>{other_request}</RequestId></CreateEntryRequest>";

const DELETE: &str = "<DeleteEntryRequest><Signature></Signature><Key>{phone}</Key>\
<Participant>{self}</Participant><Reason>USER_REQUESTED</Reason></DeleteEntryRequest>";

const CHECK: &str = "<CheckKeysRequest><Keys><Key>{phone}</Key><Key>{free_phone}</Key>\
<Key>no key</Key></Keys></CheckKeysRequest>";

const SYNC: &str = "<CreateSyncVerificationRequest><Signature></Signature><SyncVerification>\
<Participant>{self}</Participant><KeyType>PHONE</KeyType>\
<ParticipantSyncVerifier>{verifier}</ParticipantSyncVerifier></SyncVerification>\
</CreateSyncVerificationRequest>";

const WRONG_SYNC: &str = "<CreateSyncVerificationRequest><Signature></Signature><SyncVerification>\
<Participant>{self}</Participant><KeyType>PHONE</KeyType><ParticipantSyncVerifier>\
00000000000000000000000000000000000000000000000000000000000000ff</ParticipantSyncVerifier>\
</SyncVerification></CreateSyncVerificationRequest>";

const CID_FILE: &str = "<CreateCidSetFileRequest><Signature></Signature>\
<Participant>{self}</Participant><KeyType>PHONE</KeyType></CreateCidSetFileRequest>";

const CLAIM: &str = "<CreateClaimRequest><Signature></Signature><Claim><Type>OWNERSHIP</Type>\
<Key>{phone}</Key><KeyType>PHONE</KeyType><ClaimerAccount><Participant>{self}</Participant>\
<Branch>0001</Branch><AccountNumber>0009999999</AccountNumber><AccountType>CACC</AccountType>\
<OpeningDate>2010-01-10T03:00:00Z</OpeningDate></ClaimerAccount><Claimer>\
<Type>NATURAL_PERSON</Type><TaxIdNumber>{claimer}</TaxIdNumber><Name>Ana Lima</Name></Claimer>\
</Claim></CreateClaimRequest>";

/// The claimer moves the key to the counterparty.
const PORTABILITY: &str = "<CreateClaimRequest><Signature></Signature><Claim>\
<Type>PORTABILITY</Type><Key>{phone}</Key><KeyType>PHONE</KeyType><ClaimerAccount>\
<Participant>{self}</Participant><Branch>0001</Branch><AccountNumber>0008888888</AccountNumber>\
<AccountType>CACC</AccountType><OpeningDate>2010-01-10T03:00:00Z</OpeningDate></ClaimerAccount>\
<Claimer><Type>NATURAL_PERSON</Type><TaxIdNumber>{claimer}</TaxIdNumber><Name>Ana Lima</Name>\
</Claimer></Claim></CreateClaimRequest>";

const ACKNOWLEDGE: &str = "<AcknowledgeClaimRequest><Signature></Signature>\
<ClaimId>{claim}</ClaimId><Participant>{self}</Participant></AcknowledgeClaimRequest>";

const CONFIRM: &str = "<ConfirmClaimRequest><Signature></Signature><ClaimId>{claim}</ClaimId>\
<Participant>{self}</Participant><Reason>USER_REQUESTED</Reason></ConfirmClaimRequest>";

const COMPLETE: &str = "<CompleteClaimRequest><Signature></Signature><ClaimId>{claim}</ClaimId>\
<Participant>{self}</Participant><RequestId>{complete_request}</RequestId></CompleteClaimRequest>";

const CANCEL_CLAIM: &str = "<CancelClaimRequest><Signature></Signature>\
<ClaimId>{portability}</ClaimId><Participant>{self}</Participant>\
<Reason>USER_REQUESTED</Reason></CancelClaimRequest>";

const RECOVERY: &str = "<CreateFundsRecoveryRequest><Signature></Signature>\
<Participant>{self}</Participant><FundsRecovery><FlowType>AUTOMATED</FlowType>\
<RootTransactionId>{root}</RootTransactionId><SituationType>SCAM</SituationType>\
<ReportDetails>golpe</ReportDetails><ContactInformation><Email>fraude@exemplo.com.br</Email>\
<Phone>+5561988880000</Phone></ContactInformation></FundsRecovery></CreateFundsRecoveryRequest>";

const REFUND_RECOVERY: &str = "<RefundFundsRecoveryRequest><Signature></Signature>\
<FundsRecoveryId>{recovery}</FundsRecoveryId><Participant>{self}</Participant>\
</RefundFundsRecoveryRequest>";

const ACKNOWLEDGE_REPORT: &str = "<AcknowledgeInfractionReportRequest><Signature></Signature>\
<InfractionReportId>{report}</InfractionReportId><Participant>{self}</Participant>\
</AcknowledgeInfractionReportRequest>";

const CANCEL_REPORT: &str = "<CancelInfractionReportRequest><Signature></Signature>\
<InfractionReportId>{report}</InfractionReportId><Participant>{self}</Participant>\
</CancelInfractionReportRequest>";

const CLOSE_WITHOUT_TYPE: &str = "<CloseInfractionReportRequest><Signature></Signature>\
<InfractionReportId>{report}</InfractionReportId><Participant>{self}</Participant>\
<AnalysisResult>AGREED</AnalysisResult></CloseInfractionReportRequest>";

const CLOSE_REPORT: &str = "<CloseInfractionReportRequest><Signature></Signature>\
<InfractionReportId>{report}</InfractionReportId><Participant>{self}</Participant>\
<AnalysisResult>AGREED</AnalysisResult><FraudType>MULE_ACCOUNT</FraudType>\
</CloseInfractionReportRequest>";

const DEPRECATED_REPORT: &str = "<CreateInfractionReportRequest><Signature></Signature>\
<Participant>{self}</Participant><InfractionReport><TransactionId>{root}</TransactionId>\
<Reason>REFUND_REQUEST</Reason><SituationType>SCAM</SituationType></InfractionReport>\
</CreateInfractionReportRequest>";

const CLOSE_REFUND: &str = "<CloseRefundRequest><Signature></Signature><RefundId>{refund}</RefundId>\
<Participant>{self}</Participant><RefundAnalysisResult>TOTALLY_ACCEPTED</RefundAnalysisResult>\
<RefundTransactionId>{return}</RefundTransactionId>\
<EffectiveRefundedAmount>100.00</EffectiveRefundedAmount></CloseRefundRequest>";

const CANCEL_RECOVERED: &str = "<CancelRefundRequest><Signature></Signature>\
<RefundId>{refund}</RefundId><Participant>{self}</Participant></CancelRefundRequest>";

const FLAW: &str = "<CreateRefundRequest><Signature></Signature><Participant>{self}</Participant>\
<Refund><TransactionId>{flaw}</TransactionId><RefundReason>OPERATIONAL_FLAW</RefundReason>\
<RefundAmount>1.00</RefundAmount><RefundDetails>enviado duas vezes</RefundDetails></Refund>\
</CreateRefundRequest>";

const CANCEL_FLAW: &str = "<CancelRefundRequest><Signature></Signature>\
<RefundId>{flaw_refund}</RefundId><Participant>{self}</Participant></CancelRefundRequest>";

const MARKER: &str = "<CreateFraudMarkerRequest><Signature></Signature>\
<Participant>{self}</Participant><FraudMarker><TaxIdNumber>{payer}</TaxIdNumber>\
<FraudType>SCAMMER_ACCOUNT</FraudType></FraudMarker><RequestId>{marker_request}</RequestId>\
</CreateFraudMarkerRequest>";

const CANCEL_MARKER: &str = "<CancelFraudMarkerRequest><Signature></Signature>\
<FraudMarkerId>{marker}</FraudMarkerId><Participant>{self}</Participant>\
</CancelFraudMarkerRequest>";

/// All steps, in order.
pub(super) fn steps() -> Vec<Step> {
    let chapters = [
        ("Entries", entries()),
        ("Reconciliation", reconciliation()),
        ("Claims", claims()),
        ("Infraction reports and funds recovery", funds_recovery()),
        ("Refunds and fraud markers", refunds_and_markers()),
        ("Buckets", buckets()),
    ];
    let steps = chapters
        .into_iter()
        .flat_map(|(chapter, steps)| steps.into_iter().map(move |step| Step { chapter, ..step }));
    steps.collect()
}

fn lookup(name: &'static str) -> Step {
    Step::get(name, "/entries/{%phone}")
        .header("PI-PayerId", "{payer}")
        .header("PI-EndToEndId", "{lookup}")
}

fn entries() -> Vec<Step> {
    vec![
        Step::post("createEntry registers a key", "/entries/", ENTRY)
            .by_counterparty()
            .says(
                "API, createEntry",
                "A new key answers 201 with the entry as stored.",
            )
            .accepted(201, "CreateEntryResponse")
            .text("Entry/Key", "{phone}")
            .text("Entry/Account/Participant", "{counterparty}")
            .text("Entry/Owner/TaxIdNumber", "{donor}")
            .save("created", "Entry/CreationDate"),
        Step::post("createEntry repeated answers the same", "/entries/", ENTRY)
            .by_counterparty()
            .says(
                "API, createEntry, idempotency",
                "The same RequestId with the same content is answered as the first time.",
            )
            .accepted(201, "CreateEntryResponse")
            .text("Entry/CreationDate", "{created}"),
        Step::post("a used RequestId is refused", "/entries/", OTHER_ACCOUNT)
            .by_counterparty()
            .says(
                "API, RequestIdAlreadyUsed",
                "The same RequestId with other content is refused.",
            )
            .refused(400, "RequestIdAlreadyUsed"),
        Step::post(
            "an invalid key is refused with its violation",
            "/entries/",
            INVALID_KEY,
        )
        .by_counterparty()
        .says(
            "API, EntryInvalid",
            "Each violation has the reason, the refused value and the property.",
        )
        .refused(400, "EntryInvalid")
        .text("detail", "Entry has invalid fields")
        .text("violations/violation/value", "61988887777")
        .text("violations/violation/property", "entry.key"),
        Step::post("another person's key is refused", "/entries/", OTHER_OWNER)
            .says(
                "API, EntryKeyOwnedByDifferentPerson",
                "A key that another person owns can be claimed, not registered.",
            )
            .refused(400, "EntryKeyOwnedByDifferentPerson"),
        lookup("getEntry finds the key")
            .says(
                "API, getEntry",
                "The answer has the account and the owner of the key.",
            )
            .accepted(200, "GetEntryResponse")
            .text("Entry/Key", "{phone}")
            .text("Entry/KeyType", "PHONE")
            .present("Entry/KeyOwnershipDate"),
        lookup("a participant does not look up its own key")
            .by_counterparty()
            .says(
                "API, EntryCannotBeQueriedForBookTransfer",
                "A transfer inside one participant needs no lookup.",
            )
            .refused(400, "EntryCannotBeQueriedForBookTransfer"),
        Step::get("a key without entry is not found", "/entries/{%free_phone}")
            .header("PI-PayerId", "{payer}")
            .header("PI-EndToEndId", "{lookup}")
            .says("API, getEntry", "A key without entry answers 404.")
            .refused(404, "NotFound"),
        Step::get("getEntry needs the payer", "/entries/{%phone}")
            .header("PI-EndToEndId", "{lookup}")
            .says("API, getEntry", "PI-PayerId is required.")
            .refused(400, "BadRequest"),
        Step::post(
            "checkKeys says which keys have entries",
            "/keys/check",
            CHECK,
        )
        .on_np()
        .says(
            "API, checkKeys",
            "A string that is no key has no entry either.",
        )
        .accepted(200, "CheckKeysResponse")
        .attribute("Keys", "{phone}", ("hasEntry", "true"))
        .attribute("Keys", "{free_phone}", ("hasEntry", "false"))
        .attribute("Keys", "no key", ("hasEntry", "false")),
        Step::get(
            "getEntryStatistics describes key and owner",
            "/entries/{%phone}/statistics",
        )
        .says(
            "API, getEntryStatistics",
            "The answer has statistics of the key and of its owner.",
        )
        .accepted(200, "GetEntryStatisticsResponse")
        .present("KeyStatistics")
        .present("OwnerStatistics"),
    ]
}

fn reconciliation() -> Vec<Step> {
    vec![
        Step::get(
            "getEntryByCid finds the entry by its content",
            "/cids/entries/{cid}",
        )
        .by_counterparty()
        .computes(&["cid"])
        .says(
            "API, content ids",
            "The id is an HMAC-SHA256 of nine attributes, keyed by the RequestId.",
        )
        .accepted(200, "GetEntryByCidResponse"),
        Step::get(
            "listCidSetEvents has the new content id",
            "/cids/events?Participant={self}&KeyType=PHONE&StartTime={created}&Limit=200",
        )
        .by_counterparty()
        .says(
            "API, listCidSetEvents",
            "Creating an entry adds its content id.",
        )
        .accepted(200, "ListCidSetEventsResponse")
        .contains("CidSetEvents", "{cid}")
        .save("verifier", "SyncVerifierEnd"),
        Step::post(
            "createSyncVerification agrees with equal sets",
            "/sync-verifications/",
            SYNC,
        )
        .by_counterparty()
        .says("API, createSyncVerification", "Equal verifiers answer OK.")
        .accepted(201, "CreateSyncVerificationResponse")
        .text("SyncVerification/Result", "OK"),
        Step::post(
            "createSyncVerification finds other sets",
            "/sync-verifications/",
            WRONG_SYNC,
        )
        .by_counterparty()
        .says(
            "API, createSyncVerification",
            "Different verifiers answer NOK.",
        )
        .accepted(201, "CreateSyncVerificationResponse")
        .text("SyncVerification/Result", "NOK"),
        Step::post("createCidSetFile orders a file", "/cids/files/", CID_FILE)
            .by_counterparty()
            .says("API, createCidSetFile", "The order has an id and a status.")
            .accepted(201, "CreateCidSetFileResponse")
            .present("CidSetFile/Status")
            .save("file", "CidSetFile/Id"),
        Step::get("getCidSetFile describes the file", "/cids/files/{file}")
            .by_counterparty()
            .says(
                "API, getCidSetFile",
                "Who ordered a file can read its status.",
            )
            .accepted(200, "GetCidSetFileResponse")
            .text("CidSetFile/Id", "{file}"),
    ]
}

#[expect(clippy::too_many_lines, reason = "one step after another")]
fn claims() -> Vec<Step> {
    let locked = "From the opening of a claim until its end the key can be neither registered nor \
                  removed.";
    vec![
        Step::post("createClaim opens a claim", "/claims/", CLAIM)
            .says("API, createClaim", "Another person's phone can be claimed.")
            .accepted(201, "CreateClaimResponse")
            .text("Claim/Status", "OPEN")
            .text("Claim/DonorParticipant", "{counterparty}")
            .present("Claim/ResolutionPeriodEnd")
            .save("claim", "Claim/Id"),
        Step::post(
            "a claimed key cannot be removed",
            "/entries/{%phone}/delete",
            DELETE,
        )
        .by_counterparty()
        .says("manual 5 and 6", locked)
        .refused(400, "EntryLockedByClaim"),
        Step::post("a claimed key cannot be claimed again", "/claims/", CLAIM)
            .says(
                "API, ClaimAlreadyExistsForKey",
                "A key has at most one claim that is neither completed nor cancelled.",
            )
            .refused(400, "ClaimAlreadyExistsForKey"),
        Step::post(
            "an open claim cannot be confirmed",
            "/claims/{claim}/confirm",
            CONFIRM,
        )
        .by_counterparty()
        .says(
            "API, confirmClaim",
            "The status must be WAITING_RESOLUTION.",
        )
        .refused(400, "ClaimOperationInvalid"),
        Step::post(
            "acknowledgeClaim waits for the donor",
            "/claims/{claim}/acknowledge",
            ACKNOWLEDGE,
        )
        .by_counterparty()
        .says("API, acknowledgeClaim", "The donor has received the claim.")
        .accepted(200, "AcknowledgeClaimResponse")
        .text("Claim/Status", "WAITING_RESOLUTION"),
        Step::post(
            "acknowledgeClaim repeated answers the same",
            "/claims/{claim}/acknowledge",
            ACKNOWLEDGE,
        )
        .by_counterparty()
        .says(
            "API, acknowledgeClaim, idempotency",
            "A repetition is answered as the first time.",
        )
        .accepted(200, "AcknowledgeClaimResponse")
        .text("Claim/Status", "WAITING_RESOLUTION"),
        Step::post(
            "a claim is completed after it is confirmed",
            "/claims/{claim}/complete",
            COMPLETE,
        )
        .says("API, completeClaim", "The status must be CONFIRMED.")
        .refused(400, "ClaimOperationInvalid"),
        Step::post(
            "confirmClaim gives the key up",
            "/claims/{claim}/confirm",
            CONFIRM,
        )
        .by_counterparty()
        .says(
            "API, confirmClaim",
            "The donor confirms; its entry is removed.",
        )
        .accepted(200, "ConfirmClaimResponse")
        .text("Claim/Status", "CONFIRMED")
        .text("Claim/ConfirmReason", "USER_REQUESTED"),
        Step::post(
            "the key of a confirmed claim is reserved",
            "/entries/",
            OTHER_OWNER,
        )
        .by_counterparty()
        .says("manual 5 and 6", locked)
        .refused(400, "EntryLockedByClaim"),
        Step::post(
            "completeClaim registers the key",
            "/claims/{claim}/complete",
            COMPLETE,
        )
        .says(
            "API, confirmClaim and completeClaim",
            "After USER_REQUESTED the claimer may complete at once; its entry is created.",
        )
        .accepted(200, "CompleteClaimResponse")
        .text("Claim/Status", "COMPLETED")
        .present("EntryCreationDate")
        .present("KeyOwnershipDate"),
        Step::get("the key belongs to the claimer", "/entries/{%phone}")
            .by_counterparty()
            .header("PI-PayerId", "{payer}")
            .header("PI-EndToEndId", "{own_lookup}")
            .says(
                "API, completeClaim",
                "The claimer's entry takes the place of the donor's.",
            )
            .accepted(200, "GetEntryResponse")
            .text("Entry/Account/Participant", "{participant}")
            .text("Entry/Owner/TaxIdNumber", "{claimer}"),
        Step::post("the owner can move the key", "/claims/", PORTABILITY)
            .by_counterparty()
            .says(
                "API, createClaim",
                "Portability is for the owner of the key.",
            )
            .accepted(201, "CreateClaimResponse")
            .text("Claim/Status", "OPEN")
            .save("portability", "Claim/Id"),
        Step::post(
            "cancelClaim ends a claim",
            "/claims/{portability}/cancel",
            CANCEL_CLAIM,
        )
        .by_counterparty()
        .says(
            "API, cancelClaim",
            "The claimer may cancel a portability at its user's request.",
        )
        .accepted(200, "CancelClaimResponse")
        .text("Claim/Status", "CANCELLED")
        .text("Claim/CancelledBy", "CLAIMER"),
        Step::get("getClaim shows the claim", "/claims/{portability}")
            .says("API, getClaim", "Claimer and donor can read a claim.")
            .accepted(200, "GetClaimResponse")
            .text("Claim/CancelReason", "USER_REQUESTED"),
        Step::get(
            "listClaims filters by role and status",
            "/claims/?Participant={self}&IsDonor=true&Status=CANCELLED&Limit=200",
        )
        .says(
            "API, listClaims",
            "Lists are ordered by LastModified and say whether there are more.",
        )
        .accepted(200, "ListClaimsResponse")
        .present("HasMoreElements"),
        Step::post(
            "deleteEntry removes the key",
            "/entries/{%phone}/delete",
            DELETE,
        )
        .says(
            "API, deleteEntry",
            "The participant of the account may remove the key.",
        )
        .accepted(200, "DeleteEntryResponse")
        .text("Key", "{phone}"),
    ]
}

#[expect(clippy::too_many_lines, reason = "one step after another")]
fn funds_recovery() -> Vec<Step> {
    vec![
        Step::post(
            "createFundsRecovery begins a recovery",
            "/funds-recoveries/",
            RECOVERY,
        )
        .says(
            "API, createFundsRecovery",
            "The payer's participant begins it at the root.",
        )
        .accepted(201, "CreateFundsRecoveryResponse")
        .text("FundsRecovery/Status", "CREATED")
        .text("FundsRecovery/ReporterParticipant", "{participant}")
        .save("recovery", "FundsRecovery/Id"),
        Step::post(
            "a root has one funds recovery",
            "/funds-recoveries/",
            RECOVERY,
        )
        .says(
            "API, FundsRecoveryForTransactionAlreadyExists",
            "A root transaction has one funds recovery.",
        )
        .refused(400, "FundsRecoveryForTransactionAlreadyExists"),
        Step::get(
            "getFundsRecovery shows its progress",
            "/funds-recoveries/{recovery}",
        )
        .says(
            "manual 20.1",
            "DICT tracks the money and notifies the participants itself.",
        )
        .accepted(200, "GetFundsRecoveryResponse")
        .text("FundsRecovery/Status", "AWAITING_ANALYSIS"),
        Step::get(
            "the graph begins with the root",
            "/funds-recoveries/{recovery}/tracking-graph",
        )
        .says(
            "manual 20",
            "The root transaction is the first layer of the graph.",
        )
        .accepted(200, "GetTrackingGraphResponse")
        .text("TrackingGraph/RootTransactionId", "{root}")
        .contains("TrackingGraph/Transactions", "{root}"),
        Step::get(
            "each transaction has an infraction report",
            "/funds-recoveries/{recovery}/infraction-reports",
        )
        .says(
            "manual 20.1",
            "The participants are notified by infraction reports.",
        )
        .accepted(200, "ListFundsRecoveryInfractionReportsResponse")
        .text("InfractionReports/InfractionReport/TransactionId", "{root}")
        .text("InfractionReports/InfractionReport/Status", "OPEN")
        .save("report", "InfractionReports/InfractionReport/Id"),
        Step::post(
            "the report of a recovery is not cancelled alone",
            "/infraction-reports/{report}/cancel",
            CANCEL_REPORT,
        )
        .says(
            "API, InfractionReportOperationInvalid",
            "A report of a funds recovery is cancelled with it.",
        )
        .refused(400, "InfractionReportOperationInvalid"),
        Step::post(
            "acknowledgeInfractionReport receives a report",
            "/infraction-reports/{report}/acknowledge",
            ACKNOWLEDGE_REPORT,
        )
        .by_counterparty()
        .says(
            "API, acknowledgeInfractionReport",
            "The counterparty has received the report.",
        )
        .accepted(200, "AcknowledgeInfractionReportResponse")
        .text("InfractionReport/Status", "ACKNOWLEDGED"),
        Step::post(
            "an agreement needs the type of fraud",
            "/infraction-reports/{report}/close",
            CLOSE_WITHOUT_TYPE,
        )
        .by_counterparty()
        .says(
            "API, closeInfractionReport",
            "FraudType is required with AGREED.",
        )
        .refused(400, "InfractionReportInvalid"),
        Step::post(
            "closeInfractionReport marks the fraud",
            "/infraction-reports/{report}/close",
            CLOSE_REPORT,
        )
        .by_counterparty()
        .says(
            "API, closeInfractionReport",
            "An agreement creates a fraud marker.",
        )
        .accepted(200, "CloseInfractionReportResponse")
        .text("InfractionReport/Status", "CLOSED")
        .text("InfractionReport/AnalysisResult", "AGREED")
        .present("InfractionReport/FraudMarkerId"),
        Step::post(
            "refundFundsRecovery requests the refunds",
            "/funds-recoveries/{recovery}/refund",
            REFUND_RECOVERY,
        )
        .says(
            "manual 20.1.7",
            "After the analysis the creator asks for the refunds.",
        )
        .accepted(200, "RefundFundsRecoveryResponse")
        .text("FundsRecovery/Status", "REFUNDING"),
        Step::get(
            "the refunds can be listed",
            "/funds-recoveries/{recovery}/refunds",
        )
        .says(
            "API, listFundsRecoveryRefunds",
            "Each refund names its transaction.",
        )
        .accepted(200, "ListFundsRecoveryRefundsResponse")
        .text("Refunds/Refund/TransactionId", "{root}")
        .text("Refunds/Refund/MonitorAccount", "true")
        .save("refund", "Refunds/Refund/Id"),
        Step::post(
            "the refund of a recovery is not cancelled alone",
            "/refunds/{refund}/cancel",
            CANCEL_RECOVERED,
        )
        .says(
            "API, RefundOperationInvalid",
            "A refund of a funds recovery is cancelled with it.",
        )
        .refused(400, "RefundOperationInvalid"),
        Step::post(
            "closeRefund returns the money",
            "/refunds/{refund}/close",
            CLOSE_REFUND,
        )
        .by_counterparty()
        .says(
            "manual 20.1.7",
            "The root is refunded by a return (pacs.004).",
        )
        .accepted(200, "CloseRefundResponse")
        .text("Refund/Status", "CLOSED")
        .text("Refund/RefundTransactionId", "{return}"),
        Step::get("the recovery is completed", "/funds-recoveries/{recovery}")
            .says(
                "manual 20.1.7",
                "With its last refund the funds recovery is completed.",
            )
            .accepted(200, "GetFundsRecoveryResponse")
            .text("FundsRecovery/Status", "COMPLETED"),
        Step::post(
            "createInfractionReport is gone",
            "/infraction-reports/",
            DEPRECATED_REPORT,
        )
        .says(
            "API, DeprecatedResource",
            "Funds recoveries have replaced single reports.",
        )
        .refused(410, "DeprecatedResource"),
        Step::get(
            "listEventNotifications tells of the recovery",
            "/event-notifications?Participant={self}",
        )
        .says(
            "API, listEventNotifications",
            "The events of the last seven days can be listed.",
        )
        .accepted(200, "ListEventNotificationsResponse"),
    ]
}

fn refunds_and_markers() -> Vec<Step> {
    vec![
        Step::post(
            "createRefund asks for an operational flaw",
            "/refunds/",
            FLAW,
        )
        .says(
            "API, createRefund",
            "The payer's participant asks for a refund.",
        )
        .accepted(201, "CreateRefundResponse")
        .text("Refund/Status", "OPEN")
        .text("Refund/RefundAmount", "1.00")
        .save("flaw_refund", "Refund/Id"),
        Step::post("a transaction has one open refund", "/refunds/", FLAW)
            .says(
                "API, RefundAlreadyBeingProcessedForTransaction",
                "A transaction has at most one open refund.",
            )
            .refused(400, "RefundAlreadyBeingProcessedForTransaction"),
        Step::post(
            "cancelRefund withdraws it",
            "/refunds/{flaw_refund}/cancel",
            CANCEL_FLAW,
        )
        .says("API, cancelRefund", "Who asked for a refund may cancel it.")
        .accepted(200, "CancelRefundResponse")
        .text("Refund/Status", "CANCELLED"),
        Step::post(
            "createFraudMarker marks a person",
            "/fraud-markers/",
            MARKER,
        )
        .says("API, createFraudMarker", "A marker is registered at once.")
        .accepted(201, "CreateFraudMarkerResponse")
        .text("FraudMarker/Status", "REGISTERED")
        .save("marker", "FraudMarker/Id"),
        Step::get(
            "listFraudMarkers finds the marker",
            "/fraud-markers/?Participant={self}&TaxIdNumber={payer}&Limit=1",
        )
        .says(
            "API, listFraudMarkers",
            "The markers of a person are listed within Limit.",
        )
        .accepted(200, "ListFraudMarkersResponse")
        .contains("FraudMarkers", "{marker}"),
        Step::post(
            "cancelFraudMarker takes it back",
            "/fraud-markers/{marker}/cancel",
            CANCEL_MARKER,
        )
        .says(
            "API, cancelFraudMarker",
            "Who created a marker may cancel it.",
        )
        .accepted(200, "CancelFraudMarkerResponse")
        .text("FraudMarker/Status", "CANCELLED"),
    ]
}

fn buckets() -> Vec<Step> {
    vec![
        Step::get("getBucketState shows a bucket", "/policies/ENTRIES_WRITE")
            .says(
                "API, getBucketState",
                "The state has tokens, capacity and refill.",
            )
            .accepted(200, "GetPolicyResponse")
            .text("Policy/Name", "ENTRIES_WRITE")
            .present("Policy/AvailableTokens")
            .present("Policy/Capacity")
            .present("Policy/RefillTokens")
            .present("Policy/RefillPeriodSec"),
        Step::get("listBucketStates shows all buckets", "/policies/")
            .says(
                "API, listBucketStates",
                "All policies of the participant are listed.",
            )
            .accepted(200, "ListPoliciesResponse")
            .present("Category")
            .contains("Policies", "POLICIES_LIST"),
        Step::get("an empty bucket answers 429", "/policies/")
            .says(
                "API, rate limits; manual 13",
                "Without a token a request is refused with 429 RateLimited.",
            )
            .refused(429, "RateLimited")
            .text("title", "Rate limited")
            .repeated(),
    ]
}
