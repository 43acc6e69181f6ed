//! Statistics of a key or a person, which participants use to detect fraud.

use super::envelope::{Envelope, ResponseHead};
use super::timestamp::Timestamp;
use super::writer::Writer;

/// The number of events in three periods: 90 days, 12 months, 60 months.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// In the last 90 days.
    pub(crate) d90: u64,
    /// In the last 12 months.
    pub(crate) m12: u64,
    /// In the last 60 months.
    pub(crate) m60: u64,
}

const DAY_MS: u64 = 86_400_000;

impl Counts {
    /// Counts an event at `then`, as seen from `now`. A month has 30 days.
    pub(crate) fn add(&mut self, then: Timestamp, now: Timestamp) {
        let age = now.ms().saturating_sub(then.ms());
        self.d90 += u64::from(age < 90 * DAY_MS);
        self.m12 += u64::from(age < 12 * 30 * DAY_MS);
        self.m60 += u64::from(age < 60 * 30 * DAY_MS);
    }

    fn write(self, xml: &mut Writer, name: &str) {
        xml.raw("<").raw(name);
        for (window, count) in [("d90", self.d90), ("m12", self.m12), ("m60", self.m60)] {
            xml.raw(" ")
                .raw(window)
                .raw("=\"")
                .raw(&count.to_string())
                .raw("\"");
        }
        xml.raw("/>");
    }
}

/// The statistics of a key or a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    /// Payments received.
    pub(crate) settlements: Counts,
    /// Markers of accounts opened with a false identity.
    pub(crate) application_frauds: Counts,
    /// Markers of accounts that receive money for others.
    pub(crate) mule_accounts: Counts,
    /// Markers of scammers' accounts.
    pub(crate) scammer_accounts: Counts,
    /// Markers of other frauds.
    pub(crate) other_frauds: Counts,
    /// Participants that created the markers.
    pub(crate) distinct_reporters: u64,
    /// Infraction reports that are not closed.
    pub(crate) open_reports: u64,
    /// Infraction reports that the counterparty disagreed with.
    pub(crate) rejected_reports: Counts,
    /// Entries of the key or person.
    pub(crate) registered_entries: u64,
}

impl Statistics {
    fn write(&self, xml: &mut Writer, name: &str, now: Timestamp) {
        xml.open(name).element("Watermark", &now.to_string());
        xml.within("Spi", |xml| self.settlements.write(xml, "Settlements"));
        xml.within("FraudMarkers", |xml| {
            self.application_frauds.write(xml, "ApplicationFrauds");
            self.mule_accounts.write(xml, "MuleAccounts");
            self.scammer_accounts.write(xml, "ScammerAccounts");
            self.other_frauds.write(xml, "OtherFrauds");
            xml.element(
                "DistinctFraudReporters",
                &self.distinct_reporters.to_string(),
            );
        });
        xml.within("InfractionReports", |xml| {
            xml.element("OpenReports", &self.open_reports.to_string());
            self.rejected_reports.write(xml, "RejectedReports");
        });
        xml.within("Entry", |xml| {
            xml.element("RegisteredEntries", &self.registered_entries.to_string());
        });
        xml.close(name);
    }
}

/// Writes the response to getEntryStatistics: the statistics of the key and of its owner.
pub(crate) fn entry_statistics_response(
    head: &ResponseHead,
    key: &str,
    of_key: &Statistics,
    of_owner: &Statistics,
    now: Timestamp,
) -> String {
    let mut envelope = Envelope::new("GetEntryStatisticsResponse", head, 2_000);
    envelope.xml().element("Key", key);
    of_key.write(envelope.xml(), "EntryStatistics", now);
    of_owner.write(envelope.xml(), "OwnerStatistics", now);
    envelope.finish()
}

/// Writes the response to getPersonStatistics.
pub(crate) fn person_statistics_response(
    head: &ResponseHead,
    tax_id: &str,
    of_person: &Statistics,
    now: Timestamp,
) -> String {
    let mut envelope = Envelope::new("GetPersonStatisticsResponse", head, 1_200);
    envelope.xml().element("TaxIdNumber", tax_id);
    of_person.write(envelope.xml(), "PersonStatistics", now);
    envelope.finish()
}
