//! The events that DICT notifies participants of.

use super::error::DirectoryError;
use super::handle::Directory;
use super::store::RecordTransaction;
use crate::wire::{EventNotification, FundsRecovery, Timestamp};

const DAY_MS: u64 = 86_400_000;
/// How long events are listed.
const EVENTS_MS: u64 = 7 * DAY_MS;
/// The most events of a page.
const EVENTS_PAGE: usize = 200;

impl Directory {
    /// Appends an event for the creator and, if the settings say so, for all counterparties.
    pub(super) async fn notify(
        &self,
        transaction: &mut RecordTransaction<'_>,
        recovery: &FundsRecovery,
        event: &str,
        now: Timestamp,
    ) -> Result<(), DirectoryError> {
        let mut participants = vec![recovery.reporter.clone()];
        if self.settings.notify_counterparties {
            for report in self.reports_of(recovery).await? {
                participants.extend(report.counterparty.clone());
            }
            participants.sort();
            participants.dedup();
        }
        for participant in participants {
            let text = format!("{event}:{}", recovery.id);
            transaction.append_event(format!("events:{participant}"), now.ms(), text);
        }
        Ok(())
    }

    /// Carries out listEventNotifications: the events of the last seven days after a position, and the
    /// position after which there are more.
    pub(crate) async fn notifications(
        &self,
        participants: &[String],
        after: u64,
        now: Timestamp,
    ) -> Result<(Vec<EventNotification>, Option<u64>), DirectoryError> {
        let start = now.minus_ms(EVENTS_MS).ms();
        let mut events = Vec::new();
        for participant in participants {
            let list = format!("events:{participant}");
            let found = self
                .records
                .members(&list, start..=now.ms(), 0, usize::MAX >> 1)
                .await?;
            let read = |(ms, text): (u64, String)| {
                let mut parts = text.splitn(3, ':');
                Some(EventNotification {
                    id: parts.next()?.parse().ok()?,
                    event: parts.next()?.to_owned(),
                    entity_id: parts.next()?.to_owned(),
                    participant: participant.clone(),
                    timestamp: Timestamp::from_ms(ms),
                })
            };
            let found = found.into_iter().filter_map(read);
            events.extend(found.filter(|event| event.id > after));
        }
        events.sort_by_key(|event| event.id);
        let has_more = events.len() > EVENTS_PAGE;
        events.truncate(EVENTS_PAGE);
        let next = events.last().filter(|_| has_more).map(|event| event.id);
        Ok((events, next))
    }
}
