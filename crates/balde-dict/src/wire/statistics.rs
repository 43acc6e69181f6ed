//! What DICT knows of a key or a person that helps to tell fraud.

use super::envelope::{Envelope, Head};
use super::time::Moment;
use super::writer::Writer;

/// A number in three windows of time: 90 days, 12 months, 60 months.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// In the last 90 days.
    pub d90: u64,
    /// In the last 12 months.
    pub m12: u64,
    /// In the last 60 months.
    pub m60: u64,
}

const DAY_MS: u64 = 86_400_000;

impl Counts {
    /// Counts one that happened then, as seen now. Months are taken for 30 days.
    pub(crate) fn add(&mut self, then: Moment, now: Moment) {
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
pub struct Statistics {
    /// Payments that arrived.
    pub settlements: Counts,
    /// Markers of accounts under false names.
    pub application_frauds: Counts,
    /// Markers of accounts lent to others.
    pub mule_accounts: Counts,
    /// Markers of deceivers' accounts.
    pub scammer_accounts: Counts,
    /// Markers of other frauds.
    pub other_frauds: Counts,
    /// Participants that made them.
    pub distinct_reporters: u64,
    /// Reports that nobody has answered yet.
    pub open_reports: u64,
    /// Reports that turned out to be none.
    pub rejected_reports: Counts,
    /// Entries of the person.
    pub registered_entries: u64,
}

impl Statistics {
    fn write(&self, xml: &mut Writer, name: &str, now: Moment) {
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

/// The answer to getEntryStatistics: the key's and its owner's.
pub(crate) fn entry_statistics_response(
    head: &Head,
    key: &str,
    of_key: &Statistics,
    of_owner: &Statistics,
    now: Moment,
) -> String {
    let mut envelope = Envelope::new("GetEntryStatisticsResponse", head, 2_000);
    envelope.xml().element("Key", key);
    of_key.write(envelope.xml(), "EntryStatistics", now);
    of_owner.write(envelope.xml(), "OwnerStatistics", now);
    envelope.finish()
}

/// The answer to getPersonStatistics.
pub(crate) fn person_statistics_response(
    head: &Head,
    tax_id: &str,
    of_person: &Statistics,
    now: Moment,
) -> String {
    let mut envelope = Envelope::new("GetPersonStatisticsResponse", head, 1_200);
    envelope.xml().element("TaxIdNumber", tax_id);
    of_person.write(envelope.xml(), "PersonStatistics", now);
    envelope.finish()
}
