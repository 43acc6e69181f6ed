//! Claims: opened by the claimer, received and granted by the donor, completed by the claimer.
//!
//! ```text
//! OPEN ── acknowledge (donor) ─▶ WAITING_RESOLUTION ── confirm (donor) ─▶ CONFIRMED ── complete (claimer) ─▶ COMPLETED
//!   └───────────── cancel (either) ──┴──────────────── cancel (claimer) ───┘
//! ```
//! Confirming takes the entry out of the directory, completing puts the claimer's there.

use std::sync::Arc;

use super::entries::{EntryRecord, drop_entry};
use super::lists::{ListFilter, Side};
use super::world::Change;
use super::{Directory, RECORDS_MAX, Refusal, Tries, Try, new_id};
use crate::KeyType;
use crate::wire::{
    Claim, ClaimReason, ClaimSide, ClaimStatus, ClaimType, CreateClaim, Entry, Moment, MoveClaim,
    Problem,
};

const DAY_MS: u64 = 86_400_000;
const RESOLUTION_MS: u64 = 7 * DAY_MS;
const COMPLETION_MS: u64 = 14 * DAY_MS;

/// How a claim can be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimStep {
    Acknowledge,
    Confirm,
    Cancel,
    Complete,
}

impl Directory {
    /// createClaim.
    pub(crate) async fn create_claim(
        &self,
        request: &CreateClaim,
        now: Moment,
    ) -> Result<Arc<Claim>, Refusal> {
        may_be_claimed(request)?;
        let mut tries = Tries::default();
        loop {
            let mut change = Change::default();
            let name = format!("entry:{}", request.key);
            let found: Option<Arc<EntryRecord>> = self.world.read(&mut change, &name).await?;
            let found = found.ok_or_else(|| {
                Problem::new(404, "ClaimKeyNotFound").with_detail("No entry has the claimed key")
            })?;
            fits_the_entry(request, &found.entry)?;
            let claim = Arc::new(opened(request, &found.entry, now));
            let mut entry = found.entry.clone();
            entry.open_claim_creation_date = Some(now);
            self.world.put(&mut change, name, EntryRecord::new(entry))?;
            change.count("claims".to_owned(), 1, RECORDS_MAX);
            self.keep_claim(&mut change, &claim, "CLAIM_OPENED")?;
            if tries.commit(&self.world, change).await? == Try::Done {
                return Ok(claim);
            }
        }
    }

    /// getClaim, by either side.
    pub(crate) async fn claim(&self, participant: &str, id: &str) -> Result<Arc<Claim>, Refusal> {
        let claim: Option<Arc<Claim>> = self.world.get(&claim_name(id)).await?;
        let claim = claim.ok_or_else(|| Problem::not_found("No claim has the given id"))?;
        side_of(&claim, participant)?;
        Ok(claim)
    }

    /// listClaims.
    pub(crate) async fn claims(
        &self,
        filter: &ListFilter,
        status: Option<ClaimStatus>,
        claim_type: Option<ClaimType>,
    ) -> Result<(Vec<Claim>, bool), Refusal> {
        let index = format!("claims:{}", filter.participant);
        let fits = |claim: &Claim| {
            let is_claimer = claim.claimer_account.participant == filter.participant;
            let is_donor = claim.donor_participant == filter.participant;
            let on_side = |side: &Side| match side {
                Side::Beginner => is_claimer,
                Side::Other => is_donor,
            };
            filter.sides.iter().any(on_side)
                && status.is_none_or(|status| claim.status == status)
                && claim_type.is_none_or(|claim_type| claim.claim_type == claim_type)
        };
        Ok(self.list(&index, "claim", filter, fits).await?)
    }

    /// acknowledge-, confirm-, cancel- and completeClaim.
    pub(crate) async fn move_claim(
        &self,
        step: ClaimStep,
        request: &MoveClaim,
        now: Moment,
    ) -> Result<Arc<Claim>, Refusal> {
        let mut tries = Tries::default();
        loop {
            let mut change = Change::default();
            let name = claim_name(&request.claim_id);
            let found: Option<Arc<Claim>> = self.world.read(&mut change, &name).await?;
            let found = found.ok_or_else(|| Problem::not_found("No claim has the given id"))?;
            let side = side_of(&found, &request.participant)?;
            may_move(&found, step, side, request.reason, now)?;
            let mut claim = (*found).clone();
            claim.last_modified = now;
            let event = match step {
                ClaimStep::Acknowledge => {
                    claim.status = ClaimStatus::WaitingResolution;
                    "CLAIM_ACKNOWLEDGED"
                }
                ClaimStep::Confirm => {
                    claim.status = ClaimStatus::Confirmed;
                    claim.confirm_reason = request.reason;
                    let entry = self.read_entry(&mut change, &claim.key).await?;
                    drop_entry(&mut change, &entry.entry, now);
                    "CLAIM_CONFIRMED"
                }
                ClaimStep::Cancel => {
                    claim.status = ClaimStatus::Cancelled;
                    claim.cancel_reason = request.reason;
                    claim.cancelled_by = Some(side);
                    self.unlock_entry(&mut change, &found).await?;
                    "CLAIM_CANCELLED"
                }
                ClaimStep::Complete => {
                    claim.status = ClaimStatus::Completed;
                    self.hand_over(&mut change, &mut claim, request, now)
                        .await?;
                    "CLAIM_COMPLETED"
                }
            };
            let claim = Arc::new(claim);
            self.keep_claim(&mut change, &claim, event)?;
            if tries.commit(&self.world, change).await? == Try::Done {
                return Ok(claim);
            }
        }
    }

    /// The claimer's entry, where the donor's was.
    async fn hand_over(
        &self,
        change: &mut Change,
        claim: &mut Claim,
        request: &MoveClaim,
        now: Moment,
    ) -> Result<(), Refusal> {
        let name = format!("entry:{}", claim.key);
        let taken: Option<Arc<EntryRecord>> = self.world.read(change, &name).await?;
        if taken.is_some() {
            return Err(Refusal::new(
                "ClaimOperationInvalid",
                "Somebody has made an entry of the key since it was given up",
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
        self.add_entry(change, &record, now)?;
        Ok(())
    }

    /// The donor's entry is claimed no longer, if it is still there.
    async fn unlock_entry(&self, change: &mut Change, claim: &Claim) -> Result<(), Refusal> {
        if claim.status == ClaimStatus::Confirmed {
            return Ok(());
        }
        let found = self.read_entry(change, &claim.key).await?;
        let mut entry = found.entry.clone();
        entry.open_claim_creation_date = None;
        let name = format!("entry:{}", claim.key);
        self.world.put(change, name, EntryRecord::new(entry))?;
        Ok(())
    }

    fn keep_claim(
        &self,
        change: &mut Change,
        claim: &Arc<Claim>,
        event: &str,
    ) -> Result<(), Refusal> {
        self.world
            .put(change, claim_name(&claim.id), Arc::clone(claim))?;
        let at = claim.last_modified.ms();
        for participant in [&claim.claimer_account.participant, &claim.donor_participant] {
            change.add(format!("claims:{participant}"), at, &claim.id);
            change.event(
                format!("events:{participant}"),
                at,
                format!("{event}:{}", claim.id),
            );
        }
        Ok(())
    }
}

fn claim_name(id: &str) -> String {
    format!("claim:{}", id.to_lowercase())
}

fn opened(request: &CreateClaim, entry: &Entry, now: Moment) -> Claim {
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

fn may_be_claimed(request: &CreateClaim) -> Result<(), Refusal> {
    match (request.claim_type, request.key_type) {
        (_, KeyType::Evp) => Err(Refusal::new(
            "ClaimInvalid",
            "Keys of type EVP cannot be claimed",
        )),
        (ClaimType::Ownership, KeyType::Cpf | KeyType::Cnpj) => Err(Refusal::new(
            "ClaimInvalid",
            "The ownership of a CPF or CNPJ cannot be claimed",
        )),
        _ => Ok(()),
    }
}

fn fits_the_entry(request: &CreateClaim, entry: &Entry) -> Result<(), Refusal> {
    if entry.open_claim_creation_date.is_some() {
        return Err(Refusal::new(
            "ClaimAlreadyExistsForKey",
            "The key is being claimed already",
        ));
    }
    let is_same_owner = entry.owner.tax_id_number == request.claimer.tax_id_number;
    let is_same_place = entry.account.participant == request.claimer_account.participant;
    if is_same_owner && is_same_place {
        return Err(Refusal::new(
            "ClaimResultingEntryAlreadyExists",
            "The claimer has the key at this participant already",
        ));
    }
    let expected = if is_same_owner {
        ClaimType::Portability
    } else {
        ClaimType::Ownership
    };
    if request.claim_type != expected {
        return Err(Refusal::new(
            "ClaimTypeInconsistent",
            "Portability is for the key's owner, ownership for anybody else",
        ));
    }
    Ok(())
}

fn side_of(claim: &Claim, participant: &str) -> Result<ClaimSide, Refusal> {
    if claim.donor_participant == participant {
        Ok(ClaimSide::Donor)
    } else if claim.claimer_account.participant == participant {
        Ok(ClaimSide::Claimer)
    } else {
        Err(Problem::forbidden("The participant has no part in this claim").into())
    }
}

fn may_move(
    claim: &Claim,
    step: ClaimStep,
    side: ClaimSide,
    reason: Option<ClaimReason>,
    now: Moment,
) -> Result<(), Refusal> {
    let is_donor_too = claim.donor_participant == claim.claimer_account.participant;
    let needed = match step {
        ClaimStep::Acknowledge | ClaimStep::Confirm => Some(ClaimSide::Donor),
        ClaimStep::Complete => Some(ClaimSide::Claimer),
        ClaimStep::Cancel => None,
    };
    if needed.is_some_and(|needed| needed != side) && !is_donor_too {
        return Err(Problem::forbidden("The other side of the claim does this").into());
    }
    let is_lawful = match (step, claim.status) {
        (ClaimStep::Acknowledge, ClaimStatus::Open)
        | (ClaimStep::Confirm, ClaimStatus::WaitingResolution)
        | (ClaimStep::Complete, ClaimStatus::Confirmed)
        | (ClaimStep::Cancel, ClaimStatus::Open | ClaimStatus::WaitingResolution) => true,
        (ClaimStep::Cancel, ClaimStatus::Confirmed) => side == ClaimSide::Claimer,
        _ => false,
    };
    if !is_lawful {
        return Err(Refusal::new(
            "ClaimOperationInvalid",
            "The claim's status does not allow this",
        ));
    }
    let is_by_default = reason == Some(ClaimReason::DefaultOperation);
    if step == ClaimStep::Confirm && is_by_default && now < claim.resolution_period_end {
        return Err(Refusal::new(
            "ClaimResolutionPeriodNotEnded",
            "By default a claim is granted only after its resolution period",
        ));
    }
    Ok(())
}
