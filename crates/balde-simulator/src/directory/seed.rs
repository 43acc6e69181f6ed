//! Entries from a file with one JSON object per line.
//!
//! ```json
//! {"key": "+5561988880000", "participant": "87654321", "tax_id": "11122233300", "name": "Ana"}
//! ```
//! Only `key` and `participant` are required. The other values are generated from the key, so the same
//! file always produces the same entries.

use ring::digest;
use serde::Deserialize;
use thiserror::Error;

use super::entries::{EntryRecord, add_entry, read_entry};
use super::error::DirectoryError;
use super::handle::Directory;
use super::ids::format_uuid;
use super::store::{CommitResult, RecordStoreError};
use crate::wire::{
    Account, Entry, Owner, OwnerType, Timestamp, canonical_ispb, is_ispb, is_tax_id, key_type_of,
};
use balde_dict::KeyType;

/// The most lines of a seed file.
const SEED_LINES_MAX: usize = 1_000_000;

/// The most invalid lines that one error lists.
const INVALID_LINES_MAX: usize = 50;

/// When generated accounts were opened and keys registered: the start of 2020.
const GENERATED_DATE_MS: u64 = 1_577_836_800_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: String,
    participant: String,
    tax_id: Option<String>,
    name: Option<String>,
    trade_name: Option<String>,
    branch: Option<String>,
    account: Option<String>,
    account_type: Option<String>,
}

impl Directory {
    /// Creates the entries of a seed file that do not exist yet, and returns how many it created. If
    /// any line is invalid, nothing is created.
    ///
    /// After each entry, `on_progress` gets the number of entries so far and of all.
    pub async fn seed(
        &self,
        file: &str,
        mut on_progress: impl FnMut(usize, usize),
    ) -> Result<usize, SeedError> {
        let mut invalid = Vec::new();
        let mut entries = Vec::new();
        for (number, text) in (1..).zip(file.lines()) {
            if number > SEED_LINES_MAX {
                invalid.push((
                    number,
                    format!("a seed file has at most {SEED_LINES_MAX} lines"),
                ));
                break;
            }
            if text.trim().is_empty() || text.trim_start().starts_with('#') {
                continue;
            }
            match read_line(text) {
                Ok(entry) => entries.push(entry),
                Err(reason) if invalid.len() < INVALID_LINES_MAX => invalid.push((number, reason)),
                Err(_) => {}
            }
        }
        if !invalid.is_empty() {
            return Err(SeedError::InvalidLines(invalid));
        }
        let (mut created, total) = (0, entries.len());
        for (done, entry) in (1..).zip(entries) {
            created += usize::from(self.seed_entry(entry).await?);
            on_progress(done, total);
        }
        Ok(created)
    }

    /// Creates `count` entries of one participant: `pessoa0000001@exemplo.com.br` and so on.
    ///
    /// After each entry, `on_progress` gets the number of entries so far and of all.
    pub async fn seed_generated(
        &self,
        participant: &str,
        count: usize,
        mut on_progress: impl FnMut(usize, usize),
    ) -> Result<(), SeedError> {
        let total = count.min(SEED_LINES_MAX);
        for number in 1..=total {
            let line = Line {
                key: format!("pessoa{number:07}@exemplo.com.br"),
                participant: participant.to_owned(),
                tax_id: None,
                name: None,
                trade_name: None,
                branch: None,
                account: None,
                account_type: None,
            };
            let entry = line
                .entry()
                .map_err(|reason| SeedError::InvalidLines(vec![(0, reason)]))?;
            self.seed_entry(entry).await?;
            on_progress(number, total);
        }
        Ok(())
    }

    async fn seed_entry(&self, entry: Entry) -> Result<bool, RecordStoreError> {
        let mut transaction = self.records.begin();
        let record = EntryRecord::new(entry);
        match read_entry(&mut transaction, &record.entry.key).await {
            Ok(_) => return Ok(false),
            Err(DirectoryError::Store(error)) => return Err(error),
            Err(DirectoryError::Rejected(_)) => {}
        }
        add_entry(&mut transaction, &record, record.entry.creation_date)?;
        // A conflict means that another simulator has created the same entry.
        Ok(transaction.commit(()).await? == CommitResult::Committed(()))
    }
}

fn read_line(text: &str) -> Result<Entry, String> {
    let line: Line = serde_json::from_str(text).map_err(|error| {
        // Each line is parsed alone, so only the column is meaningful.
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        format!("{message} (column {})", error.column())
    })?;
    line.entry()
}

impl Line {
    fn entry(self) -> Result<Entry, String> {
        let key_type =
            key_type_of(&self.key).ok_or("the key does not have the format of any key type")?;
        if !is_ispb(&self.participant) {
            return Err("the participant is not an ISPB of 8 characters".to_owned());
        }
        let generated = GeneratedValues::of(&self.key);
        let tax_id = match (self.tax_id, key_type) {
            (Some(tax_id), _) => tax_id,
            (None, KeyType::Cpf | KeyType::Cnpj) if is_tax_id(&self.key) => self.key.clone(),
            (None, KeyType::Cnpj) => generated.digits(0, 14),
            (None, _) => generated.digits(0, 11),
        };
        if !is_tax_id(&tax_id) {
            return Err("the tax_id is not a CPF or CNPJ".to_owned());
        }
        let owner_type = match tax_id.len() {
            11 => OwnerType::NaturalPerson,
            _ => OwnerType::LegalPerson,
        };
        let date = Timestamp::from_ms(GENERATED_DATE_MS);
        Ok(Entry {
            key_type,
            account: Account {
                participant: canonical_ispb(&self.participant).into_owned(),
                branch: self.branch.or_else(|| Some("0001".to_owned())),
                account_number: self.account.unwrap_or_else(|| generated.digits(1, 10)),
                account_type: self.account_type.unwrap_or_else(|| "CACC".to_owned()),
                opening_date: date,
            },
            owner: Owner {
                owner_type,
                tax_id_number: tax_id,
                name: self.name.unwrap_or_else(|| "Fulana de Tal".to_owned()),
                trade_name: self.trade_name,
            },
            creation_date: date,
            key_ownership_date: date,
            open_claim_creation_date: None,
            request_id: generated.uuid(),
            key: self.key,
        })
    }
}

/// Values derived from a hash of the key.
struct GeneratedValues(digest::Digest);

impl GeneratedValues {
    fn of(key: &str) -> Self {
        Self(digest::digest(&digest::SHA256, key.as_bytes()))
    }

    fn number(&self, which: usize) -> u64 {
        let bytes = self.0.as_ref()[8 * which..8 * (which + 1)].try_into();
        bytes.map_or(0, u64::from_be_bytes)
    }

    fn digits(&self, which: usize, digits: usize) -> String {
        let number = self.number(which) % 10_u64.pow(u32::try_from(digits).unwrap_or(1));
        format!("{number:0digits$}")
    }

    fn uuid(&self) -> String {
        format_uuid(u128::from(self.number(2)) << 64 | u128::from(self.number(3)))
    }
}

/// Why a seed file created no entries.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SeedError {
    /// Lines that are invalid: line number and reason.
    #[error("{}", list_lines(.0))]
    InvalidLines(Vec<(usize, String)>),
    /// The directory cannot be written.
    #[error(transparent)]
    Store(#[from] RecordStoreError),
}

fn list_lines(lines: &[(usize, String)]) -> String {
    let lines: Vec<_> = lines
        .iter()
        .map(|(number, reason)| format!("line {number}: {reason}"))
        .collect();
    lines.join("\n")
}
