//! Messages about entries: a key, its account and its owner.

use super::key_type_text;
use balde_dict::wire::{Element, KeyType, Timestamp, Violation, Writer, formats, key_type_of};
use serde::{Deserialize, Serialize};

use super::enums::{AccountType, EntryReason, OwnerType, WireEnum};
use super::envelope::{Envelope, ResponseHead};
use super::request_reader::{RequestReader, no_match};
use super::statistics::{KeyStatistics, PersonStatistics};

/// The most keys of a checkKeys request.
const CHECK_KEYS_MAX: usize = 200;

/// The reason of a company's name with other characters than the printable ones of Latin-1.
const NAME_PATTERN: &str = no_match!(r"^[\u0020-\u007E\u00A1-\u00FF]+$");

/// A bank or payment account in Brazil.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_field_names,
    reason = "fields have the names of DICT's elements"
)]
pub(crate) struct Account {
    /// The ISPB of the participant that holds the account.
    pub(crate) participant: String,
    /// The branch number, without its check digit.
    pub(crate) branch: Option<String>,
    /// The account number, with its check digit.
    pub(crate) account_number: String,
    /// The account type: four letters, such as `CACC`.
    pub(crate) account_type: String,
    /// When the account was opened.
    pub(crate) opening_date: Timestamp,
}

/// The owner of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_field_names,
    reason = "fields have the names of DICT's elements"
)]
pub(crate) struct Owner {
    /// A person or a company.
    #[serde(rename = "type")]
    pub(crate) owner_type: OwnerType,
    /// The owner's CPF or CNPJ.
    pub(crate) tax_id_number: String,
    /// The full name.
    pub(crate) name: String,
    /// A company's trade name.
    pub(crate) trade_name: Option<String>,
}

/// An entry of the directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The key.
    pub(crate) key: String,
    /// The type of the key.
    #[serde(with = "key_type_text")]
    pub(crate) key_type: KeyType,
    /// The account that receives payments to the key.
    pub(crate) account: Account,
    /// The owner of the key.
    pub(crate) owner: Owner,
    /// When the entry was created.
    pub(crate) creation_date: Timestamp,
    /// Since when the owner has had the key.
    pub(crate) key_ownership_date: Timestamp,
    /// When the open claim of the key was created, if there is one.
    pub(crate) open_claim_creation_date: Option<Timestamp>,
    /// The id of the request that created the entry. The entry's CID is computed from it.
    pub(crate) request_id: String,
}

/// A createEntry request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateEntry {
    /// The key. Absent for type EVP, whose keys DICT generates.
    pub(crate) key: Option<String>,
    /// The type of the key.
    pub(crate) key_type: KeyType,
    /// The account that receives payments to the key.
    pub(crate) account: Account,
    /// The owner of the key.
    pub(crate) owner: Owner,
    /// The reason.
    pub(crate) reason: EntryReason,
    /// The idempotency id: repeating it does not create a second entry.
    pub(crate) request_id: String,
}

/// An updateEntry request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpdateEntry {
    /// The key.
    pub(crate) key: String,
    /// The participant that holds the account, if the request or the caller names it.
    pub(crate) participant: Option<String>,
    /// The new account, if it changes.
    pub(crate) account: Option<Account>,
    /// The owner's type and tax number, which may not change.
    pub(crate) owner: Option<(OwnerType, String)>,
    /// The owner's new name.
    pub(crate) name: Option<String>,
    /// The company's new trade name.
    pub(crate) trade_name: Option<String>,
    /// The reason.
    pub(crate) reason: EntryReason,
}

/// A deleteEntry request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeleteEntry {
    /// The key.
    pub(crate) key: String,
    /// The ISPB of the participant that holds the account.
    pub(crate) participant: String,
    /// The reason.
    pub(crate) reason: EntryReason,
}

impl Account {
    pub(crate) fn read(reader: &mut RequestReader<'_>, at: &str) -> Self {
        let path = |name: &str| format!("{at}/{name}");
        let branch = reader.optional_matching(
            &path("Branch"),
            no_match!("^[0-9]{1,4}$"),
            formats::is_branch,
        );
        Self {
            participant: reader.ispb(&path("Participant")),
            branch,
            account_number: reader.text_matching(
                &path("AccountNumber"),
                no_match!("^(?i)[a-z0-9]{1,20}$"),
                formats::is_account_number,
            ),
            account_type: reader.text_matching(
                &path("AccountType"),
                "is not one of CACC, TRAN, SLRY, SVGS and OTHR",
                |text| AccountType::parse(text).is_some(),
            ),
            opening_date: reader.timestamp(&path("OpeningDate")),
        }
    }

    pub(crate) fn write(&self, xml: &mut Writer, name: &str) {
        xml.open(name)
            .element("Participant", &self.participant)
            .optional("Branch", self.branch.as_deref())
            .element("AccountNumber", &self.account_number)
            .element("AccountType", &self.account_type)
            .element("OpeningDate", &self.opening_date.to_string())
            .close(name);
    }
}

impl Owner {
    pub(crate) fn read(reader: &mut RequestReader<'_>, at: &str) -> Option<Self> {
        type Check = fn(&str) -> bool;
        let path = |name: &str| format!("{at}/{name}");
        let owner_type = reader.value(&path("Type"), OwnerType::parse);
        let (is_tax_id, is_name): (Check, Check) = match owner_type {
            Some(OwnerType::NaturalPerson) => (formats::is_cpf, formats::is_person_name),
            Some(OwnerType::LegalPerson) => (formats::is_company_tax_id, formats::is_company_name),
            None => (formats::is_tax_id, formats::is_company_name),
        };
        let (tax_id_pattern, name_pattern) = match owner_type {
            Some(OwnerType::NaturalPerson) => (
                no_match!("^[0-9]{11}$"),
                no_match!("^([A-Za-zÀ-ÖØ-öø-ÿ' -]+)$"),
            ),
            Some(OwnerType::LegalPerson) => (no_match!("[0-9]{14}"), NAME_PATTERN),
            None => (no_match!("([0-9]{11}|[0-9]{14})"), NAME_PATTERN),
        };
        let tax_id_number = reader.text_matching(&path("TaxIdNumber"), tax_id_pattern, is_tax_id);
        let name = reader.text_matching(&path("Name"), name_pattern, is_name);
        let trade_name = Self::read_trade_name(reader, at, owner_type);
        Some(Self {
            owner_type: owner_type?,
            tax_id_number,
            name,
            trade_name,
        })
    }

    /// Only companies have a trade name.
    fn read_trade_name(
        reader: &mut RequestReader<'_>,
        at: &str,
        owner_type: Option<OwnerType>,
    ) -> Option<String> {
        if owner_type == Some(OwnerType::NaturalPerson) {
            return None;
        }
        reader.optional_matching(
            &format!("{at}/TradeName"),
            no_match!(r"^(?!\*+$)[\u0020-\u007E\u00A1-\u00FF]+$"),
            formats::is_trade_name,
        )
    }

    pub(crate) fn write(&self, xml: &mut Writer, name: &str) {
        xml.open(name)
            .element("Type", self.owner_type.as_str())
            .element("TaxIdNumber", &self.tax_id_number)
            .element("Name", &self.name)
            .optional("TradeName", self.trade_name.as_deref())
            .close(name);
    }
}

impl Entry {
    /// Writes the `Entry` element. It is the same in every response, so it can be cached.
    pub(crate) fn to_xml(&self) -> String {
        let mut xml = Writer::fragment();
        xml.open("Entry")
            .element("Key", &self.key)
            .element("KeyType", self.key_type.as_str());
        self.account.write(&mut xml, "Account");
        self.owner.write(&mut xml, "Owner");
        xml.element("CreationDate", &self.creation_date.to_string())
            .element("KeyOwnershipDate", &self.key_ownership_date.to_string());
        if let Some(since) = self.open_claim_creation_date {
            xml.element("OpenClaimCreationDate", &since.to_string());
        }
        xml.close("Entry");
        xml.finish()
    }
}

impl CreateEntry {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, "CreateEntryRequest");
        let key = reader.optional_text("Entry/Key", 77);
        let key_type = reader.value("Entry/KeyType", KeyType::parse);
        match (key_type, key.as_deref()) {
            (Some(KeyType::Evp), Some(_)) => {
                reader.add_violation_at(
                    "Entry/Key",
                    "must not be sent: DICT generates keys of type EVP",
                );
            }
            (Some(key_type), Some(key)) if key_type_of(key) != Some(key_type) => {
                reader.add_violation_at("Entry/Key", key_pattern(key_type));
            }
            (Some(key_type), None) if key_type != KeyType::Evp => {
                reader.add_violation_at("Entry/Key", "is missing");
            }
            _ => {}
        }
        let account = Account::read(&mut reader, "Entry/Account");
        let owner = Owner::read(&mut reader, "Entry/Owner");
        let reason = reader.value("Reason", EntryReason::parse);
        let request_id = reader.request_id("RequestId");
        let request = (|| {
            Some(Self {
                key,
                key_type: key_type?,
                account,
                owner: owner?,
                reason: reason?,
                request_id,
            })
        })();
        reader.finish(request)
    }
}

impl UpdateEntry {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, "UpdateEntryRequest");
        let key = reader.text("Key");
        let account = reader
            .has("Account")
            .then(|| Account::read(&mut reader, "Account"));
        // Either the whole owner, or only the names that change.
        let (mut owner, mut name, mut trade_name) = (None, None, None);
        if reader.has("Owner/Type") || reader.has("Owner/TaxIdNumber") {
            if let Some(read) = Owner::read(&mut reader, "Owner") {
                owner = Some((read.owner_type, read.tax_id_number));
                name = Some(read.name);
                trade_name = read.trade_name;
            }
        } else if reader.has("Owner") {
            name = reader.optional_matching("Owner/Name", NAME_PATTERN, formats::is_company_name);
            trade_name = Owner::read_trade_name(&mut reader, "Owner", None);
        }
        let reason = reader.value("Reason", EntryReason::parse);
        let request = reason.map(|reason| Self {
            key,
            participant: account.as_ref().map(|account| account.participant.clone()),
            account,
            owner,
            name,
            trade_name,
            reason,
        });
        reader.finish(request)
    }
}

impl DeleteEntry {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, "DeleteEntryRequest");
        let key = reader.text("Key");
        let participant = reader.ispb("Participant");
        let reason = reader.value("Reason", EntryReason::parse);
        let request = reason.map(|reason| Self {
            key,
            participant,
            reason,
        });
        reader.finish(request)
    }
}

/// Reads the keys of a checkKeys request. A text without the format of a key is a key without entry.
pub(crate) fn read_check_keys(root: &Element) -> Result<Vec<String>, Vec<Violation>> {
    let mut reader = RequestReader::new(root, "CheckKeysRequest");
    let keys = reader.find("Keys").map_or(&[][..], Element::children);
    let keys: Vec<_> = keys
        .iter()
        .filter(|child| child.name() == "Key")
        .map(|key| key.text().to_owned())
        .collect();
    if !(1..=CHECK_KEYS_MAX).contains(&keys.len()) {
        reader.add_violation_at("Keys", "must have 1 to 200 keys");
    }
    reader.finish(Some(keys))
}

/// The reason of a key without the format of its type, with the published pattern.
pub(super) fn key_pattern(key_type: KeyType) -> &'static str {
    match key_type {
        KeyType::Cpf => no_match!("^[0-9]{11}$"),
        KeyType::Cnpj => no_match!("^(?i)[a-z0-9]{14}$"),
        KeyType::Phone => no_match!(r"^\+[1-9]\d{1,14}$"),
        KeyType::Email => no_match!(
            r"^[a-z0-9.!#$'*+\/=?^_`{|}~-]+@[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$"
        ),
        KeyType::Evp => no_match!("^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"),
    }
}

/// Writes the response to getEntry with the statistics of the owner and of the key.
pub(crate) fn entry_with_statistics_response(
    head: &ResponseHead,
    entry_xml: &str,
    of_owner: &PersonStatistics,
    of_key: &KeyStatistics,
) -> String {
    let mut envelope = Envelope::new("GetEntryResponse", head, 3_000 + entry_xml.len());
    envelope.xml().raw(entry_xml);
    of_owner.write(envelope.xml(), "OwnerStatistics");
    of_key.write(envelope.xml(), "KeyStatistics");
    envelope.finish()
}

/// Writes the response to createEntry, getEntry and updateEntry.
pub(crate) fn entry_response(name: &'static str, head: &ResponseHead, entry_xml: &str) -> String {
    let mut envelope = Envelope::new(name, head, 256 + entry_xml.len());
    envelope.xml().raw(entry_xml);
    envelope.finish()
}

/// Writes the response to deleteEntry.
pub(crate) fn delete_response(head: &ResponseHead, key: &str) -> String {
    let mut envelope = Envelope::new("DeleteEntryResponse", head, 400);
    envelope.xml().element("Key", key);
    envelope.finish()
}

/// Writes the response to checkKeys.
pub(crate) fn check_keys_response(head: &ResponseHead, keys: &[(String, bool)]) -> String {
    let mut envelope = Envelope::new("CheckKeysResponse", head, 300 + 80 * keys.len());
    envelope.xml().within("Keys", |xml| {
        for (key, has_entry) in keys {
            xml.raw(if *has_entry {
                "<Key hasEntry=\"true\">"
            } else {
                "<Key hasEntry=\"false\">"
            });
            xml.text(key).close("Key");
        }
    });
    envelope.finish()
}
