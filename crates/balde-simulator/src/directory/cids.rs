//! Content ids (CIDs), by which a participant compares its own records with DICT's.

use std::sync::Arc;

use ring::{digest, hmac};

use super::error::DirectoryError;
use super::handle::Directory;
use super::store::{RecordStoreError, RecordTransaction};
use crate::wire::{
    CidEventType, CidSetEvent, CidSetEvents, CidSetFile, Entry, FileStatus, Problem, Timestamp,
};
use balde_dict::KeyType;

/// The most CID set files that are kept. The oldest are removed first.
const CID_FILES_MAX: u64 = 1_000;

/// Members of a set that are read in one call.
const PAGE_LEN: usize = 1_000;

/// Computes an entry's content id: an HMAC of its content, keyed by the id of the request that created
/// it.
pub(super) fn cid(entry: &Entry) -> String {
    let account = &entry.account;
    let content = [
        entry.key_type.as_str(),
        &entry.key,
        &entry.owner.tax_id_number,
        &entry.owner.name,
        entry.owner.trade_name.as_deref().unwrap_or_default(),
        &account.participant,
        account.branch.as_deref().unwrap_or_default(),
        &account.account_number,
        &account.account_type,
    ];
    let key = hmac::Key::new(hmac::HMAC_SHA256, &uuid_bytes(&entry.request_id));
    hex::encode(hmac::sign(&key, content.join("&").as_bytes()))
}

/// Adds an entry's CID to its set.
pub(super) fn record_added(
    transaction: &mut RecordTransaction<'_>,
    entry: &Entry,
    cid: &str,
    now: Timestamp,
) {
    transaction.add_member(set_name(entry), entry.creation_date.ms(), cid);
    transaction.append_event(events_name(entry), now.ms(), format!("ADDED:{cid}"));
}

/// Removes an entry's CID from its set.
pub(super) fn record_removed(
    transaction: &mut RecordTransaction<'_>,
    entry: &Entry,
    cid: &str,
    now: Timestamp,
) {
    transaction.remove_member(set_name(entry), cid);
    transaction.append_event(events_name(entry), now.ms(), format!("REMOVED:{cid}"));
}

impl Directory {
    /// Computes the verifier of a participant's keys of one type: the XOR of all their CIDs.
    pub(crate) async fn sync_verifier(
        &self,
        participant: &str,
        key_type: KeyType,
    ) -> Result<String, RecordStoreError> {
        let mut verifier = [0; 32];
        for cid in self.cid_set(participant, key_type).await? {
            combine(&mut verifier, &cid);
        }
        Ok(hex::encode(verifier))
    }

    /// Returns the next sequence number. No number is returned twice.
    pub(crate) async fn next_number(&self) -> Result<u64, RecordStoreError> {
        self.records.next_number().await
    }

    /// Returns a CID set file by its id, for any caller.
    pub(crate) async fn cid_file_content(
        &self,
        id: u64,
    ) -> Result<Option<Arc<CidSetFile>>, RecordStoreError> {
        self.records.get(&file_name(id)).await
    }

    /// Whether a file is still being written, which takes as long as the settings say.
    pub(crate) fn cid_file_status(&self, file: &CidSetFile, now: Timestamp) -> FileStatus {
        let delay = self.settings.cid_file_delay.as_millis();
        let delay = u64::try_from(delay).unwrap_or(u64::MAX);
        if now < file.request_time.plus_ms(delay) {
            FileStatus::Processing
        } else {
            FileStatus::Available
        }
    }

    /// Carries out createCidSetFile. The file is available after a delay.
    pub(crate) async fn create_cid_file(
        &self,
        participant: &str,
        key_type: KeyType,
        now: Timestamp,
    ) -> Result<Arc<CidSetFile>, DirectoryError> {
        let mut content = String::new();
        for cid in self.cid_set(participant, key_type).await? {
            content.push_str(&cid);
            content.push('\n');
        }
        let id = self.records.next_number().await?;
        let file = Arc::new(CidSetFile {
            id,
            participant: participant.to_owned(),
            key_type,
            request_time: now,
            sha256: hex::encode(digest::digest(&digest::SHA256, content.as_bytes())),
            content,
        });
        let mut transaction = self.records.begin();
        transaction.put(file_name(id), Arc::clone(&file))?;
        transaction.add_member("cidfiles".to_owned(), now.ms(), &id.to_string());
        let files = self.records.len("cidfiles").await?;
        if files >= CID_FILES_MAX {
            for (_, oldest) in self.records.members("cidfiles", 0..=u64::MAX, 0, 1).await? {
                transaction.remove_member("cidfiles".to_owned(), &oldest);
                transaction.delete(format!("cidfile:{oldest}"));
            }
        }
        // The transaction has read nothing, so it cannot conflict.
        transaction.commit(()).await?;
        Ok(file)
    }

    /// Carries out getCidSetFile, for the participant that requested the file.
    pub(crate) async fn cid_file(
        &self,
        participant: &str,
        id: &str,
    ) -> Result<Arc<CidSetFile>, DirectoryError> {
        let id: u64 = id
            .parse()
            .map_err(|_| Problem::bad_request("The file id must be a number"))?;
        let file: Option<Arc<CidSetFile>> = self.records.get(&file_name(id)).await?;
        let file = file.ok_or_else(|| Problem::not_found("No file has the given id"))?;
        if file.participant != participant {
            return Err(Problem::forbidden("Another participant requested this file").into());
        }
        Ok(file)
    }

    /// Carries out listCidSetEvents. The verifiers before and after the events are computed backwards
    /// from the current set.
    pub(crate) async fn cid_events(
        &self,
        participant: &str,
        key_type: KeyType,
        (start, end): (Timestamp, Timestamp),
        limit: usize,
    ) -> Result<CidSetEvents, RecordStoreError> {
        let list = format!("cidevents:{participant}:{}", key_type.as_str());
        let found = self
            .records
            .members(&list, start.ms()..=end.ms(), 0, limit + 1)
            .await?;
        let has_more = found.len() > limit;
        let listed = &found[..found.len().min(limit)];
        let mut verifier = cid_bytes(&self.sync_verifier(participant, key_type).await?);
        let last = listed.last().cloned();
        let mut after = self
            .records
            .members(&list, start.ms()..=u64::MAX, 0, usize::MAX >> 1)
            .await?;
        // Undo every event after the last one listed, then all listed events but the first.
        while let Some(latest) = after.last()
            && last.as_ref().is_none_or(|last| latest > last)
        {
            combine(&mut verifier, cid_of(&latest.1));
            after.pop();
        }
        let verifier_end = hex::encode(verifier);
        for (_, event) in listed.iter().skip(1) {
            combine(&mut verifier, cid_of(event));
        }
        let read = |(ms, event): &(u64, String)| CidSetEvent {
            event_type: if event.contains(":ADDED:") {
                CidEventType::Added
            } else {
                CidEventType::Removed
            },
            cid: cid_of(event).to_owned(),
            timestamp: Timestamp::from_ms(*ms),
        };
        Ok(CidSetEvents {
            participant: participant.to_owned(),
            key_type,
            start_time: listed
                .first()
                .map_or(start, |(ms, _)| Timestamp::from_ms(*ms)),
            end_time: listed.last().map_or(end, |(ms, _)| Timestamp::from_ms(*ms)),
            verifier_start: hex::encode(verifier),
            verifier_end,
            events: listed.iter().map(read).collect(),
            has_more,
        })
    }

    async fn cid_set(
        &self,
        participant: &str,
        key_type: KeyType,
    ) -> Result<Vec<String>, RecordStoreError> {
        let set = format!("cids:{participant}:{}", key_type.as_str());
        let mut cids = Vec::new();
        loop {
            let page = self
                .records
                .members(&set, 0..=u64::MAX >> 11, cids.len(), PAGE_LEN)
                .await?;
            let is_last = page.len() < PAGE_LEN;
            cids.extend(page.into_iter().map(|(_, cid)| cid));
            if is_last {
                return Ok(cids);
            }
        }
    }
}

fn set_name(entry: &Entry) -> String {
    format!(
        "cids:{}:{}",
        entry.account.participant,
        entry.key_type.as_str()
    )
}

fn events_name(entry: &Entry) -> String {
    format!(
        "cidevents:{}:{}",
        entry.account.participant,
        entry.key_type.as_str()
    )
}

fn file_name(id: u64) -> String {
    format!("cidfile:{id}")
}

fn cid_of(event: &str) -> &str {
    event.rsplit(':').next().unwrap_or_default()
}

fn combine(verifier: &mut [u8; 32], cid: &str) {
    for (byte, other) in verifier.iter_mut().zip(cid_bytes(cid)) {
        *byte ^= other;
    }
}

/// The bytes of a CID, or zeros if it is not 64 hexadecimal digits.
fn cid_bytes(cid: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    match hex::decode_to_slice(cid, &mut bytes) {
        Ok(()) => bytes,
        Err(_) => [0; 32],
    }
}

fn uuid_bytes(uuid: &str) -> [u8; 16] {
    let digits = uuid.replace('-', "");
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Account, Owner, OwnerType};

    /// The published examples.
    #[test]
    fn content_ids_and_their_verifier_are_as_published() {
        let entry = Entry {
            key: "+5511987654321".to_owned(),
            key_type: KeyType::Phone,
            account: Account {
                participant: "12345678".to_owned(),
                branch: Some("00001".to_owned()),
                account_number: "0007654321".to_owned(),
                account_type: "CACC".to_owned(),
                opening_date: Timestamp::default(),
            },
            owner: Owner {
                owner_type: OwnerType::NaturalPerson,
                tax_id_number: "11122233300".to_owned(),
                name: "João Silva".to_owned(),
                trade_name: None,
            },
            creation_date: Timestamp::default(),
            key_ownership_date: Timestamp::default(),
            open_claim_creation_date: None,
            request_id: "01020304-0506-0708-090a-0b0c0d0e0f10".to_owned(),
        };
        let first = "28c06eb41c4dc9c3ae114831efcac7446c8747777fca8b145ecd31ff8480ae88";
        assert_eq!(cid(&entry), first);
        let mut verifier = [0; 32];
        for cid in [
            first,
            "4d4abb9168114e349672b934d16ed201a919cb49e28b7f66a240e62c92ee007f",
            "fce514f84f37934bc8aa0f861e4f7392273d71b9d18e8209d21e4192a7842058",
        ] {
            combine(&mut verifier, cid);
        }
        let expected = "996fc1dd3b6b14bcf0c9fe8320eb66d7e2a3fd874ccf767b2e939641b1ea8eaf";
        assert_eq!(hex::encode(verifier), expected);
    }
}
