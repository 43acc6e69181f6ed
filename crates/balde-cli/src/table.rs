//! Tables of text, and formats for numbers and durations.

/// Formats a table with columns as wide as their cells; columns of numbers are right-aligned.
pub(crate) fn aligned<const N: usize>(
    titles: [&str; N],
    is_number: [bool; N],
    rows: &[[String; N]],
) -> String {
    let mut widths = titles.map(|title| title.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |cells: [&str; N]| {
        let mut line = String::new();
        for (index, cell) in cells.iter().enumerate() {
            let fill = " ".repeat(widths[index] - cell.chars().count());
            let gap = if index == 0 { "" } else { "  " };
            line.push_str(gap);
            let (left, right) = if is_number[index] {
                (fill.as_str(), "")
            } else {
                ("", fill.as_str())
            };
            line.push_str(left);
            line.push_str(cell);
            line.push_str(right);
        }
        format!("{}\n", line.trim_end())
    };
    let rules = widths.map(|width| "-".repeat(width));
    let mut text = line(titles) + &line(rules.each_ref().map(String::as_str));
    for row in rows {
        text.push_str(&line(row.each_ref().map(String::as_str)));
    }
    text
}

/// Formats 36050000 as `36,050,000`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats microseconds as `1 h 40 min`.
pub(crate) fn duration(us: u64) -> String {
    const UNITS: [(u64, &str); 6] = [
        (86_400_000_000, "d"),
        (3_600_000_000, "h"),
        (60_000_000, "min"),
        (1_000_000, "s"),
        (1_000, "ms"),
        (1, "us"),
    ];
    let mut rest = us;
    let mut words = Vec::new();
    for (unit, name) in UNITS {
        if rest >= unit {
            words.push(format!("{} {name}", rest / unit));
            rest %= unit;
        }
    }
    if words.is_empty() {
        words.push("0 s".to_owned());
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_durations_are_formatted() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (2_930, "2,930"),
            (36_050_000, "36,050,000"),
        ] {
            assert_eq!(grouped(number), text);
        }
        for (us, text) in [
            (0, "0 s"),
            (1_500_000, "1 s 500 ms"),
            (120_000_000, "2 min"),
            (432_000_000_000, "5 d"),
            (6_000_000_001, "1 h 40 min 1 us"),
        ] {
            assert_eq!(duration(us), text);
        }
    }
}
