//! Content ids: what lets a participant see whether its books and DICT's say the same.

use std::sync::Arc;

use ring::{digest, hmac};

use super::world::{Change, WorldError};
use super::{Directory, Refusal};
use crate::KeyType;
use crate::wire::{CidEventType, CidSetEvent, CidSetEvents, CidSetFile, Entry, Moment, Problem};

/// The most files that are kept; the oldest go first.
pub const CID_FILES_MAX: u64 = 1_000;

/// Members of a set that are read at once.
const PAGE: usize = 1_000;

/// The content id: a keyed hash of what the entry says, under the id of the request that made it.
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
    hex(hmac::sign(&key, content.join("&").as_bytes()).as_ref())
}

/// Notes that a CID has come into its set.
pub(super) fn note_added(change: &mut Change, entry: &Entry, cid: &str, now: Moment) {
    change.add(set_name(entry), entry.creation_date.ms(), cid);
    change.event(events_name(entry), now.ms(), format!("ADDED:{cid}"));
}

/// Notes that a CID has left its set.
pub(super) fn note_removed(change: &mut Change, entry: &Entry, cid: &str, now: Moment) {
    change.remove(set_name(entry), cid);
    change.event(events_name(entry), now.ms(), format!("REMOVED:{cid}"));
}

impl Directory {
    /// What a participant's keys of one type verify to: all their CIDs, combined bit by bit.
    pub(crate) async fn sync_verifier(
        &self,
        participant: &str,
        key_type: KeyType,
    ) -> Result<String, WorldError> {
        let mut verifier = [0; 32];
        for cid in self.cid_set(participant, key_type).await? {
            combine(&mut verifier, &cid);
        }
        Ok(hex(&verifier))
    }

    /// A number that nobody else gets.
    pub(crate) async fn next_number(&self) -> Result<u64, WorldError> {
        self.world.next_number().await
    }

    /// A file, by whoever has its address.
    pub(crate) async fn cid_file_content(
        &self,
        id: u64,
    ) -> Result<Option<Arc<CidSetFile>>, WorldError> {
        self.world.get(&file_name(id)).await
    }

    /// createCidSetFile. It is there at once.
    pub(crate) async fn create_cid_file(
        &self,
        participant: &str,
        key_type: KeyType,
        now: Moment,
    ) -> Result<Arc<CidSetFile>, Refusal> {
        let mut content = String::new();
        for cid in self.cid_set(participant, key_type).await? {
            content.push_str(&cid);
            content.push('\n');
        }
        let id = self.world.next_number().await?;
        let file = Arc::new(CidSetFile {
            id,
            participant: participant.to_owned(),
            key_type,
            request_time: now,
            sha256: hex(digest::digest(&digest::SHA256, content.as_bytes()).as_ref()),
            content,
        });
        let mut change = Change::default();
        self.world
            .put(&mut change, file_name(id), Arc::clone(&file))?;
        change.add("cidfiles".to_owned(), now.ms(), &id.to_string());
        let files = self.world.len("cidfiles").await?;
        if files >= CID_FILES_MAX {
            for (_, oldest) in self.world.members("cidfiles", 0..=u64::MAX, 0, 1).await? {
                change.remove("cidfiles".to_owned(), &oldest);
                change.delete(format!("cidfile:{oldest}"));
            }
        }
        // It hangs on nothing that was read, so nothing can get in its way.
        self.world.commit(change).await?;
        Ok(file)
    }

    /// getCidSetFile, by who asked for it.
    pub(crate) async fn cid_file(
        &self,
        participant: &str,
        id: &str,
    ) -> Result<Arc<CidSetFile>, Refusal> {
        let id: u64 = id
            .parse()
            .map_err(|_| Problem::bad_request("The id of a file is a number"))?;
        let file: Option<Arc<CidSetFile>> = self.world.get(&file_name(id)).await?;
        let file = file.ok_or_else(|| Problem::not_found("No file has the given id"))?;
        if file.participant != participant {
            return Err(Problem::forbidden("Another participant asked for this file").into());
        }
        Ok(file)
    }

    /// listCidSetEvents. The verifiers around the events are worked out backwards from the set as
    /// it is now.
    pub(crate) async fn cid_events(
        &self,
        participant: &str,
        key_type: KeyType,
        (start, end): (Moment, Moment),
        limit: usize,
    ) -> Result<CidSetEvents, WorldError> {
        let list = format!("cidevents:{participant}:{}", key_type.as_str());
        let found = self
            .world
            .members(&list, start.ms()..=end.ms(), 0, limit + 1)
            .await?;
        let has_more = found.len() > limit;
        let shown = &found[..found.len().min(limit)];
        let mut verifier = bytes(&self.sync_verifier(participant, key_type).await?);
        let last = shown.last().cloned();
        let mut after = self
            .world
            .members(&list, start.ms()..=u64::MAX, 0, usize::MAX >> 1)
            .await?;
        // Undo everything after the last event that is shown, then all but the first.
        while let Some(latest) = after.last()
            && last.as_ref().is_none_or(|last| latest > last)
        {
            combine(&mut verifier, cid_of(&latest.1));
            after.pop();
        }
        let verifier_end = hex(&verifier);
        for (_, event) in shown.iter().skip(1) {
            combine(&mut verifier, cid_of(event));
        }
        let read = |(ms, event): &(u64, String)| CidSetEvent {
            event_type: if event.contains(":ADDED:") {
                CidEventType::Added
            } else {
                CidEventType::Removed
            },
            cid: cid_of(event).to_owned(),
            timestamp: Moment::from_ms(*ms),
        };
        Ok(CidSetEvents {
            participant: participant.to_owned(),
            key_type,
            start_time: shown.first().map_or(start, |(ms, _)| Moment::from_ms(*ms)),
            end_time: shown.last().map_or(end, |(ms, _)| Moment::from_ms(*ms)),
            verifier_start: hex(&verifier),
            verifier_end,
            events: shown.iter().map(read).collect(),
            has_more,
        })
    }

    async fn cid_set(
        &self,
        participant: &str,
        key_type: KeyType,
    ) -> Result<Vec<String>, WorldError> {
        let set = format!("cids:{participant}:{}", key_type.as_str());
        let mut cids = Vec::new();
        loop {
            let page = self
                .world
                .members(&set, 0..=u64::MAX >> 11, cids.len(), PAGE)
                .await?;
            let is_last = page.len() < PAGE;
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
    for (byte, other) in verifier.iter_mut().zip(bytes(cid)) {
        *byte ^= other;
    }
}

fn bytes(cid: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(cid.as_bytes().chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).unwrap_or_default();
        *byte = u8::from_str_radix(pair, 16).unwrap_or(0);
    }
    bytes
}

fn uuid_bytes(uuid: &str) -> [u8; 16] {
    let digits = uuid.replace('-', "");
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;

    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _a_string_takes_everything = write!(text, "{byte:02x}");
    }
    text
}
