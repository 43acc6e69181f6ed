//! Shares and sizes as people write them: `25%`, `10 MiB`.

use std::ops::RangeInclusive;

use super::value::{Located, Value};
use crate::diagnostic::Diagnostics;

/// Units of sizes, the largest first.
const SIZES: [(&str, u64); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

impl Value<'_> {
    /// The value as a share in whole percent, such as `25%`. One outside of `range` is reported.
    pub fn percent(
        &self,
        range: RangeInclusive<u64>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Located<u64>> {
        if let Some(number) = self.as_number() {
            let message = format!("{} is a share: write \"{number}%\"", self.subject());
            diagnostics.at(self.span(), message);
            return None;
        }
        let text = self.string(diagnostics)?;
        let number = text.value.trim().strip_suffix('%');
        let percent = number.and_then(|number| number.trim_end().parse().ok());
        let percent = percent.filter(|percent| range.contains(percent));
        if percent.is_none() {
            let (least, most) = range.into_inner();
            let subject = self.subject();
            let message = format!("{subject} must be a share of \"{least}%\" to \"{most}%\"");
            diagnostics.at(text.span, message);
        }
        percent.map(|percent| text.map(|_| percent))
    }

    /// The value as a number of bytes, such as `10 MiB`. One outside of `range` is reported.
    pub fn size(
        &self,
        range: RangeInclusive<u64>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Located<u64>> {
        let text = self.string(diagnostics)?;
        let bytes = parse_size(text.value).filter(|bytes| range.contains(bytes));
        if bytes.is_none() {
            let (least, most) = (format_size(*range.start()), format_size(*range.end()));
            let subject = self.subject();
            let message = format!(
                "{subject} must be a size of \"{least}\" to \"{most}\", in B, KiB, MiB or GiB"
            );
            diagnostics.at(text.span, message);
        }
        bytes.map(|bytes| text.map(|_| bytes))
    }
}

fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (unit, bytes) = SIZES.iter().find(|(unit, _)| text.ends_with(unit))?;
    let number = text.strip_suffix(unit)?.trim_end();
    number.parse::<u64>().ok()?.checked_mul(*bytes)
}

/// A number of bytes in the largest unit that has no fraction.
pub(super) fn format_size(bytes: u64) -> String {
    let fits = |(_, unit): &&(&str, u64)| bytes >= *unit && bytes.is_multiple_of(*unit);
    let (unit, of) = SIZES.iter().find(fits).unwrap_or(&("B", 1));
    format!("{} {unit}", bytes / of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_number_and_a_unit() {
        for (text, bytes) in [
            ("0 B", 0),
            ("512 B", 512),
            ("64KiB", 65_536),
            (" 10 MiB ", 10 << 20),
            ("2 GiB", 2 << 30),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
            assert_eq!(parse_size(&format_size(bytes)), Some(bytes));
        }
        for text in [
            "",
            "10",
            "MiB",
            "1.5 MiB",
            "-1 B",
            "1 MB",
            "99999999999 GiB",
        ] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }
}
