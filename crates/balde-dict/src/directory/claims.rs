//! Claims: opened by the claimer, acknowledged and confirmed by the donor, completed by the claimer.
//!
//! ```text
//! OPEN ── acknowledge (donor) ─▶ WAITING_RESOLUTION ── confirm (donor) ─▶ CONFIRMED ── complete (claimer) ─▶ COMPLETED
//!   └───────────── cancel (either) ──┴──────────────── cancel (claimer) ───┘
//! ```
//! Confirming removes the donor's entry, completing creates the claimer's.

use std::sync::Arc;

use super::entries::{EntryRecord, add_entry, entry_name, read_entry, remove_entry};
use super::error::DirectoryError;
use super::handle::{Directory, RECORDS_MAX};
use super::ids::new_id;
use super::lists::{ListFilter, Side};
use super::store::RecordTransaction;
use crate::KeyType;
use crate::wire::{
    Claim, ClaimActionRequest, ClaimReason, ClaimSide, ClaimStatus, ClaimType, CreateClaim, Entry,
    Problem, Timestamp,
};

const DAY_MS: u64 = 86_400_000;
const RESOLUTION_MS: u64 = 7 * DAY_MS;
const COMPLETION_MS: u64 = 14 * DAY_MS;

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
            let found = found.ok_or_else(|| {
                Problem::new(404, "ClaimKeyNotFound").with_detail("No entry has the claimed key")
            })?;
            check_entry(request, &found.entry)?;
            let claim = Arc::new(open_claim(request, &found.entry, now));
            let mut entry = found.entry.clone();
            entry.open_claim_creation_date = Some(now);
            transaction.put(name, EntryRecord::new(entry))?;
            transaction.count("claims".to_owned(), 1, RECORDS_MAX);
            put_claim(&mut transaction, &claim, "CLAIM_OPENED")?;
            Ok(transaction.commit(claim).await?)
        })
        .await
    }

    /// Carries out getClaim, for the claimer or the donor.
    pub(crate) async fn claim(
        &self,
        participant: &str,
        id: &str,
    ) -> Result<Arc<Claim>, DirectoryError> {
        let claim: Option<Arc<Claim>> = self.records.get(&claim_name(id)).await?;
        let claim = claim.ok_or_else(|| Problem::not_found("No claim has the given id"))?;
        side_of(&claim, participant)?;
        Ok(claim)
    }

    /// Carries out listClaims.
    pub(crate) async fn claims(
        &self,
        filter: &ListFilter,
        status: Option<ClaimStatus>,
        claim_type: Option<ClaimType>,
    ) -> Result<(Vec<Claim>, bool), DirectoryError> {
        let index = format!("claims:{}", filter.participant);
        let matches = |claim: &Claim| {
            let is_claimer = claim.claimer_account.participant == filter.participant;
            let is_donor = claim.donor_participant == filter.participant;
            let on_side = |side: &Side| match side {
                Side::Initiator => is_claimer,
                Side::Counterparty => is_donor,
            };
            filter.sides.iter().any(on_side)
                && status.is_none_or(|status| claim.status == status)
                && claim_type.is_none_or(|claim_type| claim.claim_type == claim_type)
        };
        Ok(self.list(&index, "claim", filter, matches).await?)
    }

    /// Carries out acknowledgeClaim, confirmClaim, cancelClaim or completeClaim.
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
            let side = side_of(&found, &request.participant)?;
            check_action(&found, action, side, request.reason, now)?;
            let mut claim = (*found).clone();
            claim.last_modified = now;
            let event = match action {
                ClaimAction::Acknowledge => {
                    claim.status = ClaimStatus::WaitingResolution;
                    "CLAIM_ACKNOWLEDGED"
                }
                ClaimAction::Confirm => {
                    claim.status = ClaimStatus::Confirmed;
                    claim.confirm_reason = request.reason;
                    let entry = read_entry(&mut transaction, &claim.key).await?;
                    remove_entry(&mut transaction, &entry.entry, now);
                    "CLAIM_CONFIRMED"
                }
                ClaimAction::Cancel => {
                    claim.status = ClaimStatus::Cancelled;
                    claim.cancel_reason = request.reason;
                    claim.cancelled_by = Some(side);
                    unlock_entry(&mut transaction, &found).await?;
                    "CLAIM_CANCELLED"
                }
                ClaimAction::Complete => {
                    claim.status = ClaimStatus::Completed;
                    create_claimed_entry(&mut transaction, &mut claim, request, now).await?;
                    "CLAIM_COMPLETED"
                }
            };
            let claim = Arc::new(claim);
            put_claim(&mut transaction, &claim, event)?;
            Ok(transaction.commit(claim).await?)
        })
        .await
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
            "ClaimOperationInvalid",
            "Another entry of the key was created after the donor confirmed",
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
        request_id: request
            .request_id
            .clone()
            .unwrap_or_default()
            .to_lowercase(),
    });
    add_entry(transaction, &record, now)?;
    Ok(())
}

/// Removes the claim's mark from the donor's entry, if the entry still exists.
async fn unlock_entry(
    transaction: &mut RecordTransaction<'_>,
    claim: &Claim,
) -> Result<(), DirectoryError> {
    if claim.status == ClaimStatus::Confirmed {
        return Ok(());
    }
    let found = read_entry(transaction, &claim.key).await?;
    let mut entry = found.entry.clone();
    entry.open_claim_creation_date = None;
    let name = entry_name(&claim.key);
    transaction.put(name, EntryRecord::new(entry))?;
    Ok(())
}

fn put_claim(
    transaction: &mut RecordTransaction<'_>,
    claim: &Arc<Claim>,
    event: &str,
) -> Result<(), DirectoryError> {
    transaction.put(claim_name(&claim.id), Arc::clone(claim))?;
    let at = claim.last_modified.ms();
    for participant in [&claim.claimer_account.participant, &claim.donor_participant] {
        transaction.add_member(format!("claims:{participant}"), at, &claim.id);
        transaction.append_event(
            format!("events:{participant}"),
            at,
            format!("{event}:{}", claim.id),
        );
    }
    Ok(())
}

fn claim_name(id: &str) -> String {
    format!("claim:{}", id.to_lowercase())
}

fn open_claim(request: &CreateClaim, entry: &Entry, now: Timestamp) -> Claim {
    let is_ownership = request.claim_type == ClaimType::Ownership;
    Claim {
        id: new_id(),
        claim_type: request.claim_type,
        key: request.key.clone(),
        key_type: request.key_type,
        claimer_account: request.claimer_account.clone(),
        claimer: request.claimer.clone(),
        donor_participant: entry.account.participant.clone(),
        status: ClaimStatus::Open,
        resolution_period_end: now.plus_ms(RESOLUTION_MS),
        completion_period_end: is_ownership.then(|| now.plus_ms(COMPLETION_MS)),
        last_modified: now,
        creation_date: now,
        confirm_reason: None,
        cancel_reason: None,
        cancelled_by: None,
        key_ownership_date: entry.key_ownership_date,
    }
}

fn check_key_type(request: &CreateClaim) -> Result<(), DirectoryError> {
    match (request.claim_type, request.key_type) {
        (_, KeyType::Evp) => Err(DirectoryError::rejected(
            "ClaimInvalid",
            "Keys of type EVP cannot be claimed",
        )),
        (ClaimType::Ownership, KeyType::Cpf | KeyType::Cnpj) => Err(DirectoryError::rejected(
            "ClaimInvalid",
            "The ownership of a CPF or CNPJ cannot be claimed",
        )),
        _ => Ok(()),
    }
}

fn check_entry(request: &CreateClaim, entry: &Entry) -> Result<(), DirectoryError> {
    if entry.open_claim_creation_date.is_some() {
        return Err(DirectoryError::rejected(
            "ClaimAlreadyExistsForKey",
            "The key already has an open claim",
        ));
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

fn side_of(claim: &Claim, participant: &str) -> Result<ClaimSide, DirectoryError> {
    if claim.donor_participant == participant {
        Ok(ClaimSide::Donor)
    } else if claim.claimer_account.participant == participant {
        Ok(ClaimSide::Claimer)
    } else {
        Err(Problem::forbidden("The participant is neither claimer nor donor of this claim").into())
    }
}

fn check_action(
    claim: &Claim,
    action: ClaimAction,
    side: ClaimSide,
    reason: Option<ClaimReason>,
    now: Timestamp,
) -> Result<(), DirectoryError> {
    let is_donor_too = claim.donor_participant == claim.claimer_account.participant;
    let required_side = match action {
        ClaimAction::Acknowledge | ClaimAction::Confirm => Some(ClaimSide::Donor),
        ClaimAction::Complete => Some(ClaimSide::Claimer),
        ClaimAction::Cancel => None,
    };
    if required_side.is_some_and(|required| required != side) && !is_donor_too {
        return Err(Problem::forbidden("Only the other side of the claim may do this").into());
    }
    let is_allowed = match (action, claim.status) {
        (ClaimAction::Acknowledge, ClaimStatus::Open)
        | (ClaimAction::Confirm, ClaimStatus::WaitingResolution)
        | (ClaimAction::Complete, ClaimStatus::Confirmed)
        | (ClaimAction::Cancel, ClaimStatus::Open | ClaimStatus::WaitingResolution) => true,
        (ClaimAction::Cancel, ClaimStatus::Confirmed) => side == ClaimSide::Claimer,
        _ => false,
    };
    if !is_allowed {
        return Err(DirectoryError::rejected(
            "ClaimOperationInvalid",
            "The claim's status does not allow this",
        ));
    }
    let is_by_default = reason == Some(ClaimReason::DefaultOperation);
    if action == ClaimAction::Confirm && is_by_default && now < claim.resolution_period_end {
        return Err(DirectoryError::rejected(
            "ClaimResolutionPeriodNotEnded",
            "A claim is confirmed by DEFAULT_OPERATION only after its resolution period",
        ));
    }
    Ok(())
}
