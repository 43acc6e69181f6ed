//! The participant that the body of a write names.

use super::Operation;
use crate::wire::Element;

impl Operation {
    /// The participant that a request body names; `None` if the body is not XML or names none.
    pub fn body_participant(self, document: &[u8]) -> Option<String> {
        let root = Element::read(document).ok()?;
        self.participant_in(&root).map(str::to_owned)
    }

    /// The participant that a parsed body names: for entries and claims within the account.
    pub fn participant_in(self, root: &Element) -> Option<&str> {
        let path = match self {
            Self::CreateEntry => "Entry/Account/Participant",
            Self::UpdateEntry => "Account/Participant",
            Self::CreateClaim => "Claim/ClaimerAccount/Participant",
            Self::CreateSyncVerification => "SyncVerification/Participant",
            _ => "Participant",
        };
        let text = root.at(path).map(Element::text);
        text.filter(|participant| !participant.is_empty())
    }
}
