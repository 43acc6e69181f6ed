//! Handlers: each carries out one DICT operation on the directory and writes the response.

mod claims;
mod entries;
mod funds_recoveries;
mod infractions;
mod markers;
mod policies;
mod reconciliation;
mod refunds;

use bytes::Bytes;
use http::HeaderValue;

use super::Simulator;
use super::answer::Answer;
use super::query::Query;
use super::runtime_settings::Restriction;
use crate::directory::DirectoryError;
use crate::tls::ClientCertificate;
use crate::wire::{
    CreateClaim, CreateEntry, Element, ISPB_PATTERN, Problem, ResponseHead, SignatureError,
    Timestamp, UpdateEntry, Violation, canonical_ispb,
};
use balde_dict::Operation;

/// An admitted request, as the handlers see it.
pub(crate) struct RequestContext<'t> {
    pub(crate) operation: Operation,
    pub(crate) participant: &'t str,
    /// The variable segment of the path, not decoded.
    pub(crate) segment: &'t str,
    pub(crate) query: &'t str,
    pub(crate) host: Option<&'t HeaderValue>,
    /// The key in the path, if the operation has one.
    pub(crate) key: Option<&'t str>,
    pub(crate) root: Option<&'t Element>,
    pub(crate) body: &'t Bytes,
    pub(crate) now: Timestamp,
    pub(crate) head: ResponseHead,
}

impl Simulator {
    /// Carries out the operation, or returns the problem that prevents it.
    pub(crate) async fn handle(&self, context: &RequestContext<'_>) -> Result<Answer, Problem> {
        use Operation as O;

        if context.operation.is_deprecated() && !self.0.table.settings().serve_deprecated {
            let detail = "The operation is deprecated; funds recoveries take its place";
            return Err(Problem::new(410, "DeprecatedResource").with_detail(detail));
        }
        self.check_signature(context)?;
        match context.operation {
            O::GetEntry | O::GetEntryInitiator => self.get_entry(context).await,
            O::GetOwnerStatistics => self.get_owner_statistics(context).await,
            O::CreateEntry => self.create_entry(context).await,
            O::UpdateEntry => self.update_entry(context).await,
            O::DeleteEntry => self.delete_entry(context).await,
            O::GetEntryStatistics => self.get_entry_statistics(context).await,
            O::GetPersonStatistics => self.get_person_statistics(context).await,
            O::CheckKeys => self.check_keys(context).await,
            O::CreateClaim => self.create_claim(context).await,
            O::ListClaims => self.list_claims(context).await,
            O::GetClaim => self.get_claim(context).await,
            O::AcknowledgeClaim | O::ConfirmClaim | O::CancelClaim | O::CompleteClaim => {
                self.apply_claim_action(context).await
            }
            O::CreateSyncVerification => self.create_sync_verification(context).await,
            O::CreateCidSetFile => self.create_cid_set_file(context).await,
            O::GetCidSetFile => self.get_cid_set_file(context).await,
            O::ListCidSetEvents => self.list_cid_set_events(context).await,
            O::GetEntryByCid => self.get_entry_by_cid(context).await,
            O::CreateInfractionReport => self.create_infraction_report(context).await,
            O::ListInfractionReports => self.list_infraction_reports(context).await,
            O::GetInfractionReport => self.get_infraction_report(context).await,
            O::UpdateInfractionReport
            | O::AcknowledgeInfractionReport
            | O::CancelInfractionReport
            | O::CloseInfractionReport => self.apply_infraction_action(context).await,
            O::CreateFundsRecovery => self.create_funds_recovery(context).await,
            O::GetFundsRecovery => self.get_funds_recovery(context).await,
            O::GetTrackingGraph => self.get_tracking_graph(context).await,
            O::ListFundsRecoveryInfractionReports => self.list_recovery_reports(context).await,
            O::ListFundsRecoveryRefunds => self.list_recovery_refunds(context).await,
            O::UpdateFundsRecovery
            | O::CreateTrackingGraph
            | O::BlockFundsRecovery
            | O::RefundFundsRecovery
            | O::CancelFundsRecovery => self.apply_recovery_action(context).await,
            O::CreateFraudMarker => self.create_fraud_marker(context).await,
            O::ListFraudMarkers => self.list_fraud_markers(context).await,
            O::GetFraudMarker => self.get_fraud_marker(context).await,
            O::CancelFraudMarker => self.cancel_fraud_marker(context).await,
            O::CreateRefund => self.create_refund(context).await,
            O::ListRefunds => self.list_refunds(context).await,
            O::GetRefund => self.get_refund(context).await,
            O::CancelRefund | O::CloseRefund => self.apply_refund_action(context).await,
            O::ListEventNotifications => self.list_event_notifications(context).await,
            O::ListBucketStates => self.list_bucket_states(context).await,
            O::GetBucketState => self.get_bucket_state(context).await,
        }
    }

    /// The participants whose records a list has: the requesting one and, if the query says so, the
    /// indirect participants that it settles for.
    fn listed_participants(
        &self,
        context: &RequestContext<'_>,
        query: &Query<'_>,
    ) -> Result<Vec<String>, Problem> {
        match query.flag("IncludeIndirectParticipants")? {
            Some(true) => Ok(self.represented_by(context.participant)),
            _ => Ok(vec![context.participant.to_owned()]),
        }
    }

    /// A participant and the indirect participants that it settles for: it may read the claims,
    /// infraction reports and refunds of all of them.
    fn represented_by(&self, participant: &str) -> Vec<String> {
        let mut represented = vec![participant.to_owned()];
        if let Some(participants) = &self.0.participants {
            represented.extend(participants.indirect_of(participant));
        }
        represented
    }

    /// Refuses what a key or a person is restricted from. The errors are those of a blocked key, of a
    /// key used for fraud, of a blocked person and of a person that committed fraud, where the
    /// operation has them.
    fn check_restrictions(
        &self,
        key: Option<&str>,
        tax_id: Option<&str>,
        errors: [Option<&'static str>; 4],
    ) -> Result<(), Problem> {
        let runtime = self.0.buckets.runtime();
        if runtime.restrictions.is_empty() {
            return Ok(());
        }
        let key = key.and_then(|key| runtime.key_restriction(key));
        let person = tax_id.and_then(|tax_id| runtime.person_restriction(tax_id));
        let of = |found: Option<Restriction>, [blocked, fraud]: [Option<&'static str>; 2]| {
            match found? {
                Restriction::Blocked => blocked,
                Restriction::Fraud => fraud,
            }
        };
        let [key_blocked, key_fraud, blocked, fraud] = errors;
        let error = of(key, [key_blocked, key_fraud]).or_else(|| of(person, [blocked, fraud]));
        match error {
            Some(error) => Err(Problem::new(400, error)),
            None => Ok(()),
        }
    }

    /// Writes are signed; checkKeys, which changes nothing, is not.
    fn check_signature(&self, context: &RequestContext<'_>) -> Result<(), Problem> {
        let is_signed = context.root.is_some() && context.operation != Operation::CheckKeys;
        let Some(verifier) = self.0.verifier.as_ref().filter(|_| is_signed) else {
            return Ok(());
        };
        let signature = context.root.and_then(|root| root.child("Signature"));
        let has_signature = signature.is_some_and(|own| !own.children().is_empty());
        if !has_signature && !self.0.requires_signatures {
            return Ok(());
        }
        let invalid =
            |detail: String| Problem::new(400, "RequestSignatureInvalid").with_detail(detail);
        let signer = verifier.verify_signer(context.body);
        let signer = signer.map_err(|error: SignatureError| invalid(error.to_string()))?;
        let signer = signer.map(|der| ClientCertificate::of(&der));
        if signer.is_some_and(|signer| !self.may_sign(&signer, context.participant)) {
            let detail =
                "the signature is not valid: the certificate belongs to another participant";
            return Err(invalid(detail.to_owned()));
        }
        Ok(())
    }

    /// Whether a certificate may sign for a participant: its own or, if the participants are known, its
    /// liquidator's. A certificate that names no participant may sign for any if they are not known.
    fn may_sign(&self, signer: &ClientCertificate, participant: &str) -> bool {
        match &self.0.participants {
            Some(participants) => participants.covers(signer, participant),
            None => signer
                .ispb
                .as_deref()
                .is_none_or(|own| canonical_ispb(own) == participant),
        }
    }
}

impl RequestContext<'_> {
    /// The request's document.
    fn document(&self) -> Result<&Element, Problem> {
        self.root
            .ok_or_else(|| Problem::bad_request("The request has no body"))
    }

    /// Checks that the id in the body is the one in the path.
    fn require_path_id(&self, id: &str) -> Result<(), Problem> {
        if self.segment.eq_ignore_ascii_case(id) {
            Ok(())
        } else {
            Err(Problem::bad_request(
                "The path and the body name different ids",
            ))
        }
    }

    /// The id in the path, which must be a UUID.
    fn uuid(&self) -> Result<&str, Problem> {
        if crate::wire::is_uuid(self.segment) {
            Ok(self.segment)
        } else {
            Err(Problem::bad_request("The id in the path is not a UUID"))
        }
    }
}

/// The problem of a document with missing or invalid fields, in the published words.
fn invalid(error_type: &str) -> impl Fn(Vec<Violation>) -> Problem + '_ {
    move |violations| {
        let subject = error_type.strip_suffix("Invalid").unwrap_or("Request");
        Problem::new(400, error_type)
            .with_detail(format!("{subject} has invalid fields"))
            .with_violations(violations)
    }
}

/// The problem of a body whose participant is not an ISPB: that of the operation's document.
pub(super) fn invalid_participant(operation: Operation, root: &Element) -> Problem {
    use Operation as O;
    let error_type = match operation {
        O::CreateEntry | O::UpdateEntry => "EntryInvalid",
        O::CreateClaim => "ClaimInvalid",
        _ => "BadRequest",
    };
    let violations = match operation {
        O::CreateEntry => CreateEntry::read(root).err(),
        O::UpdateEntry => UpdateEntry::read(root).err(),
        O::CreateClaim => CreateClaim::read(root).err(),
        _ => None,
    };
    let violations = violations.unwrap_or_else(|| {
        vec![Violation {
            reason: ISPB_PATTERN.to_owned(),
            value: operation.participant_in(root).map(str::to_owned),
            property: Some("participant".to_owned()),
        }]
    });
    invalid(error_type)(violations)
}

fn problem(error: impl Into<DirectoryError>) -> Problem {
    error.into().into_problem()
}
