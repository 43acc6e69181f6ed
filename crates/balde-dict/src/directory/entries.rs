//! Entries: created, read, changed and removed by the participant that keeps the account.

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::cids;
use super::world::{Change, WorldError};
use super::{Directory, Refusal, Tries, Try, new_id};
use crate::KeyType;
use crate::wire::{
    CreateEntry, DeleteEntry, Entry, EntryReason, Moment, OwnerType, Problem, UpdateEntry,
};

/// The most entries of a directory.
pub const ENTRIES_MAX: u64 = 1_000_000;

/// The most keys of one account of a person.
pub const KEYS_PER_PERSON_ACCOUNT: u64 = 5;

/// The most keys of one account of a company.
pub const KEYS_PER_COMPANY_ACCOUNT: u64 = 20;

/// An entry as it is kept, with its XML once somebody has asked for it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct EntryRecord {
    pub(crate) entry: Entry,
    #[serde(skip)]
    xml: OnceLock<String>,
}

impl EntryRecord {
    pub(super) fn new(entry: Entry) -> Arc<Self> {
        Arc::new(Self {
            entry,
            xml: OnceLock::new(),
        })
    }

    pub(crate) fn xml(&self) -> &str {
        self.xml.get_or_init(|| self.entry.to_xml())
    }

    pub(crate) fn cid(&self) -> String {
        cids::cid(&self.entry)
    }
}

impl Directory {
    /// The entry of a key.
    pub(crate) async fn entry(&self, key: &str) -> Result<Option<Arc<EntryRecord>>, WorldError> {
        let mut name = String::with_capacity(6 + key.len());
        name.push_str("entry:");
        name.push_str(key);
        self.world.get(&name).await
    }

    /// The entry of a key, by the participant that keeps it.
    pub(crate) async fn entry_by_cid(
        &self,
        participant: &str,
        cid: &str,
    ) -> Result<Arc<EntryRecord>, Refusal> {
        let key: Option<Arc<String>> = self.world.get(&cid_name(&cid.to_lowercase())).await?;
        let record = match key {
            Some(key) => self.entry(&key).await?,
            None => None,
        };
        let record =
            record.ok_or_else(|| Problem::not_found("No entry has the given content id"))?;
        must_be_keeper(&record.entry, participant)?;
        Ok(record)
    }

    /// Whether each key has an entry.
    pub(crate) async fn check_keys(
        &self,
        keys: Vec<String>,
    ) -> Result<Vec<(String, bool)>, WorldError> {
        let mut checked = Vec::with_capacity(keys.len());
        for key in keys {
            let has_entry = self.entry(&key).await?.is_some();
            checked.push((key, has_entry));
        }
        Ok(checked)
    }

    /// createEntry. Asked twice under one id, it happens once.
    pub(crate) async fn create_entry(
        &self,
        request: &CreateEntry,
        now: Moment,
    ) -> Result<Arc<EntryRecord>, Refusal> {
        let allowed = [EntryReason::UserRequested, EntryReason::Reconciliation];
        must_be_one_of(request.reason, &allowed)?;
        let mut tries = Tries::default();
        loop {
            let mut change = Change::default();
            if let Some(before) = self.created_before(request, &mut change).await? {
                return Ok(before);
            }
            let key = request.key.clone().unwrap_or_else(new_id);
            let found: Option<Arc<EntryRecord>> =
                self.world.read(&mut change, &entry_name(&key)).await?;
            if let Some(found) = found {
                return Err(conflict(&found.entry, request));
            }
            let record = EntryRecord::new(Entry {
                key,
                key_type: request.key_type,
                account: request.account.clone(),
                owner: request.owner.clone(),
                creation_date: now,
                key_ownership_date: now,
                open_claim_creation_date: None,
                request_id: request.request_id.to_lowercase(),
            });
            self.add_entry(&mut change, &record, now)?;
            if tries.commit(&self.world, change).await? == Try::Done {
                return Ok(record);
            }
        }
    }

    /// updateEntry. Name and account may change; key, owner and participant may not.
    pub(crate) async fn update_entry(
        &self,
        request: &UpdateEntry,
        now: Moment,
    ) -> Result<Arc<EntryRecord>, Refusal> {
        let allowed = [
            EntryReason::UserRequested,
            EntryReason::BranchTransfer,
            EntryReason::Reconciliation,
            EntryReason::RfbValidation,
        ];
        must_be_one_of(request.reason, &allowed)?;
        let mut tries = Tries::default();
        loop {
            let mut change = Change::default();
            let found = self.read_entry(&mut change, &request.key).await?;
            must_be_keeper(&found.entry, &request.account.participant)?;
            if found.entry.key_type == KeyType::Evp && request.reason == EntryReason::UserRequested
            {
                return Err(Refusal::new(
                    "EntryInvalid",
                    "An entry of type EVP is not changed at its owner's request",
                ));
            }
            let mut entry = found.entry.clone();
            entry.account = request.account.clone();
            if let Some(name) = &request.name {
                entry.owner.name.clone_from(name);
            }
            if request.trade_name.is_some() {
                entry.owner.trade_name.clone_from(&request.trade_name);
            }
            let record = EntryRecord::new(entry);
            drop_entry(&mut change, &found.entry, now);
            self.add_entry(&mut change, &record, now)?;
            if tries.commit(&self.world, change).await? == Try::Done {
                return Ok(record);
            }
        }
    }

    /// deleteEntry.
    pub(crate) async fn delete_entry(
        &self,
        request: &DeleteEntry,
        now: Moment,
    ) -> Result<(), Refusal> {
        let allowed = [
            EntryReason::UserRequested,
            EntryReason::AccountClosure,
            EntryReason::EntryInactivity,
            EntryReason::Reconciliation,
            EntryReason::Fraud,
            EntryReason::RfbValidation,
        ];
        must_be_one_of(request.reason, &allowed)?;
        let mut tries = Tries::default();
        loop {
            let mut change = Change::default();
            let found = self.read_entry(&mut change, &request.key).await?;
            must_be_keeper(&found.entry, &request.participant)?;
            if found.entry.open_claim_creation_date.is_some() {
                return Err(Refusal::new(
                    "EntryLockedByClaim",
                    "The key is being claimed, so its entry cannot be removed",
                ));
            }
            drop_entry(&mut change, &found.entry, now);
            if tries.commit(&self.world, change).await? == Try::Done {
                return Ok(());
            }
        }
    }

    /// An entry that a change hangs on and that must be there.
    pub(super) async fn read_entry(
        &self,
        change: &mut Change,
        key: &str,
    ) -> Result<Arc<EntryRecord>, Refusal> {
        let found = self.world.read(change, &entry_name(key)).await?;
        found.ok_or_else(|| {
            Problem::not_found("Entry associated with given key does not exist").into()
        })
    }

    /// Notes an entry and everything that leads to it.
    pub(super) fn add_entry(
        &self,
        change: &mut Change,
        record: &Arc<EntryRecord>,
        now: Moment,
    ) -> Result<(), WorldError> {
        let entry = &record.entry;
        let cid = record.cid();
        self.world
            .put(change, entry_name(&entry.key), Arc::clone(record))?;
        self.world
            .put(change, request_name(entry), Arc::new(entry.key.clone()))?;
        self.world
            .put(change, cid_name(&cid), Arc::new(entry.key.clone()))?;
        let created = entry.creation_date.ms();
        change.add(owner_name(&entry.owner.tax_id_number), created, &entry.key);
        change.count("entries".to_owned(), 1, ENTRIES_MAX);
        let most = match entry.owner.owner_type {
            OwnerType::NaturalPerson => KEYS_PER_PERSON_ACCOUNT,
            OwnerType::LegalPerson => KEYS_PER_COMPANY_ACCOUNT,
        };
        change.count(account_name(entry), 1, most);
        cids::note_added(change, entry, &cid, now);
        Ok(())
    }

    /// What the same request made when it was asked before.
    async fn created_before(
        &self,
        request: &CreateEntry,
        change: &mut Change,
    ) -> Result<Option<Arc<EntryRecord>>, Refusal> {
        let name = format!(
            "request:{}:{}",
            request.account.participant,
            request.request_id.to_lowercase()
        );
        let key: Option<Arc<String>> = self.world.read(change, &name).await?;
        let Some(key) = key else {
            return Ok(None);
        };
        let before = self.read_entry(change, &key).await?;
        let entry = &before.entry;
        let is_same = entry.key_type == request.key_type
            && (request.key.is_none() || request.key.as_ref() == Some(&entry.key))
            && entry.account == request.account
            && entry.owner == request.owner;
        if is_same {
            Ok(Some(before))
        } else {
            Err(Refusal::new(
                "RequestIdAlreadyUsed",
                "The same RequestId was used for another entry",
            ))
        }
    }
}

/// Notes that an entry goes, with everything that leads to it.
pub(super) fn drop_entry(change: &mut Change, entry: &Entry, now: Moment) {
    let cid = cids::cid(entry);
    change.delete(entry_name(&entry.key));
    change.delete(request_name(entry));
    change.delete(cid_name(&cid));
    change.remove(owner_name(&entry.owner.tax_id_number), &entry.key);
    change.count("entries".to_owned(), -1, ENTRIES_MAX);
    change.count(account_name(entry), -1, 0);
    cids::note_removed(change, entry, &cid, now);
}

pub(super) fn entry_name(key: &str) -> String {
    format!("entry:{key}")
}

pub(super) fn owner_name(tax_id: &str) -> String {
    format!("owner:{tax_id}")
}

fn cid_name(cid: &str) -> String {
    format!("cid:{cid}")
}

fn request_name(entry: &Entry) -> String {
    format!("request:{}:{}", entry.account.participant, entry.request_id)
}

fn account_name(entry: &Entry) -> String {
    let account = &entry.account;
    format!(
        "account:{}:{}:{}:{}",
        account.participant,
        account.branch.as_deref().unwrap_or_default(),
        account.account_number,
        account.account_type
    )
}

fn must_be_one_of(reason: EntryReason, allowed: &[EntryReason]) -> Result<(), Refusal> {
    if allowed.contains(&reason) {
        Ok(())
    } else {
        Err(Refusal::new(
            "InvalidReason",
            "This operation is not done for this reason",
        ))
    }
}

fn must_be_keeper(entry: &Entry, participant: &str) -> Result<(), Refusal> {
    if entry.account.participant == participant {
        Ok(())
    } else {
        Err(Problem::forbidden("Another participant keeps the account of this key").into())
    }
}

/// What to tell somebody who wants a key that is taken: it depends on who has it, and where.
fn conflict(found: &Entry, request: &CreateEntry) -> Refusal {
    if found.owner.tax_id_number != request.owner.tax_id_number {
        Refusal::new(
            "EntryKeyOwnedByDifferentPerson",
            "The key is somebody else's; its ownership can be claimed",
        )
    } else if found.account.participant != request.account.participant {
        Refusal::new(
            "EntryKeyInCustodyOfDifferentParticipant",
            "The owner has the key at another participant; it can be claimed by portability",
        )
    } else {
        Refusal::new(
            "EntryAlreadyExists",
            "The owner has the key at this participant already",
        )
    }
}
