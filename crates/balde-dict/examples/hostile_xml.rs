//! What it costs to read documents that are made to cost much, beside a plain parse of the same bytes
//! by quick-xml. Prints nanoseconds of processor time per byte, and their ratio.

use std::hint::black_box;
use std::time::{Duration, Instant};

use balde_dict::wire::Problem;
use quick_xml::Reader;
use quick_xml::events::Event;

/// How long each document is read, each way.
const ROUND: Duration = Duration::from_millis(300);

fn main() {
    let attributes: Vec<String> = (0..32).map(|n| format!(" a{n}='&#233;'")).collect();
    let attributes = attributes.concat();
    let documents = [
        ("a problem", Problem::rate_limited().to_xml()),
        ("many elements", format!("<a>{}</a>", "<b/>".repeat(19_999))),
        (
            "many elements, then unclosed",
            format!("<a>{}", "é<b/>".repeat(43_000)),
        ),
        (
            "elements and lines",
            format!("<a>{}</a>", "é\n<b/>".repeat(19_999)),
        ),
        ("one long line", format!("<a>{}</a>", "漢".repeat(340_000))),
        ("references", format!("<a>{}</a>", "&#233;".repeat(40_000))),
        (
            "attributes",
            format!("<a>{}</a>", format!("<b{attributes}/>").repeat(500)),
        ),
        ("comments", format!("<a>{}</a>", "<!-- -->".repeat(30_000))),
        ("end tags missing", "<a>".repeat(80_000)),
    ];
    println!("| document | bytes | plain parse ns/byte | balde ns/byte | ratio |");
    println!("|--|--|--|--|--|");
    for (name, document) in &documents {
        let plain = nanoseconds_per_byte(document, plain_parse);
        let ours = nanoseconds_per_byte(document, |text| {
            black_box(Problem::read(text.as_bytes()).is_ok());
        });
        let (bytes, ratio) = (document.len(), ours / plain);
        println!("| {name} | {bytes} | {plain:.2} | {ours:.2} | {ratio:.1} |");
    }
}

fn nanoseconds_per_byte(document: &str, read: impl Fn(&str)) -> f64 {
    let (begun, begun_here) = (Instant::now(), processor_time());
    let mut bytes = 0_u32;
    while begun.elapsed() < ROUND {
        read(black_box(document));
        bytes = bytes.saturating_add(u32::try_from(document.len()).unwrap_or(u32::MAX));
    }
    let spent = match (begun_here, processor_time()) {
        (Some(begun), Some(ended)) => ended.saturating_sub(begun),
        _ => begun.elapsed(),
    };
    spent.as_secs_f64() * 1e9 / f64::from(bytes)
}

/// The time that this thread has run, which other processes do not add to; Linux only.
fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// Reads all events, and nothing else, up to the first error.
fn plain_parse(text: &str) {
    let mut reader = Reader::from_str(text);
    while let Ok(event) = reader.read_event() {
        if matches!(black_box(event), Event::Eof) {
            return;
        }
    }
}
