//! What the packages (.deb and .rpm) contain, by the metadata in this crate's Cargo.toml.
//!
//! scripts/test-packages.sh, which takes minutes, builds on it: it installs the packages that
//! scripts/build-packages.sh has made. For the sake of time it is usually run on packages of the debug
//! binary (`scripts/build-packages.sh --no-build target/debug`): files, units and scripts are those of a
//! release, and the binary is the same program, but not the one of the profile `dist` that a release
//! contains; without arguments, scripts/build-packages.sh builds that one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().unwrap()
}

/// The lines of the assets below a section of the manifest.
fn assets(section: &str) -> Vec<String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest = fs::read_to_string(manifest).unwrap();
    let (_, from) = manifest.split_once(&format!("[{section}]\n")).unwrap();
    let (_, from) = from.split_once("assets = [\n").unwrap();
    let list = from.split_once("\n]").unwrap().0;
    list.lines().map(str::to_owned).collect()
}

fn strings(line: &str) -> Vec<String> {
    line.split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// The files that a pattern with at most one `*` finds, relative to the repository.
fn files(pattern: &str) -> Vec<String> {
    let Some((before, after)) = pattern.split_once('*') else {
        return vec![pattern.to_owned()];
    };
    let (folder, begin) = before.rsplit_once('/').unwrap();
    let entries = fs::read_dir(repository().join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.starts_with(begin) && name.ends_with(after))
        .map(|name| format!("{folder}/{name}"))
        .collect()
}

/// Where every file of a package goes, and from where it comes, with its mode.
fn content(lines: &[(String, String, String)]) -> BTreeMap<String, (String, String)> {
    let mut content = BTreeMap::new();
    for (source, destination, mode) in lines {
        let sources = files(source);
        assert!(!sources.is_empty(), "{source} finds nothing");
        for source in sources {
            // The binary, and what scripts/build-packages.sh writes.
            let is_made = source.starts_with("target/");
            assert!(
                is_made || repository().join(&source).is_file(),
                "{source} does not exist"
            );
            let name = Path::new(&source).file_name().unwrap().to_str().unwrap();
            let destination = match destination.strip_suffix('/') {
                Some(folder) => format!("{folder}/{name}"),
                None => destination.clone(),
            };
            let before = content.insert(destination.clone(), (source, mode.clone()));
            assert!(before.is_none(), "{destination} twice");
        }
    }
    content
}

#[test]
fn both_packages_have_the_same_files_and_all_of_them_exist() {
    let deb: Vec<_> = assets("package.metadata.deb")
        .iter()
        .map(|line| {
            let [source, destination, mode] = &strings(line)[..] else {
                panic!("{line}");
            };
            let source = source.strip_prefix("../../").unwrap_or(source);
            (source.to_owned(), format!("/{destination}"), mode.clone())
        })
        .collect();
    let rpm: Vec<_> = assets("package.metadata.generate-rpm")
        .iter()
        .map(|line| {
            let [source, destination, mode] = &strings(line)[..] else {
                panic!("{line}");
            };
            (source.clone(), destination.clone(), mode.clone())
        })
        .collect();
    let (deb, rpm) = (content(&deb), content(&rpm));
    assert_eq!(deb, rpm);
    assert_eq!(deb["/usr/bin/balde"].1, "755");
    for unit in ["gateway", "monitor", "serve", "simulator"] {
        assert!(deb.contains_key(&format!("/usr/lib/systemd/system/balde-{unit}.service")));
    }
    // Every rule and dashboard, and an example of every file that the services read.
    for (folder, installed) in [
        ("deploy/grafana/*.json", "/usr/share/balde/grafana"),
        (
            "deploy/prometheus/balde-*rules.yml",
            "/usr/share/balde/prometheus",
        ),
        ("docs/*.toml", "/usr/share/doc/balde/examples"),
    ] {
        for file in files(folder) {
            let name = file.rsplit_once('/').unwrap().1;
            assert!(
                deb.contains_key(&format!("{installed}/{name}")),
                "{file} is in no package"
            );
        }
    }
}

#[test]
fn the_scripts_of_the_packages_can_be_read() {
    let mut scripts = vec![
        "scripts/build-packages.sh".to_owned(),
        "scripts/test-packages.sh".to_owned(),
    ];
    scripts.extend(files("deploy/packages/deb/p*"));
    assert!(scripts.len() >= 5, "{scripts:?}");
    for script in scripts {
        let output = Command::new("bash")
            .arg("-n")
            .arg(repository().join(&script))
            .output();
        let output = output.unwrap();
        assert!(
            output.status.success(),
            "{script}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
