//! Claims: opened by the claimer, acknowledged and confirmed by the donor, completed by the claimer.
//!
//! ```text
//! OPEN ── acknowledge (donor) ─▶ WAITING_RESOLUTION ── confirm (donor) ─▶ CONFIRMED ── complete (claimer) ─▶ COMPLETED
//!   └────────── cancel ──────────────┴──────────────── cancel ─────────────┘
//! ```
//! Confirming removes the donor's entry, completing creates the claimer's. In between the key is
//! reserved: nobody can register or claim it. `confirm_states` and
//! `cancel_states` are the published tables: who may do it, for which reason, in which status.

use std::sync::Arc;

use super::entries::{
    EntryRecord, add_entry, claimed_name, count_request, entry_name, is_claimed, read_entry,
    remove_entry, used_request_name,
};
use super::error::DirectoryError;
use super::handle::{Directory, RECORDS_MAX};
use super::ids::new_id;
use super::lists::{Cursor, ListFilter, Listed, require_any};
use super::store::RecordTransaction;
use crate::wire::{
    Claim, ClaimActionRequest, ClaimReason, ClaimSide, ClaimStatus, ClaimType, CreateClaim, Entry,
    Problem, Timestamp, Violation, WireEnum,
};
use balde_dict::ClaimPeriodStart;
use balde_dict::KeyType;

const DAY_MS: u64 = 86_400_000;
const RESOLUTION_MS: u64 = 7 * DAY_MS;
const COMPLETION_MS: u64 = 14 * DAY_MS;
/// How long the claimer has to prove the ownership of the key.
const PROOF_MS: u64 = 30 * DAY_MS;

/// An action that changes a claim's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimAction {
    Acknowledge,
    Confirm,
    Cancel,
    Complete,
}

impl Directory {
    /// Carries out createClaim.
    pub(crate) async fn create_claim(
        &self,
        request: &CreateClaim,
        now: Timestamp,
    ) -> Result<Arc<Claim>, DirectoryError> {
        check_key_type(request)?;
        self.transact(|mut transaction| async move {
            let name = entry_name(&request.key);
            let found: Option<Arc<EntryRecord>> = transaction.read(&name).await?;
            let Some(found) = found else {
                return Err(if is_claimed(&mut transaction, &request.key).await? {
                    claim_exists()
                } else {
                    Problem::new(404, "ClaimKeyNotFound")
                        .with_detail("No entry has the claimed key")
                        .into()
                });
            };
            check_entry(request, &found.entry)?;
            let claim = Arc::new(open_claim(request, &found.entry, now));
            let mut entry = found.entry.clone();
            entry.open_claim_creation_date = Some(now);
            transaction.put(name, EntryRecord::new(entry))?;
            transaction.count("claims".to_owned(), 1, RECORDS_MAX);
            put_claim(&mut transaction, &claim)?;
            Ok(transaction.commit(claim).await?)
        })
        .await
    }

    /// Carries out getClaim, for the claimer or the donor.
    pub(crate) async fn claim(
        &self,
        participants: &[String],
        id: &str,
    ) -> Result<Arc<Claim>, DirectoryError> {
        let claim: Option<Arc<Claim>> = self.records.get(&claim_name(id)).await?;
        let claim = claim.ok_or_else(|| Problem::not_found("No claim has the given id"))?;
        require_any(participants, |own| side_of(&claim, own).map(|_| ()))?;
        Ok(claim)
    }

    /// Carries out listClaims.
    pub(crate) async fn claims(
        &self,
        filter: &ListFilter,
        statuses: &[ClaimStatus],
        claim_type: Option<ClaimType>,
    ) -> Result<(Vec<Claim>, bool), DirectoryError> {
        let matches = |claim: &Claim| {
            let (claimer, donor) = (&claim.claimer_account.participant, &claim.donor_participant);
            filter.is_on_side(claimer, Some(donor))
                && (statuses.is_empty() || statuses.contains(&claim.status))
                && claim_type.is_none_or(|claim_type| claim.claim_type == claim_type)
        };
        let indexes = filter.indexes("claims");
        let (claims, next) = self.list(&indexes, "claim", filter, matches).await?;
        Ok((claims, next.is_some()))
    }

    /// Carries out acknowledgeClaim, confirmClaim, cancelClaim or completeClaim. A repetition returns
    /// the claim unchanged.
    pub(crate) async fn apply_claim_action(
        &self,
        action: ClaimAction,
        request: &ClaimActionRequest,
        now: Timestamp,
    ) -> Result<Arc<Claim>, DirectoryError> {
        self.transact(|mut transaction| async move {
            let name = claim_name(&request.claim_id);
            let found: Option<Arc<Claim>> = transaction.read(&name).await?;
            let found = found.ok_or_else(|| Problem::not_found("No claim has the given id"))?;
            let side = acting_side(&found, action, request)?;
            if is_repetition(&found, action, side, request) {
                return Ok(transaction.commit(found).await?);
            }
            self.check_action(&found, action, side, request.reason, now)?;
            let mut claim = (*found).clone();
            claim.last_modified = now;
            match action {
                ClaimAction::Acknowledge => {
                    claim.status = ClaimStatus::WaitingResolution;
                    if self.settings.claim_period_start == ClaimPeriodStart::Acknowledgement {
                        set_periods(&mut claim, now);
                    }
                }
                ClaimAction::Confirm => {
                    claim.status = ClaimStatus::Confirmed;
                    claim.confirm_reason = request.reason;
                    let is_by_user = request.reason == Some(ClaimReason::UserRequested);
                    if claim.claim_type == ClaimType::Ownership && is_by_user {
                        // The claimer may complete it at once.
                        claim.completion_period_end = Some(now);
                    }
                    let entry = read_entry(&mut transaction, &claim.key).await?;
                    remove_entry(&mut transaction, &entry.entry, now);
                    claim.donor_entry = Some(Box::new(entry.entry.clone()));
                    // Nobody can register the key until the claim is completed or cancelled.
                    let id = Arc::new(claim.id.clone());
                    transaction.put(claimed_name(&claim.key), id)?;
                }
                ClaimAction::Cancel => {
                    claim.status = ClaimStatus::Cancelled;
                    claim.cancel_reason = request.reason;
                    claim.cancelled_by = Some(side);
                    transaction.delete(claimed_name(&claim.key));
                    self.release_entry(&mut transaction, &found, now).await?;
                }
                ClaimAction::Complete => {
                    claim.status = ClaimStatus::Completed;
                    claim.completion_request_id.clone_from(&request.request_id);
                    transaction.delete(claimed_name(&claim.key));
                    create_claimed_entry(&mut transaction, &mut claim, request, now).await?;
                }
            }
            let claim = Arc::new(claim);
            put_claim(&mut transaction, &claim)?;
            Ok(transaction.commit(claim).await?)
        })
        .await
    }

    /// Removes the claim's mark from the donor's entry, or restores the entry that a confirmed claim
    /// removed, if the settings say so.
    async fn release_entry(
        &self,
        transaction: &mut RecordTransaction<'_>,
        claim: &Claim,
        now: Timestamp,
    ) -> Result<(), DirectoryError> {
        let name = entry_name(&claim.key);
        let found: Option<Arc<EntryRecord>> = transaction.read(&name).await?;
        match (found, &claim.donor_entry) {
            (Some(found), None) => {
                let mut entry = found.entry.clone();
                entry.open_claim_creation_date = None;
                transaction.put(name, EntryRecord::new(entry))?;
            }
            (None, Some(donor)) if self.settings.restore_entry_of_cancelled_claim => {
                let mut entry = (**donor).clone();
                entry.open_claim_creation_date = None;
                add_entry(transaction, &EntryRecord::new(entry), now)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn check_action(
        &self,
        claim: &Claim,
        action: ClaimAction,
        side: ClaimSide,
        reason: Option<ClaimReason>,
        now: Timestamp,
    ) -> Result<(), DirectoryError> {
        use ClaimStatus as S;
        let states: &[ClaimStatus] = match (action, reason) {
            (ClaimAction::Acknowledge, _) => &[S::Open],
            (ClaimAction::Complete, _) => &[S::Confirmed],
            (ClaimAction::Confirm, Some(reason)) => confirm_states(claim.claim_type, reason),
            (ClaimAction::Cancel, Some(reason)) => cancel_states(claim.claim_type, side, reason),
            (ClaimAction::Confirm | ClaimAction::Cancel, None) => &[],
        };
        let is_possible = match action {
            ClaimAction::Acknowledge | ClaimAction::Complete => states.contains(&claim.status),
            ClaimAction::Confirm => claim.status == S::WaitingResolution,
            ClaimAction::Cancel => !matches!(claim.status, S::Cancelled | S::Completed),
        };
        if is_possible && states.is_empty() {
            let detail = "The claim's type and the participant's side do not allow this reason";
            return Err(DirectoryError::rejected(
                self.settings.claim_reason_error,
                detail,
            ));
        }
        if !is_possible || !states.contains(&claim.status) {
            let detail = "The claim's status does not allow this";
            return Err(DirectoryError::rejected("ClaimOperationInvalid", detail));
        }
        check_period(claim, action, side, reason, now)
    }
}

impl Listed for Claim {
    fn cursor(&self) -> Cursor {
        (self.last_modified.ms(), self.id.clone())
    }
}

/// Creates the claimer's entry, after the donor's was removed.
async fn create_claimed_entry(
    transaction: &mut RecordTransaction<'_>,
    claim: &mut Claim,
    request: &ClaimActionRequest,
    now: Timestamp,
) -> Result<(), DirectoryError> {
    let name = entry_name(&claim.key);
    let taken: Option<Arc<EntryRecord>> = transaction.read(&name).await?;
    if taken.is_some() {
        return Err(DirectoryError::rejected(
            "ClaimResultingEntryAlreadyExists",
            "Another entry of the key was created after the donor confirmed",
        ));
    }
    let request_id = request.request_id.clone().unwrap_or_default();
    let used = used_request_name(&claim.claimer_account.participant, &request_id);
    let used: Option<Arc<String>> = transaction.read(&used).await?;
    if used.is_some() {
        return Err(DirectoryError::rejected(
            "RequestIdAlreadyUsed",
            "The RequestId was used for another entry",
        ));
    }
    if claim.claim_type == ClaimType::Ownership {
        claim.key_ownership_date = now;
    }
    let record = EntryRecord::new(Entry {
        key: claim.key.clone(),
        key_type: claim.key_type,
        account: claim.claimer_account.clone(),
        owner: claim.claimer.clone(),
        creation_date: now,
        key_ownership_date: claim.key_ownership_date,
        open_claim_creation_date: None,
        request_id,
    });
    count_request(transaction);
    add_entry(transaction, &record, now)?;
    Ok(())
}

fn put_claim(
    transaction: &mut RecordTransaction<'_>,
    claim: &Arc<Claim>,
) -> Result<(), DirectoryError> {
    transaction.put(claim_name(&claim.id), Arc::clone(claim))?;
    let at = claim.last_modified.ms();
    for participant in [&claim.claimer_account.participant, &claim.donor_participant] {
        transaction.add_member(format!("claims:{participant}"), at, &claim.id);
    }
    Ok(())
}

fn claim_name(id: &str) -> String {
    format!("claim:{}", id.to_lowercase())
}

fn open_claim(request: &CreateClaim, entry: &Entry, now: Timestamp) -> Claim {
    let mut claim = Claim {
        id: new_id(),
        claim_type: request.claim_type,
        key: request.key.clone(),
        key_type: request.key_type,
        claimer_account: request.claimer_account.clone(),
        claimer: request.claimer.clone(),
        donor_participant: entry.account.participant.clone(),
        status: ClaimStatus::Open,
        resolution_period_end: now,
        completion_period_end: None,
        last_modified: now,
        creation_date: now,
        confirm_reason: None,
        cancel_reason: None,
        cancelled_by: None,
        key_ownership_date: entry.key_ownership_date,
        donor_entry: None,
        completion_request_id: None,
    };
    set_periods(&mut claim, now);
    claim
}

fn set_periods(claim: &mut Claim, start: Timestamp) {
    claim.resolution_period_end = start.plus_ms(RESOLUTION_MS);
    let is_ownership = claim.claim_type == ClaimType::Ownership;
    claim.completion_period_end = is_ownership.then(|| start.plus_ms(COMPLETION_MS));
}

/// Ownership can be claimed of phones only; a key of type EVP cannot be claimed.
fn check_key_type(request: &CreateClaim) -> Result<(), DirectoryError> {
    let is_claimable = match request.claim_type {
        ClaimType::Ownership => request.key_type == KeyType::Phone,
        ClaimType::Portability => request.key_type != KeyType::Evp,
    };
    if is_claimable {
        return Ok(());
    }
    let violation = Violation {
        reason: format!(
            "a key of this type cannot be claimed by {}",
            request.claim_type.as_str()
        ),
        value: Some(request.key_type.as_str().to_owned()),
        property: Some("claim.keyType".to_owned()),
    };
    Err(Problem::new(400, "ClaimInvalid")
        .with_detail("Claim has invalid fields")
        .with_violations(vec![violation])
        .into())
}

fn check_entry(request: &CreateClaim, entry: &Entry) -> Result<(), DirectoryError> {
    if entry.open_claim_creation_date.is_some() {
        return Err(claim_exists());
    }
    let is_same_owner = entry.owner.tax_id_number == request.claimer.tax_id_number;
    let is_same_participant = entry.account.participant == request.claimer_account.participant;
    if is_same_owner && is_same_participant {
        return Err(DirectoryError::rejected(
            "ClaimResultingEntryAlreadyExists",
            "The claimer already has the key at this participant",
        ));
    }
    let expected = if is_same_owner {
        ClaimType::Portability
    } else {
        ClaimType::Ownership
    };
    if request.claim_type != expected {
        return Err(DirectoryError::rejected(
            "ClaimTypeInconsistent",
            "Portability is for the key's owner, ownership for anyone else",
        ));
    }
    Ok(())
}

fn claim_exists() -> DirectoryError {
    DirectoryError::rejected(
        "ClaimAlreadyExistsForKey",
        "The key has a claim that is neither completed nor cancelled",
    )
}

fn side_of(claim: &Claim, participant: &str) -> Result<ClaimSide, DirectoryError> {
    if claim.donor_participant == participant {
        Ok(ClaimSide::Donor)
    } else if claim.claimer_account.participant == participant {
        Ok(ClaimSide::Claimer)
    } else {
        Err(Problem::forbidden("The participant is neither claimer nor donor of this claim").into())
    }
}

/// The side that a participant acts for. A participant may be on both sides of a claim of ownership.
fn acting_side(
    claim: &Claim,
    action: ClaimAction,
    request: &ClaimActionRequest,
) -> Result<ClaimSide, DirectoryError> {
    let side = side_of(claim, &request.participant)?;
    let is_both = claim.donor_participant == claim.claimer_account.participant;
    let required = match action {
        ClaimAction::Acknowledge | ClaimAction::Confirm => ClaimSide::Donor,
        ClaimAction::Complete => ClaimSide::Claimer,
        ClaimAction::Cancel if is_both => {
            let reason = request.reason;
            let is_donors = reason.is_some_and(|reason| {
                cancel_states(claim.claim_type, ClaimSide::Claimer, reason).is_empty()
            });
            if is_donors {
                ClaimSide::Donor
            } else {
                ClaimSide::Claimer
            }
        }
        ClaimAction::Cancel => side,
    };
    if side == required || is_both {
        return Ok(required);
    }
    Err(Problem::forbidden("Only the other side of the claim may do this").into())
}

/// Whether the claim is already what the request asks for, so that it is answered as the first time.
fn is_repetition(
    claim: &Claim,
    action: ClaimAction,
    side: ClaimSide,
    request: &ClaimActionRequest,
) -> bool {
    match action {
        ClaimAction::Acknowledge => claim.status == ClaimStatus::WaitingResolution,
        ClaimAction::Confirm => {
            claim.status == ClaimStatus::Confirmed && claim.confirm_reason == request.reason
        }
        ClaimAction::Cancel => {
            claim.status == ClaimStatus::Cancelled
                && claim.cancel_reason == request.reason
                && claim.cancelled_by == Some(side)
        }
        ClaimAction::Complete => {
            claim.status == ClaimStatus::Completed
                && claim.completion_request_id == request.request_id
        }
    }
}

/// The statuses in which the donor may confirm for a reason.
fn confirm_states(claim_type: ClaimType, reason: ClaimReason) -> &'static [ClaimStatus] {
    use ClaimReason as R;
    match (claim_type, reason) {
        (ClaimType::Ownership, R::UserRequested | R::DefaultOperation)
        | (ClaimType::Portability, R::UserRequested | R::AccountClosure) => {
            &[ClaimStatus::WaitingResolution]
        }
        _ => &[],
    }
}

/// The statuses in which a side may cancel for a reason.
fn cancel_states(
    claim_type: ClaimType,
    side: ClaimSide,
    reason: ClaimReason,
) -> &'static [ClaimStatus] {
    use ClaimReason as R;
    use ClaimStatus::{Confirmed, Open, WaitingResolution};
    match (claim_type, side, reason) {
        (_, _, R::ParticipantExclusion) => &[],
        (
            ClaimType::Portability,
            ClaimSide::Donor,
            R::UserRequested | R::Fraud | R::DefaultOperation,
        )
        | (ClaimType::Portability, ClaimSide::Claimer, R::UserRequested | R::AccountClosure) => {
            &[Open, WaitingResolution]
        }
        (ClaimType::Portability, ClaimSide::Claimer, R::Reconciliation) => &[Open, Confirmed],
        (ClaimType::Portability, ClaimSide::Claimer, R::Fraud | R::RfbValidation)
        | (ClaimType::Ownership, ClaimSide::Claimer, _)
        | (ClaimType::Ownership, ClaimSide::Donor, R::Fraud) => {
            &[Open, WaitingResolution, Confirmed]
        }
        _ => &[],
    }
}

/// Whether the period has ended after which an action is possible.
fn check_period(
    claim: &Claim,
    action: ClaimAction,
    side: ClaimSide,
    reason: Option<ClaimReason>,
    now: Timestamp,
) -> Result<(), DirectoryError> {
    let is_by_default = reason == Some(ClaimReason::DefaultOperation);
    let (end, error) = match (action, side) {
        (ClaimAction::Confirm, _) | (ClaimAction::Cancel, ClaimSide::Donor) if is_by_default => {
            let end = claim.resolution_period_end;
            (Some(end), "ClaimResolutionPeriodNotEnded")
        }
        (ClaimAction::Cancel, ClaimSide::Claimer) if is_by_default => {
            let start = claim.resolution_period_end.minus_ms(RESOLUTION_MS);
            (
                Some(start.plus_ms(PROOF_MS)),
                "ClaimResolutionPeriodNotEnded",
            )
        }
        (ClaimAction::Complete, _) => {
            (claim.completion_period_end, "ClaimCompletionPeriodNotEnded")
        }
        _ => (None, ""),
    };
    if end.is_some_and(|end| now < end) {
        return Err(DirectoryError::rejected(
            error,
            "The claim's period has not ended",
        ));
    }
    Ok(())
}
