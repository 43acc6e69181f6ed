//! The dashboards of deploy/grafana, held to the models that Grafana publishes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

const CHECK: &str = include_str!("grafana_models.py");

fn dashboards() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/grafana");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect()
}

/// The faults of files, line by line. Nothing, and loudly so, where the models are missing; a panic where
/// `BALDE_REQUIRE_SERVICES=1` says that they must be there.
fn faults(files: &[PathBuf]) -> Option<Vec<String>> {
    let tools = env::var_os("BALDE_TEST_TOOLS").map(PathBuf::from);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let python = tools
        .unwrap_or_else(|| target.join("test-tools"))
        .join("bin/python");
    let probe = Command::new(&python)
        .args(["-c", "import grafana_foundation_sdk"])
        .stderr(Stdio::null())
        .status();
    if !probe.is_ok_and(|status| status.success()) {
        let what = format!(
            "grafana-foundation-sdk is not there for {}",
            python.display()
        );
        assert!(
            env::var("BALDE_REQUIRE_SERVICES").as_deref() != Ok("1"),
            "{what}, and BALDE_REQUIRE_SERVICES=1; scripts/test.sh installs it"
        );
        eprintln!("\n*** SKIPPED: {what}, so this test tested NOTHING ***\n");
        return None;
    }
    let output = Command::new(&python)
        .args(["-c", CHECK])
        .args(files)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines = String::from_utf8(output.stdout).unwrap();
    Some(lines.lines().map(str::to_owned).collect())
}

#[test]
fn every_dashboard_is_what_grafana_publishes() {
    let files = dashboards();
    assert!(files.len() >= 3, "{files:?}");
    if let Some(faults) = faults(&files) {
        assert_eq!(faults, [""; 0]);
    }
}

/// A check that accepts everything would prove nothing.
#[test]
fn mistakes_in_a_dashboard_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.json");
    let right = dashboards()
        .into_iter()
        .find(|path| path.ends_with("balde-gateway.json"));
    let text = fs::read_to_string(right.unwrap()).unwrap();
    let mut dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    dashboard["schemaVersion"] = "39".into();
    dashboard["panels"][0]["optoins"] = serde_json::json!({});
    dashboard["panels"][1]["gridPos"]["w"] = "4".into();
    dashboard["panels"][2]["options"]["colorMode"] = "rainbow".into();
    dashboard["panels"][3]["targets"][0]["exprr"] = "x".into();
    fs::write(&file, dashboard.to_string()).unwrap();
    let Some(faults) = faults(&[file]) else {
        return;
    };
    for part in ["schemaVersion", "optoins", "gridPos.w", "rainbow", "exprr"] {
        assert!(
            faults.iter().any(|fault| fault.contains(part)),
            "{part}: {faults:?}"
        );
    }
    assert_eq!(faults.len(), 5, "{faults:?}");
}
