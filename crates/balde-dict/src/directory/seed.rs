//! Entries from a file: one JSON object to a line.
//!
//! ```json
//! {"key": "+5561988880000", "participant": "87654321", "tax_id": "11122233300", "name": "Ana"}
//! ```
//! Only the key and the participant have to be there. What is made up for the rest follows from the
//! key, so the same file makes the same entries wherever it is read.

use std::fmt;

use ring::digest;
use serde::Deserialize;

use super::entries::EntryRecord;
use super::world::{Change, Committed, WorldError};
use super::{Directory, Refusal};
use crate::KeyType;
use crate::wire::{Account, Entry, Moment, Owner, OwnerType, is_ispb, is_tax_id, key_type_of};

/// The most lines of a file.
pub const SEED_LINES_MAX: usize = 1_000_000;

/// The most mistakes that are told at once.
const MISTAKES_MAX: usize = 50;

/// When made-up accounts were opened, and keys registered: the beginning of 2020.
const LONG_AGO: u64 = 1_577_836_800_000;

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
    /// Makes the entries of a file that are not there yet, and says how many those were. A file
    /// with a mistake makes none.
    pub async fn seed(&self, file: &str) -> Result<usize, SeedError> {
        let mut mistakes = Vec::new();
        let mut entries = Vec::new();
        for (number, text) in (1..).zip(file.lines()) {
            if number > SEED_LINES_MAX {
                mistakes.push((number, format!("a file has at most {SEED_LINES_MAX} lines")));
                break;
            }
            if text.trim().is_empty() || text.trim_start().starts_with('#') {
                continue;
            }
            match read_line(text) {
                Ok(entry) => entries.push(entry),
                Err(why) if mistakes.len() < MISTAKES_MAX => mistakes.push((number, why)),
                Err(_) => {}
            }
        }
        if !mistakes.is_empty() {
            return Err(SeedError::Mistakes(mistakes));
        }
        let mut made = 0;
        for entry in entries {
            made += usize::from(self.seed_entry(entry).await?);
        }
        Ok(made)
    }

    /// Makes so many entries of one participant: `pessoa0000001@exemplo.com.br` and so on.
    pub async fn seed_made_up(&self, participant: &str, entries: usize) -> Result<(), SeedError> {
        for number in 1..=entries.min(SEED_LINES_MAX) {
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
                .map_err(|why| SeedError::Mistakes(vec![(0, why)]))?;
            self.seed_entry(entry).await?;
        }
        Ok(())
    }

    async fn seed_entry(&self, entry: Entry) -> Result<bool, WorldError> {
        let mut change = Change::default();
        let record = EntryRecord::new(entry);
        match self.read_entry(&mut change, &record.entry.key).await {
            Ok(_) => return Ok(false),
            Err(Refusal::World(error)) => return Err(error),
            Err(Refusal::Problem(_)) => {}
        }
        self.add_entry(&mut change, &record, record.entry.creation_date)?;
        // Another simulator that reads the same file may have been quicker.
        Ok(self.world.commit(change).await? == Committed::Done)
    }
}

fn read_line(text: &str) -> Result<Entry, String> {
    let line: Line = serde_json::from_str(text).map_err(|error| {
        // The line's own number is known; within it only the column says anything.
        let why = error.to_string();
        let why = why.split(" at line ").next().unwrap_or_default().to_owned();
        format!("{why} (column {})", error.column())
    })?;
    line.entry()
}

impl Line {
    fn entry(self) -> Result<Entry, String> {
        let key_type = key_type_of(&self.key).ok_or("the key has the shape of no key type")?;
        if !is_ispb(&self.participant) {
            return Err("the participant is not an ISPB of 8 characters".to_owned());
        }
        let made_up = MadeUp::of(&self.key);
        let tax_id = match (self.tax_id, key_type) {
            (Some(tax_id), _) => tax_id,
            (None, KeyType::Cpf | KeyType::Cnpj) => self.key.clone(),
            (None, _) => made_up.digits(0, 11),
        };
        if !is_tax_id(&tax_id) {
            return Err("the tax_id is not a CPF or CNPJ".to_owned());
        }
        let owner_type = match tax_id.len() {
            11 => OwnerType::NaturalPerson,
            _ => OwnerType::LegalPerson,
        };
        let then = Moment::from_ms(LONG_AGO);
        Ok(Entry {
            key_type,
            account: Account {
                participant: self.participant,
                branch: self.branch.or_else(|| Some("0001".to_owned())),
                account_number: self.account.unwrap_or_else(|| made_up.digits(1, 10)),
                account_type: self.account_type.unwrap_or_else(|| "CACC".to_owned()),
                opening_date: then,
            },
            owner: Owner {
                owner_type,
                tax_id_number: tax_id,
                name: self.name.unwrap_or_else(|| "Fulana de Tal".to_owned()),
                trade_name: self.trade_name,
            },
            creation_date: then,
            key_ownership_date: then,
            open_claim_creation_date: None,
            request_id: made_up.uuid(),
            key: self.key,
        })
    }
}

/// Numbers that follow from a key.
struct MadeUp(digest::Digest);

impl MadeUp {
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
        let hex = format!("{:016x}{:016x}", self.number(2), self.number(3));
        [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ]
        .join("-")
    }
}

/// Why a file makes no entries.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeedError {
    /// Lines with what is wrong with each.
    Mistakes(Vec<(usize, String)>),
    /// The directory cannot be written.
    World(WorldError),
}

impl fmt::Display for SeedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mistakes(mistakes) => {
                for (place, (line, why)) in mistakes.iter().enumerate() {
                    let newline = if place == 0 { "" } else { "\n" };
                    write!(f, "{newline}line {line}: {why}")?;
                }
                Ok(())
            }
            Self::World(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SeedError {}

impl From<WorldError> for SeedError {
    fn from(error: WorldError) -> Self {
        Self::World(error)
    }
}
