//! axe-core in a browser.

use serde_json::Value;

use crate::driver::Browser;

/// axe-core 4, unmodified: <https://github.com/dequelabs/axe-core>, MPL-2.0.
const AXE: &str = include_str!("axe.min.js");

/// What axe-core finds on the page, of which nothing may be serious or critical.
pub(crate) async fn serious_issues(browser: &Browser, case: &str) -> Vec<String> {
    // The pages are one document, in which it stays.
    if browser.evaluate("!window.axe").await == true {
        browser.run(AXE, &[]).await;
    }
    let results = browser
        .run("return axe.run({ resultTypes: ['violations'] });", &[])
        .await;
    assert!(
        !results["passes"].as_array().unwrap().is_empty(),
        "axe has run"
    );
    let mut serious = Vec::new();
    for violation in results["violations"].as_array().unwrap() {
        let impact = violation["impact"].as_str().unwrap_or_default();
        let line = format!("{case} {impact}: {}", summary(violation));
        println!("{line}");
        if matches!(impact, "serious" | "critical") {
            serious.push(line);
        }
    }
    serious
}

fn summary(violation: &Value) -> String {
    let node = &violation["nodes"][0];
    format!(
        "{} {} {}",
        violation["id"], node["html"], node["failureSummary"]
    )
}
