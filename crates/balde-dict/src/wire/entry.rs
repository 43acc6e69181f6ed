//! Entries: a key, the account it leads to and who owns it.

use serde::{Deserialize, Serialize};

use super::element::Element;
use super::envelope::{Envelope, Head};
use super::form::Form;
use super::formats;
use super::key_type::{key_type_of, key_type_text};
use super::problem::Violation;
use super::time::Moment;
use super::words::{EntryReason, OwnerType};
use super::writer::Writer;
use crate::KeyType;

/// The longest name of an owner, in characters.
const NAME_CHARS_MAX: usize = 100;

/// The most keys of one checkKeys.
pub const CHECK_KEYS_MAX: usize = 200;

/// An account in Brazil.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The ISPB of who keeps it.
    pub participant: String,
    /// The branch, without its check digit.
    pub branch: Option<String>,
    /// The number, with its check digit.
    pub account_number: String,
    /// Four letters, such as `CACC`.
    pub account_type: String,
    /// When it was opened.
    pub opening_date: Moment,
}

/// Who owns a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// A person or a company.
    #[serde(rename = "type")]
    pub owner_type: OwnerType,
    /// CPF or CNPJ.
    pub tax_id_number: String,
    /// The full name.
    pub name: String,
    /// What a company calls itself.
    pub trade_name: Option<String>,
}

/// An entry of the directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its type.
    #[serde(with = "key_type_text")]
    pub key_type: KeyType,
    /// Where it leads.
    pub account: Account,
    /// Who owns it.
    pub owner: Owner,
    /// When the entry was made.
    pub creation_date: Moment,
    /// Since when the owner has had the key.
    pub key_ownership_date: Moment,
    /// Since when somebody claims it.
    pub open_claim_creation_date: Option<Moment>,
    /// The id of the request that made it, from which its CID is worked out.
    pub request_id: String,
}

/// createEntry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateEntry {
    /// The key; DICT itself makes those of type EVP.
    pub key: Option<String>,
    /// Its type.
    pub key_type: KeyType,
    /// Where it leads.
    pub account: Account,
    /// Who owns it.
    pub owner: Owner,
    /// Why.
    pub reason: EntryReason,
    /// What makes asking twice happen once.
    pub request_id: String,
}

/// updateEntry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateEntry {
    /// The key.
    pub key: String,
    /// Where it leads from now on.
    pub account: Account,
    /// What the owner is called from now on.
    pub name: Option<String>,
    /// What the company calls itself from now on.
    pub trade_name: Option<String>,
    /// Why.
    pub reason: EntryReason,
}

/// deleteEntry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteEntry {
    /// The key.
    pub key: String,
    /// Who keeps the account.
    pub participant: String,
    /// Why.
    pub reason: EntryReason,
}

impl Account {
    pub(crate) fn read(form: &mut Form<'_>, at: &str) -> Self {
        let path = |name: &str| format!("{at}/{name}");
        let branch = form.maybe(&path("Branch"), 4);
        if branch
            .as_deref()
            .is_some_and(|branch| !formats::is_branch(branch))
        {
            form.note_at(&path("Branch"), "is not 1 to 4 digits");
        }
        Self {
            participant: form.checked(
                &path("Participant"),
                "is not an ISPB of 8 characters",
                formats::is_ispb,
            ),
            branch,
            account_number: form.checked(
                &path("AccountNumber"),
                "is not 1 to 20 digits",
                formats::is_account_number,
            ),
            account_type: form.checked(
                &path("AccountType"),
                "is not four capital letters",
                formats::is_account_type,
            ),
            opening_date: form.moment(&path("OpeningDate")),
        }
    }

    pub(crate) fn write(&self, xml: &mut Writer, name: &str) {
        xml.open(name)
            .element("Participant", &self.participant)
            .maybe("Branch", self.branch.as_deref())
            .element("AccountNumber", &self.account_number)
            .element("AccountType", &self.account_type)
            .element("OpeningDate", &self.opening_date.to_string())
            .close(name);
    }
}

impl Owner {
    pub(crate) fn read(form: &mut Form<'_>, at: &str) -> Option<Self> {
        let path = |name: &str| format!("{at}/{name}");
        let owner_type = form.word(&path("Type"), OwnerType::read);
        let is_right: fn(&str) -> bool = match owner_type {
            Some(OwnerType::NaturalPerson) => formats::is_cpf,
            Some(OwnerType::LegalPerson) => formats::is_cnpj,
            None => formats::is_tax_id,
        };
        let tax_id_number = form.checked(
            &path("TaxIdNumber"),
            "is not the CPF or CNPJ of such an owner",
            is_right,
        );
        let name = form.checked(
            &path("Name"),
            "is not 1 to 100 characters",
            formats::is_name,
        );
        let trade_name = form.maybe(&path("TradeName"), NAME_CHARS_MAX);
        Some(Self {
            owner_type: owner_type?,
            tax_id_number,
            name,
            trade_name,
        })
    }

    pub(crate) fn write(&self, xml: &mut Writer, name: &str) {
        xml.open(name)
            .element("Type", self.owner_type.as_str())
            .element("TaxIdNumber", &self.tax_id_number)
            .element("Name", &self.name)
            .maybe("TradeName", self.trade_name.as_deref())
            .close(name);
    }
}

impl Entry {
    /// The element, which is the same in every answer and so can be kept.
    pub(crate) fn to_xml(&self) -> String {
        let mut xml = Writer::part();
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
        let mut form = Form::new(root, "CreateEntryRequest");
        let key = form.maybe("Entry/Key", 77);
        let key_type = form.word("Entry/KeyType", KeyType::parse);
        match (key_type, key.as_deref()) {
            (Some(KeyType::Evp), Some(_)) => {
                form.note_at("Entry/Key", "must not be sent: DICT makes keys of type EVP");
            }
            (Some(key_type), Some(key)) if key_type_of(key) != Some(key_type) => {
                form.note_at("Entry/Key", "does not have the shape of its KeyType");
            }
            (Some(key_type), None) if key_type != KeyType::Evp => {
                form.note_at("Entry/Key", "is missing");
            }
            _ => {}
        }
        let account = Account::read(&mut form, "Entry/Account");
        let owner = Owner::read(&mut form, "Entry/Owner");
        if let (Some(KeyType::Cpf | KeyType::Cnpj), Some(key), Some(owner)) =
            (key_type, &key, &owner)
            && *key != owner.tax_id_number
        {
            form.note_at("Entry/Key", "is not the owner's own CPF or CNPJ");
        }
        let reason = form.word("Reason", EntryReason::read);
        let request_id = form.checked("RequestId", "is not a UUID", formats::is_uuid);
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
        form.finish(request)
    }
}

impl UpdateEntry {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut form = Form::new(root, "UpdateEntryRequest");
        let key = form.text("Key");
        let account = Account::read(&mut form, "Account");
        let name = form.maybe("Owner/Name", NAME_CHARS_MAX);
        let trade_name = form.maybe("Owner/TradeName", NAME_CHARS_MAX);
        let reason = form.word("Reason", EntryReason::read);
        let request = reason.map(|reason| Self {
            key,
            account,
            name,
            trade_name,
            reason,
        });
        form.finish(request)
    }
}

impl DeleteEntry {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut form = Form::new(root, "DeleteEntryRequest");
        let key = form.text("Key");
        let participant = form.checked(
            "Participant",
            "is not an ISPB of 8 characters",
            formats::is_ispb,
        );
        let reason = form.word("Reason", EntryReason::read);
        let request = reason.map(|reason| Self {
            key,
            participant,
            reason,
        });
        form.finish(request)
    }
}

/// The keys of a checkKeys.
pub(crate) fn read_check_keys(root: &Element) -> Result<Vec<String>, Vec<Violation>> {
    let mut form = Form::new(root, "CheckKeysRequest");
    let keys = root.child("Keys").map_or(&[][..], Element::children);
    let keys: Vec<_> = keys
        .iter()
        .filter(|child| child.name() == "Key")
        .map(|key| key.text().to_owned())
        .collect();
    if !(1..=CHECK_KEYS_MAX).contains(&keys.len()) {
        form.note_at("Keys", "must have 1 to 200 keys");
    } else if keys.iter().any(|key| key_type_of(key).is_none()) {
        form.note_at("Keys", "has a key without the shape of any key type");
    }
    form.finish(Some(keys))
}

/// The answer to createEntry, getEntry and updateEntry.
pub(crate) fn entry_response(name: &'static str, head: &Head, entry_xml: &str) -> String {
    let mut envelope = Envelope::new(name, head, 256 + entry_xml.len());
    envelope.xml().raw(entry_xml);
    envelope.finish()
}

/// The answer to deleteEntry.
pub(crate) fn delete_response(head: &Head, key: &str) -> String {
    let mut envelope = Envelope::new("DeleteEntryResponse", head, 400);
    envelope.xml().element("Key", key);
    envelope.finish()
}

/// The answer to checkKeys.
pub(crate) fn check_keys_response(head: &Head, keys: &[(String, bool)]) -> String {
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
