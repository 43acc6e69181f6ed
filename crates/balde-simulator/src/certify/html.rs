//! Reports as a page.

use balde_dict::wire::Writer;

use super::report::{Difference, Report, Verdict};

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:60rem;margin:2rem auto;\
padding:0 1rem}pre{background:#f4f4f4;padding:.6rem;overflow:auto;white-space:pre-wrap}\
.ok{color:#146c2e}.differs{color:#b3261e}.skipped{color:#8a5a00}summary{cursor:pointer}\
li{margin:.2rem 0}";

/// Writes a page with the reports and, of two, the steps that they answered differently.
pub fn to_html(reports: &[Report], differences: &[Difference]) -> String {
    let mut page = Writer::fragment();
    page.raw("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>");
    page.raw("<title>balde certify</title><style>")
        .raw(STYLE)
        .raw("</style></head><body>");
    page.element("h1", "DICT conversation");
    if reports.len() > 1 {
        page.element("h2", "Where the two addresses differ");
        page.open("ul");
        for difference in differences {
            page.element("li", &format!("{}: {}", difference.name, difference.text));
        }
        page.close("ul");
        if differences.is_empty() {
            page.element("p", "Nowhere.");
        }
    }
    for report in reports {
        page.element("h2", &report.url);
        let failed = report.failed().count();
        let all = report.steps.len();
        page.element(
            "p",
            &format!("{} of {all} answers are as published.", all - failed),
        );
        let mut chapter = "";
        for step in &report.steps {
            if step.chapter != chapter {
                chapter = step.chapter;
                page.element("h3", chapter);
            }
            let (class, word) = match &step.verdict {
                Verdict::AsPublished => ("ok", "as published"),
                Verdict::Differs(_) => ("differs", "differs"),
                Verdict::NotRun(_) => ("skipped", "not run"),
            };
            page.raw("<details><summary><b class=\"")
                .raw(class)
                .raw("\">");
            page.text(word)
                .raw("</b> ")
                .text(step.name)
                .raw("</summary>");
            page.element("p", &format!("{} ({})", step.sentence, step.source));
            match &step.verdict {
                Verdict::AsPublished => {}
                Verdict::NotRun(reason) => {
                    page.element("p", reason);
                }
                Verdict::Differs(found) => {
                    page.within("ul", |page| {
                        for difference in found {
                            page.element("li", difference);
                        }
                    });
                }
            }
            page.element("pre", &step.request)
                .element("pre", &step.answer);
            page.close("details");
        }
    }
    page.raw("</body></html>\n");
    page.finish()
}
