//! One field of a cron expression: a set of numbers below 64.

use std::fmt;

/// A field of a cron expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CronField {
    /// 0 to 59.
    Minute,
    /// 0 to 23.
    Hour,
    /// 1 to 31.
    DayOfMonth,
    /// 1 to 12, or JAN to DEC.
    Month,
    /// 0 to 7, or SUN to SAT; both 0 and 7 are Sunday.
    DayOfWeek,
}

impl CronField {
    pub(crate) const ALL: [Self; 5] = [
        Self::Minute,
        Self::Hour,
        Self::DayOfMonth,
        Self::Month,
        Self::DayOfWeek,
    ];

    const fn range(self) -> (u8, u8) {
        match self {
            Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 31),
            Self::Month => (1, 12),
            Self::DayOfWeek => (0, 7),
        }
    }

    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Month => &[
                "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
            ],
            Self::DayOfWeek => &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
            _ => &[],
        }
    }
}

impl fmt::Display for CronField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
        })
    }
}

/// The values of one field as a bit set, and whether the field begins with a star.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldValues {
    bits: u64,
    pub(crate) is_star: bool,
}

impl FieldValues {
    /// Parses a list of values, ranges and steps. The error says what is wrong.
    pub(crate) fn parse(field: CronField, text: &str) -> Result<Self, String> {
        let mut bits = 0;
        for item in text.split(',') {
            bits |= parse_item(field, item)?;
        }
        if field == CronField::DayOfWeek && bits & (1 << 7) != 0 {
            bits = bits & !(1 << 7) | 1;
        }
        Ok(Self {
            bits,
            is_star: text.starts_with('*'),
        })
    }

    pub(crate) const fn has(self, value: u8) -> bool {
        value < 64 && self.bits >> value & 1 == 1
    }

    /// The values from `from` upwards, ascending.
    pub(crate) fn from(self, from: u8) -> impl Iterator<Item = u8> {
        (from..64).filter(move |&value| self.has(value))
    }
}

fn parse_item(field: CronField, item: &str) -> Result<u64, String> {
    let (least, most) = field.range();
    let (range, step) = match item.split_once('/') {
        Some((range, step)) => {
            let step = number(step).filter(|step| (1..=most).contains(step));
            let step = step.ok_or_else(|| format!("the step of `{item}` is not 1 to {most}"))?;
            (range, Some(step))
        }
        None => (item, None),
    };
    let (from, to) = if range == "*" {
        // 7 is left out, so that Sunday is in the week once and steps count from it.
        (
            least,
            if field == CronField::DayOfWeek {
                6
            } else {
                most
            },
        )
    } else if let Some((from, to)) = range.split_once('-') {
        (value(field, from)?, value(field, to)?)
    } else {
        let from = value(field, range)?;
        if step.is_some() {
            return Err(format!(
                "`{item}` steps through a single value; write {from}-{most}/… or */…"
            ));
        }
        (from, from)
    };
    if from > to {
        return Err(format!("`{range}` runs backwards; write two ranges"));
    }
    let values = (from..=to).step_by(usize::from(step.unwrap_or(1)));
    Ok(values.fold(0, |bits, value| bits | 1 << value))
}

fn value(field: CronField, text: &str) -> Result<u8, String> {
    let (least, most) = field.range();
    let named = field
        .names()
        .iter()
        .zip(least..)
        .find(|(name, _)| name.eq_ignore_ascii_case(text))
        .map(|(_, value)| value);
    named
        .or_else(|| number(text))
        .filter(|value| (least..=most).contains(value))
        .ok_or_else(|| match field.names() {
            [] => format!("`{text}` is not {least} to {most}"),
            [first, .., last] => format!("`{text}` is not {least} to {most} or {first} to {last}"),
            [only] => format!("`{text}` is not {only}"),
        })
}

/// Parses a number of one or two digits, without sign or spaces.
fn number(text: &str) -> Option<u8> {
    let is_plain = (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if is_plain { text.parse().ok() } else { None }
}
