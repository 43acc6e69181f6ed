//! Reports as JUnit XML, which build servers show.

use balde_dict::wire::Writer;

use super::report::{Report, Verdict};

/// Writes a JUnit document with one suite for each address.
pub fn to_junit(reports: &[Report]) -> String {
    let mut xml = Writer::document(4_096);
    xml.open("testsuites");
    for report in reports {
        let failures = report
            .failed()
            .filter(|step| !matches!(step.verdict, Verdict::NotRun(_)));
        let skipped = report
            .failed()
            .filter(|step| matches!(step.verdict, Verdict::NotRun(_)));
        let counts = [report.steps.len(), failures.count(), skipped.count()];
        let [tests, failures, skipped] = counts.map(|count| count.to_string());
        start(
            &mut xml,
            "testsuite",
            &[
                ("name", &report.url),
                ("tests", &tests),
                ("failures", &failures),
                ("skipped", &skipped),
            ],
        );
        for step in &report.steps {
            let class = [("classname", step.chapter), ("name", step.name)];
            start(&mut xml, "testcase", &class);
            match &step.verdict {
                Verdict::AsPublished => {}
                Verdict::NotRun(reason) => {
                    start(&mut xml, "skipped", &[("message", reason)]);
                    xml.close("skipped");
                }
                Verdict::Differs(differences) => {
                    start(&mut xml, "failure", &[("message", &differences.join("; "))]);
                    xml.text(&format!(
                        "Published: {} ({})\n\n{}\n\n{}",
                        step.sentence, step.source, step.request, step.answer
                    ));
                    xml.close("failure");
                }
            }
            xml.close("testcase");
        }
        xml.close("testsuite");
    }
    xml.close("testsuites");
    xml.finish()
}

fn start(xml: &mut Writer, name: &str, attributes: &[(&str, &str)]) {
    xml.raw("<").raw(name);
    for (name, value) in attributes {
        xml.raw(" ").raw(name).raw("=\"").text(value).raw("\"");
    }
    xml.raw(">");
}
