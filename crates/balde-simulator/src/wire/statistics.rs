//! Statistics of a key or a person, which participants use to detect fraud.

use balde_dict::wire::{Timestamp, Writer};
use jiff::civil::Date;
use jiff::{Span, tz::TimeZone};

use super::envelope::{Envelope, ResponseHead};

/// A day of the statistics begins at this hour of UTC: midnight in Brasília.
const DAY_START_HOUR: i8 = 3;

/// Settlements before 2023-11-05T03:00:00Z are not counted.
pub(crate) const SETTLEMENTS_FROM: Timestamp = Timestamp::known_ms(1_699_153_200_000);

/// The three periods of the statistics: the current day and the 89 before it, and the last 12 and 60
/// whole months.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    d90: [Timestamp; 2],
    m12: [Timestamp; 2],
    m60: [Timestamp; 2],
}

impl Windows {
    pub(crate) fn at(now: Timestamp) -> Self {
        let ms = i64::try_from(now.ms()).unwrap_or(i64::MAX);
        let instant = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        let local = instant.to_zoned(TimeZone::UTC).datetime();
        let local = local.saturating_sub(Span::new().hours(DAY_START_HOUR));
        let today = local.date();
        let month = today.first_of_month();
        let before = |months: i32| start_of(month.saturating_sub(Span::new().months(months)));
        Self {
            d90: [start_of(today.saturating_sub(Span::new().days(89))), now],
            m12: [before(12), start_of(month)],
            m60: [before(60), start_of(month)],
        }
    }
}

/// The start of a day of the statistics.
fn start_of(date: Date) -> Timestamp {
    let zoned = date.at(DAY_START_HOUR, 0, 0, 0).to_zoned(TimeZone::UTC);
    let ms = zoned.map_or(0, |zoned| zoned.timestamp().as_millisecond());
    Timestamp::from_ms(u64::try_from(ms).unwrap_or(0))
}

/// A sum in each of the three periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// In the last 90 days.
    pub(crate) d90: u64,
    /// In the last 12 months.
    pub(crate) m12: u64,
    /// In the last 60 months.
    pub(crate) m60: u64,
}

impl Counts {
    /// Counts an event.
    pub(crate) fn add(&mut self, at: Timestamp, windows: &Windows) {
        self.add_many(1, at, windows);
    }

    /// Adds an amount to the periods that contain `at`.
    pub(crate) fn add_many(&mut self, amount: u64, at: Timestamp, windows: &Windows) {
        let within = |[start, end]: [Timestamp; 2], is_last: bool| {
            at >= start && (at < end || (is_last && at == end))
        };
        self.d90 += amount * u64::from(within(windows.d90, true));
        self.m12 += amount * u64::from(within(windows.m12, false));
        self.m60 += amount * u64::from(within(windows.m60, false));
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

/// What the statistics of keys and of persons have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Statistics {
    /// The time as of which they hold.
    pub(crate) watermark: Timestamp,
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
    /// Markers without a kind, from version 1.
    pub(crate) unknown_frauds: Counts,
    /// The amounts of the marked transactions, in whole reais.
    pub(crate) fraud_amount: Counts,
    /// Participants that created the markers.
    pub(crate) distinct_reporters: Counts,
    /// Infraction reports that are not closed.
    pub(crate) open_reports: u64,
    /// The participants that reported those.
    pub(crate) open_reports_reporters: u64,
    /// Infraction reports that the counterparty disagreed with.
    pub(crate) rejected_reports: Counts,
}

/// The statistics of a person or company.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PersonStatistics {
    pub(crate) common: Statistics,
    /// Accounts that the person has registered keys for.
    pub(crate) registered_accounts: u64,
}

/// The statistics of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyStatistics {
    pub(crate) common: Statistics,
    /// Accounts that the key was registered for.
    pub(crate) distinct_accounts: Counts,
}

impl Statistics {
    /// Statistics in which nothing was counted yet.
    pub(crate) fn none(watermark: Timestamp) -> Self {
        let none = Counts::default();
        Self {
            watermark,
            settlements: none,
            application_frauds: none,
            mule_accounts: none,
            scammer_accounts: none,
            other_frauds: none,
            unknown_frauds: none,
            fraud_amount: none,
            distinct_reporters: none,
            open_reports: 0,
            open_reports_reporters: 0,
            rejected_reports: none,
        }
    }

    fn write(&self, xml: &mut Writer, entries: impl FnOnce(&mut Writer)) {
        let watermark = self.watermark.to_string();
        xml.within("Spi", |xml| {
            xml.element("Watermark", &watermark);
            self.settlements.write(xml, "Settlements");
        });
        xml.within("FraudMarkers", |xml| {
            xml.element("Watermark", &watermark);
            for (name, counts) in [
                ("ApplicationFrauds", self.application_frauds),
                ("MuleAccounts", self.mule_accounts),
                ("ScammerAccounts", self.scammer_accounts),
                ("OtherFrauds", self.other_frauds),
                ("UnknownFrauds", self.unknown_frauds),
                ("TotalFraudTransactionAmount", self.fraud_amount),
                ("DistinctFraudReporters", self.distinct_reporters),
            ] {
                counts.write(xml, name);
            }
        });
        xml.within("InfractionReports", |xml| {
            let reporters = self.open_reports_reporters;
            xml.element("Watermark", &watermark)
                .element("OpenReports", &self.open_reports.to_string())
                .element("OpenReportsDistinctReporters", &reporters.to_string());
            self.rejected_reports.write(xml, "RejectedReports");
        });
        xml.within("Entries", |xml| {
            xml.element("Watermark", &watermark);
            entries(xml);
        });
    }
}

impl PersonStatistics {
    pub(super) fn write(&self, xml: &mut Writer, name: &str) {
        xml.open(name);
        self.common.write(xml, |xml| {
            let accounts = self.registered_accounts;
            xml.element("RegisteredAccounts", &accounts.to_string());
        });
        xml.close(name);
    }
}

impl KeyStatistics {
    pub(super) fn write(&self, xml: &mut Writer, name: &str) {
        xml.open(name);
        self.common.write(xml, |xml| {
            self.distinct_accounts.write(xml, "DistinctAccounts");
        });
        xml.close(name);
    }
}

/// Writes the response to getEntryStatistics: the statistics of the key and of its owner.
pub(crate) fn entry_statistics_response(
    head: &ResponseHead,
    key: &str,
    of_key: &KeyStatistics,
    of_owner: &PersonStatistics,
) -> String {
    let mut envelope = Envelope::new("GetEntryStatisticsResponse", head, 3_000);
    envelope.xml().element("Key", key);
    of_key.write(envelope.xml(), "KeyStatistics");
    of_owner.write(envelope.xml(), "OwnerStatistics");
    envelope.finish()
}

/// Writes the response to getPersonStatistics.
pub(crate) fn person_statistics_response(
    head: &ResponseHead,
    tax_id: &str,
    of_person: &PersonStatistics,
) -> String {
    let mut envelope = Envelope::new("GetPersonStatisticsResponse", head, 1_800);
    envelope.xml().element("TaxIdNumber", tax_id);
    of_person.write(envelope.xml(), "PersonStatistics");
    envelope.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_as_in_the_published_example() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let windows = Windows::at(at("2023-11-17T17:00:00Z"));
        assert_eq!(
            windows,
            Windows {
                d90: [at("2023-08-20T03:00:00Z"), at("2023-11-17T17:00:00Z")],
                m12: [at("2022-11-01T03:00:00Z"), at("2023-11-01T03:00:00Z")],
                m60: [at("2018-11-01T03:00:00Z"), at("2023-11-01T03:00:00Z")],
            }
        );
        assert_eq!(SETTLEMENTS_FROM, at("2023-11-05T03:00:00Z"));
        // Before three o'clock it is still the day, and the month, before.
        let early = Windows::at(at("2023-12-01T02:59:59Z"));
        assert_eq!(early.m12[1], at("2023-11-01T03:00:00Z"));
    }
}
