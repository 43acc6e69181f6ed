//! Messages about claims: a new owner, or a new participant, for a key.

use super::key_type_text;
use balde_dict::wire::{Element, KeyType, Timestamp, Violation, Writer, key_type_of};
use serde::{Deserialize, Serialize};

use super::entry::{Account, Entry, Owner, key_pattern};
use super::enums::{ClaimReason, ClaimSide, ClaimStatus, ClaimType, WireEnum};
use super::envelope::{Envelope, ResponseHead};
use super::request_reader::RequestReader;

/// A claim of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_field_names,
    reason = "fields have the names of DICT's elements"
)]
pub(crate) struct Claim {
    /// The id.
    pub(crate) id: String,
    /// Whether ownership or portability is claimed.
    pub(crate) claim_type: ClaimType,
    /// The key.
    pub(crate) key: String,
    /// The type of the key.
    #[serde(with = "key_type_text")]
    pub(crate) key_type: KeyType,
    /// The account that the key is claimed for.
    pub(crate) claimer_account: Account,
    /// The person or company that claims the key.
    pub(crate) claimer: Owner,
    /// The participant that has the key now.
    pub(crate) donor_participant: String,
    /// The status.
    pub(crate) status: ClaimStatus,
    /// The end of the donor's period to answer.
    pub(crate) resolution_period_end: Timestamp,
    /// The end of the period in which an ownership claim can be cancelled.
    pub(crate) completion_period_end: Option<Timestamp>,
    /// When it last changed.
    pub(crate) last_modified: Timestamp,
    /// When it was created.
    pub(crate) creation_date: Timestamp,
    /// Why the donor confirmed it.
    pub(crate) confirm_reason: Option<ClaimReason>,
    /// Why it was cancelled.
    pub(crate) cancel_reason: Option<ClaimReason>,
    /// Which side cancelled it.
    pub(crate) cancelled_by: Option<ClaimSide>,
    /// Since when the owner has had the key. Portability keeps this date.
    pub(crate) key_ownership_date: Timestamp,
    /// The donor's entry, from the confirmation on.
    pub(crate) donor_entry: Option<Box<Entry>>,
    /// The id of the request that completed it.
    pub(crate) completion_request_id: Option<String>,
}

/// A createClaim request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateClaim {
    /// Whether ownership or portability is claimed.
    pub(crate) claim_type: ClaimType,
    /// The key.
    pub(crate) key: String,
    /// The type of the key.
    pub(crate) key_type: KeyType,
    /// The account that the key is claimed for.
    pub(crate) claimer_account: Account,
    /// The person or company that claims the key.
    pub(crate) claimer: Owner,
}

/// An acknowledgeClaim, confirmClaim, cancelClaim or completeClaim request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimActionRequest {
    /// The id of the claim.
    pub(crate) claim_id: String,
    /// The participant that acts.
    pub(crate) participant: String,
    /// The reason, to confirm or cancel.
    pub(crate) reason: Option<ClaimReason>,
    /// The id from which the new entry's CID is computed, to complete.
    pub(crate) request_id: Option<String>,
}

impl CreateClaim {
    pub(crate) fn read(root: &Element) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, "CreateClaimRequest");
        let claim_type = reader.value("Claim/Type", ClaimType::parse);
        let key = reader.text("Claim/Key");
        let key_type = reader.value("Claim/KeyType", KeyType::parse);
        if let Some(key_type) = key_type.filter(|own| key_type_of(&key) != Some(*own)) {
            reader.add_violation_at("Claim/Key", key_pattern(key_type));
        }
        let claimer_account = Account::read(&mut reader, "Claim/ClaimerAccount");
        let claimer = Owner::read(&mut reader, "Claim/Claimer");
        let request = (|| {
            Some(Self {
                claim_type: claim_type?,
                key,
                key_type: key_type?,
                claimer_account,
                claimer: claimer?,
            })
        })();
        reader.finish(request)
    }
}

impl ClaimActionRequest {
    /// `name` is the root element's. Confirming and cancelling need a reason, completing a request id.
    pub(crate) fn read(root: &Element, name: &str) -> Result<Self, Vec<Violation>> {
        let mut reader = RequestReader::new(root, name);
        let claim_id = reader.uuid("ClaimId");
        let participant = reader.ispb("Participant");
        let reason = match name {
            "ConfirmClaimRequest" | "CancelClaimRequest" => {
                reader.value("Reason", ClaimReason::parse)
            }
            _ => None,
        };
        let request_id = (name == "CompleteClaimRequest").then(|| reader.request_id("RequestId"));
        reader.finish(Some(Self {
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
        xml.optional("CompletionPeriodEnd", completion.as_deref())
            .element("LastModified", &self.last_modified.to_string())
            .optional(
                "ConfirmReason",
                self.confirm_reason.map(ClaimReason::as_str),
            )
            .optional("CancelReason", self.cancel_reason.map(ClaimReason::as_str))
            .optional("CancelledBy", self.cancelled_by.map(ClaimSide::as_str))
            .close("Claim");
    }
}

/// Writes the response to an operation on one claim.
pub(crate) fn claim_response(name: &'static str, head: &ResponseHead, claim: &Claim) -> String {
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

/// Writes the response to listClaims.
pub(crate) fn list_claims(head: &ResponseHead, claims: &[Claim], has_more: bool) -> String {
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
