//! A picture of what runs where.

use std::fmt::Write as _;

use super::Addresses;

/// Draws who talks to whom, with the addresses.
pub(super) fn picture(addresses: &Addresses, has_traffic: bool) -> String {
    let Addresses {
        dict,
        gateway,
        state,
        page,
    } = addresses;
    let gateway = [
        "gateway".to_owned(),
        format!("http://{gateway}/api/v2/"),
        "refuses what DICT would refuse".to_owned(),
    ];
    let dict = [
        "DICT, simulated".to_owned(),
        format!("http://{dict}/api/v2/"),
        "its buckets are at /sim/".to_owned(),
    ];
    let monitor = [
        "monitor and its page".to_owned(),
        format!("http://{page}/"),
        "/metrics, /api/v1/states".to_owned(),
    ];
    let left = width(&gateway).max(width(&monitor));
    let right = width(&dict);
    let (left_rule, right_rule) = (rule(left), rule(right));

    let mut text = String::new();
    // Writing to a string cannot fail.
    let mut line = |line: &str| {
        let _ = writeln!(text, "  {}", line.trim_end());
    };
    if has_traffic {
        line("traffic: payers all day, a scan twice an hour, a batch job every 15 minutes");
        line("    |");
        line("    v");
    }
    line(&format!("{left_rule}       {right_rule}"));
    for (row, (gateway, dict)) in gateway.iter().zip(&dict).enumerate() {
        let arrow = if row == 1 { " ----> " } else { "       " };
        line(&format!("| {gateway:<left$} |{arrow}| {dict:<right$} |"));
    }
    line(&format!("{left_rule}       {right_rule}"));
    line("    ^");
    line(&format!("    |  reads http://{state}/balde/states"));
    line("    |");
    line(&left_rule);
    for (row, monitor) in monitor.iter().enumerate() {
        let arrow = if row == 1 {
            " <---- open this in a browser"
        } else {
            ""
        };
        line(&format!("| {monitor:<left$} |{arrow}"));
    }
    line(&left_rule);
    text
}

fn width(lines: &[String]) -> usize {
    lines
        .iter()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0)
}

fn rule(width: usize) -> String {
    format!("+{}+", "-".repeat(width + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(host: &str) -> Addresses {
        let at = |port: u16| format!("{host}:{port}").parse().unwrap();
        Addresses {
            dict: at(8085),
            gateway: at(8080),
            state: at(8090),
            page: at(9180),
        }
    }

    #[test]
    fn all_addresses_are_in_the_picture_and_it_fits_on_a_terminal() {
        let text = picture(&addresses("127.0.0.1"), true);
        for expected in [
            "| http://127.0.0.1:8080/api/v2/  | ----> | http://127.0.0.1:8085/api/v2/ |",
            "|  reads http://127.0.0.1:8090/balde/states",
            "| http://127.0.0.1:9180/         | <---- open this in a browser",
            "traffic: payers",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        assert!(text.is_ascii());
        let widest = text.lines().map(str::len).max();
        assert!(widest <= Some(80), "{widest:?}\n{text}");
        assert!(text.lines().all(|line| line.trim_end() == line));
        assert!(!picture(&addresses("127.0.0.1"), false).contains("traffic"));
    }

    #[test]
    fn boxes_fit_long_addresses() {
        let text = picture(&addresses("[2001:db8:1111:2222:3333:4444:5555:6666]"), true);
        let ends: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("  +") || line.starts_with("  | "))
            .map(|line| line[3..].find(['+', '|']))
            .collect();
        assert_eq!(ends.len(), 10);
        assert!(ends.iter().all(|end| *end == ends[0]), "{text}");
    }
}
