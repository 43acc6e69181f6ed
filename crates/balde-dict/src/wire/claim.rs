//! Claims: a key wanted by somebody else, or by its owner somewhere else.

use serde::{Deserialize, Serialize};

use super::element::Element;
use super::entry::{Account, Owner};
use super::envelope::{Envelope, Head};
use super::form::Form;
use super::formats;
use super::key_type::{key_type_of, key_type_text};
use super::problem::Violation;
use super::time::Moment;
use super::words::{ClaimReason, ClaimSide, ClaimStatus, ClaimType};
use super::writer::Writer;
use crate::KeyType;

/// A claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Its id.
    pub id: String,
    /// What is claimed.
    pub claim_type: ClaimType,
    /// The key.
    pub key: String,
    /// Its type.
    #[serde(with = "key_type_text")]
    pub key_type: KeyType,
    /// Where the key shall lead.
    pub claimer_account: Account,
    /// Who wants it.
    pub claimer: Owner,
    /// Who has it.
    pub donor_participant: String,
    /// How far it has come.
    pub status: ClaimStatus,
    /// Until when the donor may answer.
    pub resolution_period_end: Moment,
    /// Until when the claim may be called off, for ownership.
    pub completion_period_end: Option<Moment>,
    /// When it last changed.
    pub last_modified: Moment,
    /// When it was created.
    pub creation_date: Moment,
    /// Why the donor granted it.
    pub confirm_reason: Option<ClaimReason>,
    /// Why it was called off.
    pub cancel_reason: Option<ClaimReason>,
    /// By whom.
    pub cancelled_by: Option<ClaimSide>,
    /// Since when the owner has had the key, which goes along with it.
    pub key_ownership_date: Moment,
}

/// createClaim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateClaim {
    /// What is claimed.
    pub claim_type: ClaimType,
    /// The key.
    pub key: String,
    /// Its type.
    pub key_type: KeyType,
    /// Where it shall lead.
    pub claimer_account: Account,
    /// Who wants it.
    pub claimer: Owner,
}

/// acknowledge-, confirm-, cancel- or completeClaim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveClaim {
    /// Which claim.
    pub claim_id: String,
    /// Who moves it.
    pub participant: String,
    /// Why, to confirm or cancel.
    pub reason: Option<ClaimReason>,
    /// The id for the entry's CID, to complete.
    pub request_id: Option<String>,
}

impl CreateClaim {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut form = Form::new(root, "CreateClaimRequest");
        let claim_type = form.word("Claim/Type", ClaimType::read);
        let key = form.text("Claim/Key");
        let key_type = form.word("Claim/KeyType", KeyType::parse);
        if key_type.is_some_and(|key_type| key_type_of(&key) != Some(key_type)) {
            form.note_at("Claim/Key", "does not have the shape of its KeyType");
        }
        let claimer_account = Account::read(&mut form, "Claim/ClaimerAccount");
        let claimer = Owner::read(&mut form, "Claim/Claimer");
        let request = (|| {
            Some(Self {
                claim_type: claim_type?,
                key,
                key_type: key_type?,
                claimer_account,
                claimer: claimer?,
            })
        })();
        form.finish(request)
    }
}

impl MoveClaim {
    /// `name` is the document's; confirming and cancelling need a reason, completing an id.
    pub(crate) fn read(root: &Element, name: &str) -> Result<Self, Vec<Violation>> {
        let mut form = Form::new(root, name);
        let claim_id = form.checked("ClaimId", "is not a UUID", formats::is_uuid);
        let participant = form.checked(
            "Participant",
            "is not an ISPB of 8 characters",
            formats::is_ispb,
        );
        let reason = match name {
            "ConfirmClaimRequest" | "CancelClaimRequest" => form.word("Reason", ClaimReason::read),
            _ => None,
        };
        let request_id = (name == "CompleteClaimRequest")
            .then(|| form.checked("RequestId", "is not a UUID", formats::is_uuid));
        form.finish(Some(Self {
            claim_id,
            participant,
            reason,
            request_id,
        }))
    }
}

impl Claim {
    fn write(&self, xml: &mut Writer) {
        xml.open("Claim")
            .element("Type", self.claim_type.as_str())
            .element("Key", &self.key)
            .element("KeyType", self.key_type.as_str());
        self.claimer_account.write(xml, "ClaimerAccount");
        self.claimer.write(xml, "Claimer");
        xml.element("DonorParticipant", &self.donor_participant)
            .element("Id", &self.id)
            .element("Status", self.status.as_str())
            .element(
                "ResolutionPeriodEnd",
                &self.resolution_period_end.to_string(),
            );
        let completion = self.completion_period_end.map(|end| end.to_string());
        xml.maybe("CompletionPeriodEnd", completion.as_deref())
            .element("LastModified", &self.last_modified.to_string())
            .maybe(
                "ConfirmReason",
                self.confirm_reason.map(ClaimReason::as_str),
            )
            .maybe("CancelReason", self.cancel_reason.map(ClaimReason::as_str))
            .maybe("CancelledBy", self.cancelled_by.map(ClaimSide::as_str))
            .close("Claim");
    }
}

/// The answer to every operation on one claim.
pub(crate) fn claim_response(name: &'static str, head: &Head, claim: &Claim) -> String {
    let mut envelope = Envelope::new(name, head, 1_500);
    claim.write(envelope.xml());
    if name == "CompleteClaimResponse" {
        envelope
            .xml()
            .element("EntryCreationDate", &claim.last_modified.to_string())
            .element("KeyOwnershipDate", &claim.key_ownership_date.to_string());
    }
    envelope.finish()
}

/// The answer to listClaims.
pub(crate) fn list_claims(head: &Head, claims: &[Claim], has_more: bool) -> String {
    let mut envelope = Envelope::new("ListClaimsResponse", head, 400 + 1_200 * claims.len());
    let xml = envelope.xml();
    xml.element("HasMoreElements", if has_more { "true" } else { "false" });
    xml.within("Claims", |xml| {
        for claim in claims {
            claim.write(xml);
        }
    });
    envelope.finish()
}
