//! Entries: created, read, changed and removed by the participant that holds the account.

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::cids;
use super::error::DirectoryError;
use super::handle::Directory;
use super::ids::new_id;
use super::store::{RecordStoreError, RecordTransaction};
use crate::wire::{
    Account, CreateEntry, DeleteEntry, Entry, EntryReason, OwnerType, Problem, Timestamp,
    UpdateEntry, Violation, canonical_key,
};
use balde_dict::KeyType;

/// The most entries of a directory.
const ENTRIES_MAX: u64 = 1_000_000;

/// The most request ids that are remembered: they stay used when their entries are removed.
const REQUESTS_MAX: u64 = 4_000_000;

/// The most keys of a person's account.
const KEYS_PER_PERSON_ACCOUNT: u64 = 5;

/// The most keys of a company's account.
const KEYS_PER_COMPANY_ACCOUNT: u64 = 20;

/// A stored entry. Its XML is written on first use and kept.
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
    /// Returns the entry of a key.
    pub(crate) async fn entry(
        &self,
        key: &str,
    ) -> Result<Option<Arc<EntryRecord>>, RecordStoreError> {
        let mut name = String::with_capacity(6 + key.len());
        name.push_str("entry:");
        name.push_str(&canonical_key(key));
        self.records.get(&name).await
    }

    /// Carries out getEntryByCid, for the participant that holds the account.
    pub(crate) async fn entry_by_cid(
        &self,
        participant: &str,
        cid: &str,
    ) -> Result<Arc<EntryRecord>, DirectoryError> {
        let key: Option<Arc<String>> = self.records.get(&cid_name(&cid.to_lowercase())).await?;
        let record = match key {
            Some(key) => self.entry(&key).await?,
            None => None,
        };
        let record =
            record.ok_or_else(|| Problem::not_found("No entry has the given content id"))?;
        require_account_participant(&record.entry, participant)?;
        Ok(record)
    }

    /// Returns for each key whether it has an entry.
    pub(crate) async fn check_keys(
        &self,
        keys: Vec<String>,
    ) -> Result<Vec<(String, bool)>, RecordStoreError> {
        let mut checked = Vec::with_capacity(keys.len());
        for key in keys {
            let has_entry = self.entry(&key).await?.is_some();
            checked.push((key, has_entry));
        }
        Ok(checked)
    }

    /// Carries out createEntry. Repeating a request id returns the entry that it created.
    pub(crate) async fn create_entry(
        &self,
        request: &CreateEntry,
        now: Timestamp,
    ) -> Result<Arc<EntryRecord>, DirectoryError> {
        let allowed = [EntryReason::UserRequested, EntryReason::Reconciliation];
        require_reason(request.reason, &allowed)?;
        check_owner(request)?;
        self.transact(|mut transaction| async move {
            if let Some(existing) = created_before(&mut transaction, request).await? {
                return Ok(transaction.commit(existing).await?);
            }
            let key = request.key.clone().unwrap_or_else(new_id);
            let found: Option<Arc<EntryRecord>> = transaction.read(&entry_name(&key)).await?;
            if let Some(found) = found {
                return Err(conflict(&found.entry, request));
            }
            if is_claimed(&mut transaction, &key).await? {
                return Err(DirectoryError::rejected(
                    "EntryLockedByClaim",
                    "The key has a claim that is neither completed nor cancelled",
                ));
            }
            let record = EntryRecord::new(Entry {
                key,
                key_type: request.key_type,
                account: request.account.clone(),
                owner: request.owner.clone(),
                creation_date: now,
                key_ownership_date: now,
                open_claim_creation_date: None,
                request_id: request.request_id.clone(),
            });
            count_request(&mut transaction);
            add_entry(&mut transaction, &record, now)?;
            Ok(transaction.commit(record).await?)
        })
        .await
    }

    /// Carries out updateEntry. Name and account may change; key, owner and participant may not.
    pub(crate) async fn update_entry(
        &self,
        request: &UpdateEntry,
        now: Timestamp,
    ) -> Result<Arc<EntryRecord>, DirectoryError> {
        let allowed = [
            EntryReason::UserRequested,
            EntryReason::BranchTransfer,
            EntryReason::Reconciliation,
            EntryReason::RfbValidation,
        ];
        require_reason(request.reason, &allowed)?;
        self.transact(|mut transaction| async move {
            let found = read_entry(&mut transaction, &request.key).await?;
            if let Some(participant) = &request.participant {
                require_account_participant(&found.entry, participant)?;
            }
            let is_by_owner = request.reason == EntryReason::UserRequested;
            if found.entry.key_type == KeyType::Evp && is_by_owner {
                let detail = "The owner cannot request a change of an entry of type EVP";
                return Err(DirectoryError::rejected("InvalidReason", detail));
            }
            let mut entry = found.entry.clone();
            if let Some((owner_type, tax_id)) = &request.owner
                && (*owner_type != entry.owner.owner_type || *tax_id != entry.owner.tax_id_number)
            {
                let violation = Violation {
                    reason: "the owner's type and tax number cannot change".to_owned(),
                    value: Some(tax_id.clone()),
                    property: Some("owner.taxIdNumber".to_owned()),
                };
                return Err(Problem::new(400, "EntryInvalid")
                    .with_detail("Entry has invalid fields")
                    .with_violations(vec![violation])
                    .into());
            }
            if let Some(account) = &request.account {
                entry.account = account.clone();
            }
            if let Some(name) = &request.name {
                entry.owner.name.clone_from(name);
            }
            if request.trade_name.is_some() {
                entry.owner.trade_name.clone_from(&request.trade_name);
            }
            let record = EntryRecord::new(entry);
            remove_entry(&mut transaction, &found.entry, now);
            add_entry(&mut transaction, &record, now)?;
            Ok(transaction.commit(record).await?)
        })
        .await
    }

    /// Carries out deleteEntry.
    pub(crate) async fn delete_entry(
        &self,
        request: &DeleteEntry,
        now: Timestamp,
    ) -> Result<(), DirectoryError> {
        let allowed = [
            EntryReason::UserRequested,
            EntryReason::AccountClosure,
            EntryReason::Reconciliation,
            EntryReason::Fraud,
            EntryReason::RfbValidation,
        ];
        require_reason(request.reason, &allowed)?;
        self.transact(|mut transaction| async move {
            let found = read_entry(&mut transaction, &request.key).await?;
            require_account_participant(&found.entry, &request.participant)?;
            if found.entry.open_claim_creation_date.is_some() {
                return Err(DirectoryError::rejected(
                    "EntryLockedByClaim",
                    "The key has an open claim, so its entry cannot be removed",
                ));
            }
            remove_entry(&mut transaction, &found.entry, now);
            Ok(transaction.commit(()).await?)
        })
        .await
    }
}

/// Returns the entry that an earlier request with the same id created. The id stays used when that
/// entry is removed.
async fn created_before(
    transaction: &mut RecordTransaction<'_>,
    request: &CreateEntry,
) -> Result<Option<Arc<EntryRecord>>, DirectoryError> {
    let name = used_request_name(&request.account.participant, &request.request_id);
    let key: Option<Arc<String>> = transaction.read(&name).await?;
    let Some(key) = key else {
        return Ok(None);
    };
    let used = || {
        let detail = "The RequestId was used for another entry";
        DirectoryError::rejected("RequestIdAlreadyUsed", detail)
    };
    let existing: Option<Arc<EntryRecord>> = transaction.read(&entry_name(&key)).await?;
    let existing = existing.ok_or_else(used)?;
    let entry = &existing.entry;
    // The opening date of the account is no part of an entry's content id.
    let account = Account {
        opening_date: entry.account.opening_date,
        ..request.account.clone()
    };
    let is_same = entry.request_id == request.request_id
        && entry.key_type == request.key_type
        && (request.key.is_none() || request.key.as_ref() == Some(&entry.key))
        && entry.account == account
        && entry.owner == request.owner;
    if is_same {
        Ok(Some(existing))
    } else {
        Err(used())
    }
}

/// A CPF or CNPJ is a key of its owner only. A company's tax number has digits only, so that a CNPJ
/// with letters cannot be compared with it.
fn check_owner(request: &CreateEntry) -> Result<(), DirectoryError> {
    let Some(key) = &request.key else {
        return Ok(());
    };
    let is_tax_id = matches!(request.key_type, KeyType::Cpf | KeyType::Cnpj)
        && key.bytes().all(|byte| byte.is_ascii_digit());
    if is_tax_id && *key != request.owner.tax_id_number {
        let detail = "The key is the CPF or CNPJ of another person";
        return Err(DirectoryError::rejected(
            "EntryTaxIdNumberByDifferentOwner",
            detail,
        ));
    }
    Ok(())
}

/// Reads an entry within a transaction. An entry that does not exist is a 404.
pub(super) async fn read_entry(
    transaction: &mut RecordTransaction<'_>,
    key: &str,
) -> Result<Arc<EntryRecord>, DirectoryError> {
    let found = transaction.read(&entry_name(key)).await?;
    found.ok_or_else(|| Problem::not_found("Entry associated with given key does not exist").into())
}

/// Writes an entry and its indexes.
pub(super) fn add_entry(
    transaction: &mut RecordTransaction<'_>,
    record: &Arc<EntryRecord>,
    now: Timestamp,
) -> Result<(), RecordStoreError> {
    let entry = &record.entry;
    let cid = record.cid();
    transaction.put(entry_name(&entry.key), Arc::clone(record))?;
    transaction.put(request_name(entry), Arc::new(entry.key.clone()))?;
    transaction.put(cid_name(&cid), Arc::new(entry.key.clone()))?;
    let created = entry.creation_date.ms();
    transaction.add_member(owner_name(&entry.owner.tax_id_number), created, &entry.key);
    let accounts = format!("accounts-key:{}", canonical_key(&entry.key));
    transaction.add_member(accounts, created, &account_name(entry));
    transaction.count("entries".to_owned(), 1, ENTRIES_MAX);
    let keys_max = match entry.owner.owner_type {
        OwnerType::NaturalPerson => KEYS_PER_PERSON_ACCOUNT,
        OwnerType::LegalPerson => KEYS_PER_COMPANY_ACCOUNT,
    };
    transaction.count(account_name(entry), 1, keys_max);
    cids::record_added(transaction, entry, &cid, now);
    Ok(())
}

/// Removes an entry and its indexes.
pub(super) fn remove_entry(transaction: &mut RecordTransaction<'_>, entry: &Entry, now: Timestamp) {
    let cid = cids::cid(entry);
    transaction.delete(entry_name(&entry.key));
    transaction.delete(cid_name(&cid));
    transaction.remove_member(owner_name(&entry.owner.tax_id_number), &entry.key);
    transaction.count("entries".to_owned(), -1, ENTRIES_MAX);
    transaction.count(account_name(entry), -1, 0);
    cids::record_removed(transaction, entry, &cid, now);
}

/// Counts a request id that creates an entry.
pub(super) fn count_request(transaction: &mut RecordTransaction<'_>) {
    transaction.count("requests".to_owned(), 1, REQUESTS_MAX);
}

/// Returns true if a confirmed claim reserves the key for its claimer.
pub(super) async fn is_claimed(
    transaction: &mut RecordTransaction<'_>,
    key: &str,
) -> Result<bool, DirectoryError> {
    let claim: Option<Arc<String>> = transaction.read(&claimed_name(key)).await?;
    Ok(claim.is_some())
}

/// The name of the record with the id of the confirmed claim of a key.
pub(super) fn claimed_name(key: &str) -> String {
    format!("claimed:{}", canonical_key(key))
}

pub(super) fn entry_name(key: &str) -> String {
    format!("entry:{}", canonical_key(key))
}

/// The name of the record that says which entry a request id created.
pub(super) fn used_request_name(participant: &str, request_id: &str) -> String {
    format!("request:{participant}:{request_id}")
}

pub(super) fn owner_name(tax_id: &str) -> String {
    format!("owner:{tax_id}")
}

fn cid_name(cid: &str) -> String {
    format!("cid:{cid}")
}

fn request_name(entry: &Entry) -> String {
    used_request_name(&entry.account.participant, &entry.request_id)
}

pub(super) fn account_name(entry: &Entry) -> String {
    let account = &entry.account;
    format!(
        "account:{}:{}:{}:{}",
        account.participant,
        account.branch.as_deref().unwrap_or_default(),
        account.account_number,
        account.account_type
    )
}

fn require_reason(reason: EntryReason, allowed: &[EntryReason]) -> Result<(), DirectoryError> {
    if allowed.contains(&reason) {
        Ok(())
    } else {
        Err(DirectoryError::rejected(
            "InvalidReason",
            "The operation does not allow this reason",
        ))
    }
}

fn require_account_participant(entry: &Entry, participant: &str) -> Result<(), DirectoryError> {
    if entry.account.participant == participant {
        Ok(())
    } else {
        Err(Problem::forbidden("Another participant holds the account of this key").into())
    }
}

/// The error for a key that has an entry already. It depends on the key's owner and participant.
fn conflict(found: &Entry, request: &CreateEntry) -> DirectoryError {
    if found.owner.tax_id_number != request.owner.tax_id_number {
        DirectoryError::rejected(
            "EntryKeyOwnedByDifferentPerson",
            "Another person owns the key; its ownership can be claimed",
        )
    } else if found.account.participant != request.account.participant {
        DirectoryError::rejected(
            "EntryKeyInCustodyOfDifferentParticipant",
            "The owner has the key at another participant; it can be claimed by portability",
        )
    } else {
        DirectoryError::rejected(
            "EntryAlreadyExists",
            "The owner already has the key at this participant",
        )
    }
}
