//! Statistics as version 1.8.0 has them: counters of the last 3 days, 30 days and 6 months.

use balde_dict::wire::{Timestamp, Writer};
use jiff::{Span, tz::TimeZone};

use super::envelope::{Envelope, ResponseHead};

const DAY_MS: u64 = 86_400_000;

/// The three periods: the last 3 and 30 days, and the 6 months before the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterWindows {
    now: Timestamp,
    m6: [Timestamp; 2],
}

impl CounterWindows {
    pub(crate) fn at(now: Timestamp) -> Self {
        let ms = i64::try_from(now.ms()).unwrap_or(i64::MAX);
        let instant = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        let month = instant.to_zoned(TimeZone::UTC).date().first_of_month();
        let start = |months: i32| {
            let date = month.saturating_sub(Span::new().months(months));
            let zoned = date.at(0, 0, 0, 0).to_zoned(TimeZone::UTC);
            let ms = zoned.map_or(0, |zoned| zoned.timestamp().as_millisecond());
            Timestamp::from_ms(u64::try_from(ms).unwrap_or(0))
        };
        Self {
            now,
            m6: [start(6), start(0)],
        }
    }

    /// The earliest time that any period contains.
    pub(crate) fn start(&self) -> Timestamp {
        self.m6[0].min(self.now.minus_ms(30 * DAY_MS))
    }
}

/// The number of events in each period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counter {
    d3: u64,
    d30: u64,
    m6: u64,
}

impl Counter {
    /// Counts an event.
    pub(crate) fn add(&mut self, at: Timestamp, windows: &CounterWindows) {
        let within = |days: u64| at <= windows.now && at > windows.now.minus_ms(days * DAY_MS);
        self.d3 += u64::from(within(3));
        self.d30 += u64::from(within(30));
        self.m6 += u64::from(at >= windows.m6[0] && at < windows.m6[1]);
    }

    fn plus(self, other: Self) -> Self {
        Self {
            d3: self.d3 + other.d3,
            d30: self.d30 + other.d30,
            m6: self.m6 + other.m6,
        }
    }

    fn quantised(self) -> Self {
        Self {
            d3: quantised(self.d3),
            d30: quantised(self.d30),
            m6: quantised(self.m6),
        }
    }

    fn write(self, xml: &mut Writer, kind: &str, by: Option<&str>) {
        xml.raw("<Counter type=\"").raw(kind).raw("\"");
        if let Some(by) = by {
            xml.raw(" by=\"").raw(by).raw("\"");
        }
        for (window, count) in [("d3", self.d3), ("d30", self.d30), ("m6", self.m6)] {
            xml.raw(" ")
                .raw(window)
                .raw("=\"")
                .raw(&count.to_string())
                .raw("\"");
        }
        xml.raw("/>");
    }
}

/// Rounds up to the scale 0, 1, 5, 10, 50, 100, 500 and so on.
fn quantised(count: u64) -> u64 {
    let mut step = 1_u64;
    let mut factor = 5;
    while count > step {
        step = step.saturating_mul(factor);
        factor = if factor == 5 { 2 } else { 5 };
        if step == u64::MAX {
            break;
        }
    }
    if count == 0 { 0 } else { step }
}

/// What happened to a key, an owner or an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Payments received.
    pub(crate) settlements: Counter,
    /// Infraction reports that were not cancelled.
    pub(crate) reported: Counter,
    /// Reports that the counterparty agreed with.
    pub(crate) confirmed: Counter,
    /// Reports that the counterparty disagreed with.
    pub(crate) rejected: Counter,
}

impl Counters {
    /// Adds those of another subject.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            settlements: self.settlements.plus(other.settlements),
            reported: self.reported.plus(other.reported),
            confirmed: self.confirmed.plus(other.confirmed),
            rejected: self.rejected.plus(other.rejected),
        }
    }
}

/// The counters of an entry: of its key, its owner and its account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryCounters {
    pub(crate) updated: Timestamp,
    pub(crate) key: Counters,
    pub(crate) owner: Counters,
    pub(crate) account: Counters,
}

/// Writes the response of version 1.8.0 to getEntry and getEntryInitiator.
pub(crate) fn entry_with_counters_response(
    head: &ResponseHead,
    entry_xml: &str,
    counters: &EntryCounters,
) -> String {
    let mut envelope = Envelope::new("GetEntryResponse", head, 1_400 + entry_xml.len());
    envelope.xml().raw(entry_xml);
    envelope.xml().within("Statistics", |xml| {
        xml.element("LastUpdated", &counters.updated.to_string());
        xml.within("Counters", |xml| {
            let subjects = [
                ("KEY", &counters.key),
                ("OWNER", &counters.owner),
                ("ACCOUNT", &counters.account),
            ];
            // Only the number of payments is quantised.
            for (by, own) in subjects {
                own.settlements
                    .quantised()
                    .write(xml, "SETTLEMENTS", Some(by));
            }
            for (by, own) in subjects {
                own.reported.write(xml, "REPORTED_FRAUDS", Some(by));
            }
            for (by, own) in subjects {
                own.confirmed.write(xml, "CONFIRMED_FRAUDS", Some(by));
            }
        });
    });
    envelope.finish()
}

/// Writes the response of version 1.8.0 to getOwnerStatistics.
pub(crate) fn owner_statistics_response(
    head: &ResponseHead,
    tax_id: &str,
    (updated, counters): &(Timestamp, Counters),
) -> String {
    let mut envelope = Envelope::new("GetOwnerStatisticsResponse", head, 800);
    envelope.xml().within("OwnerStatistics", |xml| {
        xml.element("TaxIdNumber", tax_id)
            .element("LastUpdated", &updated.to_string());
        xml.within("Counters", |xml| {
            for (kind, counter) in [
                ("SETTLEMENTS", counters.settlements),
                ("REPORTED_FRAUDS", counters.reported),
                ("CONFIRMED_FRAUDS", counters.confirmed),
                ("REJECTED", counters.rejected),
            ] {
                counter.write(xml, kind, None);
            }
        });
    });
    envelope.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_fall_into_their_periods() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let windows = CounterWindows::at(at("2023-11-17T17:00:00Z"));
        let count = |text: &str| {
            let mut counter = Counter::default();
            counter.add(at(text), &windows);
            (counter.d3, counter.d30, counter.m6)
        };
        assert_eq!(count("2023-11-17T17:00:00Z"), (1, 1, 0));
        assert_eq!(count("2023-11-17T17:00:01Z"), (0, 0, 0));
        assert_eq!(count("2023-11-14T17:00:01Z"), (1, 1, 0));
        assert_eq!(count("2023-11-14T17:00:00Z"), (0, 1, 0));
        assert_eq!(count("2023-10-31T23:59:59Z"), (0, 1, 1));
        assert_eq!(count("2023-05-01T00:00:00Z"), (0, 0, 1));
        assert_eq!(count("2023-04-30T23:59:59Z"), (0, 0, 0));
    }

    #[test]
    fn payments_are_rounded_up_to_the_published_scale() {
        for (count, expected) in [
            (0, 0),
            (1, 1),
            (2, 5),
            (3, 5),
            (5, 5),
            (6, 10),
            (11, 50),
            (190, 500),
            (501, 1_000),
            (4_999, 5_000),
        ] {
            assert_eq!(quantised(count), expected, "{count}");
        }
        assert_eq!(quantised(u64::MAX), u64::MAX);
    }
}
