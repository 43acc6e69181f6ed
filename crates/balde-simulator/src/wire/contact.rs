//! Whom to contact about a report.

use balde_dict::wire::{Writer, formats};
use serde::{Deserialize, Serialize};

use super::request_reader::RequestReader;

/// The reporter's contact for questions about a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contact {
    email: String,
    phone: String,
}

impl Contact {
    /// Reads the contact information within the element at `at`, if it is there.
    pub(crate) fn read(reader: &mut RequestReader<'_>, at: &str) -> Option<Self> {
        reader.has(at).then(|| Self {
            email: reader.text_matching(
                &format!("{at}/Email"),
                "is not an e-mail address in lower case",
                formats::is_contact_email,
            ),
            phone: reader.text_matching(
                &format!("{at}/Phone"),
                "is not a phone number such as +5561988880000",
                formats::is_contact_phone,
            ),
        })
    }

    pub(crate) fn write(&self, xml: &mut Writer) {
        xml.open("ContactInformation")
            .element("Email", &self.email)
            .element("Phone", &self.phone)
            .close("ContactInformation");
    }
}
