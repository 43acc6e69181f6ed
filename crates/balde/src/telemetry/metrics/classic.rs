//! The Prometheus text format, version 0.0.4, which every Prometheus and `promtool` can read.
//!
//! The registry's library writes the newer `OpenMetrics` format. It differs in a few lines, such as
//! the names of counters and the end marker, and those lines are rewritten here.

/// Converts `OpenMetrics` text to the classic text format.
pub(super) fn from_openmetrics(text: &str) -> String {
    let mut classic = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            // The help text comes before the type, but the type determines the name.
            help = described.split_once(' ');
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|described| described.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, text)) = help.take().filter(|(helped, _)| *helped == name) {
                push(&mut classic, &["# HELP ", name, suffix, " ", text, "\n"]);
            }
            push(&mut classic, &["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            push(&mut classic, &[without_exemplar(line), "\n"]);
        }
    }
    classic
}

fn push(text: &mut String, parts: &[&str]) {
    for part in parts {
        text.push_str(part);
    }
}

/// Removes the exemplar, which the classic format does not have: it begins with a `#` outside quotes.
fn without_exemplar(sample: &str) -> &str {
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (at, byte) in sample.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b'#' if !is_quoted => return sample[..at].trim_end(),
            _ => {}
        }
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_get_their_suffix_and_other_lines_are_kept() {
        let openmetrics = "\
# HELP checks Checks so far.
# TYPE checks counter
checks_total{policy=\"a # b \\\" # \"} 3 # {trace_id=\"1\"} 1.0
# HELP size_bytes How large.
# TYPE size_bytes gauge
# UNIT size_bytes bytes
size_bytes 7
# TYPE build info
build_info{version=\"1\"} 1
# EOF
";
        let classic = "\
# HELP checks_total Checks so far.
# TYPE checks_total counter
checks_total{policy=\"a # b \\\" # \"} 3
# HELP size_bytes How large.
# TYPE size_bytes gauge
size_bytes 7
# TYPE build_info gauge
build_info{version=\"1\"} 1
";
        assert_eq!(from_openmetrics(openmetrics), classic);
    }
}
