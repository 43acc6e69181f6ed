//! Every file of `deploy/`, validated by the program that will read it.
//!
//! scripts/try-dockerfile.sh, which takes minutes, runs the steps of the Dockerfile.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The highest exposure that `systemd-analyze security` may find, in tenths. It was 12 when measured.
const EXPOSURE_MAX: &str = "15";

/// Variables that the files name, with values that are not used.
const VARIABLES: [(&str, &str); 6] = [
    ("BALDE_GATEWAY_TOKEN", "token"),
    ("BALDE_MONITOR_TOKEN", "token"),
    ("BALDE_STATE_TOKEN", "token-of-16-bytes-or-more"),
    (
        "BALDE_MONITOR_DATABASE",
        "postgres://balde:secret@postgres/balde",
    ),
    ("POSTGRES_PASSWORD", "secret"),
    ("GRAFANA_PASSWORD", "secret"),
];

/// Which check reads which file. A file that is not in the list has no check.
const CHECKED: [(&str, &str); 16] = [
    ("Dockerfile", "dockerfile"),
    ("Dockerfile.dockerignore", "dockerfile"),
    ("compose.yaml", "compose"),
    ("compose/secrets.sh", "compose"),
    ("compose/.gitignore", "compose"),
    ("compose/otel-collector.yaml", "yaml"),
    ("compose/*.toml", "balde check"),
    ("grafana/provisioning/*.yml", "yaml"),
    // In balde-monitor and balde: every expression uses metrics that exist.
    ("grafana/*.json", "dashboards"),
    // crates/balde-cli/tests/helm.rs
    ("helm/balde/*", "helm"),
    ("kubernetes/*.yaml", "kubernetes"),
    ("kubernetes/*.toml", "balde check"),
    // crates/balde-cli/tests/packages.rs and scripts/test-packages.sh
    ("packages/*", "packages"),
    ("prometheus/*.yml", "promtool"),
    // crates/balde-service/tests/service/proxies.rs runs them with real proxies.
    ("proxies/*", "proxies"),
    ("systemd/*.service", "systemd-analyze"),
];

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().unwrap()
}

fn deploy(file: &str) -> PathBuf {
    repository().join("deploy").join(file)
}

/// A program that Debian or `PyPI` has: on the path, or where scripts/test.sh installs.
fn tool(name: &str) -> Option<Command> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| repository().join("target"));
    let tools = std::env::var_os("BALDE_TEST_TOOLS").map(PathBuf::from);
    let tools = tools.unwrap_or_else(|| target.join("test-tools"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = vec![tools.join("bin")];
    folders.extend(std::env::split_paths(&path));
    let found = folders.iter().map(|folder| folder.join(name));
    let found = found.into_iter().find(|file| file.is_file());
    if found.is_none() {
        assert!(
            std::env::var("BALDE_REQUIRE_SERVICES").as_deref() != Ok("1"),
            "{name} is not installed, and BALDE_REQUIRE_SERVICES=1"
        );
        eprintln!("skipped: {name} is not installed; scripts/test.sh installs it");
    }
    found.map(Command::new)
}

fn text_of(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

fn succeeds(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = text_of(&output);
    assert!(output.status.success(), "{command:?}\n{text}");
    text
}

fn balde() -> Command {
    Command::new(env!("CARGO_BIN_EXE_balde"))
}

/// The files below a folder of the repository, relative to it.
fn files_below(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap();
                found.insert(name.to_str().unwrap().to_owned());
            }
        }
    }
    // What compose/secrets.sh makes.
    found.retain(|name| name != "compose/.env" && name != "compose/gateway-token");
    found
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((before, after)) => {
            name.starts_with(before) && name.ends_with(after) && name.len() > pattern.len() - 1
        }
        None => name == pattern,
    }
}

/// Reads YAML with the parser that comes with kubernetes-validate.
fn yaml(text: &str) -> Option<Value> {
    let mut python = tool("kubernetes-validate").map(|command| {
        let python = Path::new(command.get_program()).with_file_name("python3");
        Command::new(python)
    })?;
    let program = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))";
    let mut child = python
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "not YAML:\n{text}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn every_file_has_a_check() {
    for name in files_below(&deploy("")) {
        let checks = CHECKED
            .iter()
            .filter(|(pattern, _)| matches(pattern, &name));
        assert!(checks.count() > 0, "deploy/{name} is validated by no test");
    }
    let names = files_below(&deploy(""));
    for (pattern, _) in CHECKED {
        let used = names.iter().any(|name| matches(pattern, name));
        assert!(used, "deploy/{pattern} does not exist");
    }
}

#[test]
fn balde_accepts_the_files_of_gateway_monitor_and_service() {
    let files = files_below(&deploy(""));
    let files: Vec<_> = files
        .iter()
        .filter(|name| matches("*.toml", name))
        .collect();
    assert!(files.len() >= 7, "{files:?}");
    for file in files {
        succeeds(balde().arg("check").arg(deploy(file)).envs(VARIABLES));
    }
}

#[test]
fn the_dockerfile_builds_this_workspace_and_ends_unprivileged() {
    let text = fs::read_to_string(deploy("Dockerfile")).unwrap();
    let workspace = fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let version = workspace.split_once("rust-version = \"").unwrap().1;
    let version = version.split_once('"').unwrap().0;
    assert!(text.contains(&format!("FROM rust:{version}-slim-")));
    let (_, last_stage) = text.rsplit_once("\nFROM ").unwrap();
    let user = last_stage
        .lines()
        .find_map(|line| line.strip_prefix("USER "));
    let (uid, gid) = user.unwrap().split_once(':').unwrap();
    assert!(uid.parse::<u32>().unwrap() > 0 && gid.parse::<u32>().unwrap() > 0);
    // What is copied exists and is sent to the builder.
    let ignored = fs::read_to_string(deploy("Dockerfile.dockerignore")).unwrap();
    let copies = text.lines().filter_map(|line| line.strip_prefix("COPY "));
    for copy in copies.filter(|copy| !copy.starts_with("--from")) {
        let mut words: Vec<_> = copy.split_whitespace().collect();
        words.pop();
        for word in words {
            assert!(repository().join(word).exists(), "{word} does not exist");
            let mut sent = ignored.lines().filter_map(|line| line.strip_prefix('!'));
            let is_sent = sent.any(|pattern| pattern == word || matches(pattern, word));
            assert!(is_sent, "{word} is not sent to the builder");
        }
    }
}

#[test]
fn compose_accepts_its_file_and_every_service_has_a_health_check() {
    let Some(mut compose) = tool("docker-compose") else {
        return;
    };
    let text = succeeds(
        compose
            .arg("-f")
            .arg(deploy("compose.yaml"))
            .arg("config")
            .envs(VARIABLES),
    );
    let Some(file) = yaml(&text) else { return };
    let services = file[0]["services"].as_object().unwrap();
    for name in [
        "simulator",
        "gateway",
        "monitor",
        "serve",
        "redis",
        "postgres",
        "prometheus",
        "grafana",
        "otel-collector",
    ] {
        assert!(services.contains_key(name), "{name}");
    }
    for (name, service) in services {
        // The collector's image has neither a shell nor balde.
        let is_checked = service["healthcheck"]["test"].is_array();
        assert!(is_checked || name == "otel-collector", "{name}");
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let source = volume.as_str().unwrap().split(':').next().unwrap();
            assert!(
                !source.starts_with('/') || Path::new(source).exists(),
                "{name} mounts {source}, which does not exist"
            );
        }
        let image = service["image"].as_str().unwrap();
        assert!(
            image.contains(':') && !image.ends_with(":latest"),
            "{image}"
        );
        if image.starts_with("balde:") {
            assert_eq!(service["read_only"], true, "{name}");
            assert_eq!(service["cap_drop"][0], "ALL", "{name}");
            understands(&service["command"]);
            let test = service["healthcheck"]["test"].as_array().unwrap();
            assert_eq!(
                test[..3],
                ["CMD", "/usr/local/bin/balde", "health"],
                "{name}"
            );
            understands(&Value::Array(test[2..].to_vec()));
        }
    }
    succeeds(
        Command::new("bash")
            .arg("-n")
            .arg(deploy("compose/secrets.sh")),
    );
}

/// The versions of servers that the tests run with: Debian 12's, and for Grafana that of the models to which
/// tests/grafana.rs holds the dashboards.
const TESTED: [(&str, &str); 4] = [
    ("redis", "7.0"),
    ("postgres", "15"),
    ("prom/prometheus", "v2.42."),
    ("grafana/grafana", "11.6."),
];

#[test]
fn compose_has_the_versions_that_the_tests_know_and_keeps_what_must_not_be_lost() {
    let text = fs::read_to_string(deploy("compose.yaml")).unwrap();
    for (image, version) in TESTED {
        let line = format!("    image: {image}:{version}");
        assert!(text.lines().any(|one| one.starts_with(&line)), "{line}");
    }
    let script = fs::read_to_string(repository().join("scripts/test.sh")).unwrap();
    assert!(script.contains("!11.6.0'"), "the models of Grafana 11.6");
    // On the Debian that the list is about, what is installed is what is in the list.
    let is_debian_12 =
        fs::read_to_string("/etc/debian_version").is_ok_and(|it| it.starts_with("12"));
    if is_debian_12 {
        for (program, expected) in [
            ("/usr/bin/redis-server", "v=7.0."),
            ("/usr/bin/prometheus", "version 2.42."),
            ("/usr/lib/postgresql/15/bin/postgres", " 15."),
        ] {
            if Path::new(program).is_file() {
                let version = succeeds(Command::new(program).arg("--version"));
                assert!(version.contains(expected), "{version}");
            }
        }
    }
    // docs/gateway.md: payers' buckets are in Redis only, so it has to persist them.
    let (_, from) = text.split_once("\n  redis:\n").unwrap();
    let redis = from.split_once("\n\n").unwrap().0;
    assert!(redis.contains("--appendonly, \"yes\""), "{redis}");
    let (_, volumes) = text.rsplit_once("\nvolumes:\n").unwrap();
    for (service, folder) in [
        ("redis", "/data"),
        ("postgres", "/var/lib/postgresql/data"),
        ("prometheus", "/prometheus"),
        ("grafana", "/var/lib/grafana"),
    ] {
        assert!(
            text.contains(&format!("      - {service}:{folder}\n")),
            "{service}"
        );
        assert!(volumes.contains(&format!("  {service}:")), "{service}");
    }
}

/// Asserts that `balde` has this command and its options.
fn understands(command: &Value) {
    let words = command.as_array().unwrap().iter();
    let words: Vec<_> = words.map(|word| word.as_str().unwrap()).collect();
    succeeds(balde().args(words).arg("--help"));
}

#[test]
fn promtool_accepts_the_configuration() {
    let Some(mut promtool) = tool("promtool") else {
        return;
    };
    // promtool opens the token's file, which exists in the container only.
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "token").unwrap();
    for file in fs::read_dir(deploy("prometheus")).unwrap() {
        let file = file.unwrap();
        let text = fs::read_to_string(file.path()).unwrap();
        let text = text.replace("/run/secrets/gateway-token", token.to_str().unwrap());
        fs::write(folder.path().join(file.file_name()), text).unwrap();
    }
    let file = folder.path().join("prometheus.yml");
    let text = succeeds(promtool.args(["check", "config"]).arg(file));
    assert_eq!(text.matches("rules found").count(), 3, "{text}");
}

#[test]
fn systemd_accepts_the_units_and_finds_little_exposed() {
    let Some(_) = tool("systemd-analyze") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let units = files_below(&deploy("systemd"));
    assert_eq!(units.len(), 4);
    for unit in units {
        // systemd asserts that the program exists, which it does after an installation only.
        let text = fs::read_to_string(deploy("systemd").join(&unit)).unwrap();
        let installed = text.replace("/usr/bin/balde", env!("CARGO_BIN_EXE_balde"));
        let copy = folder.path().join(&unit);
        fs::write(&copy, installed).unwrap();
        let mut verify = tool("systemd-analyze").unwrap();
        let complaints = succeeds(verify.args(["verify", "--man=no"]).arg(&copy));
        let complaints = complaints.lines().filter(|line| line.contains("balde-"));
        assert_eq!(complaints.collect::<Vec<_>>(), [""; 0]);
        let mut security = tool("systemd-analyze").unwrap();
        security.args(["security", "--offline=true", "--no-pager", "--threshold"]);
        succeeds(security.arg(EXPOSURE_MAX).arg(&copy));
        for line in text.lines().filter(|line| line.starts_with("ExecStart")) {
            let (_, command) = line.split_once("/usr/bin/balde ").unwrap();
            let words = command
                .split_whitespace()
                .filter(|word| !word.starts_with('$'));
            succeeds(balde().args(words).arg("--help"));
        }
    }
}

#[test]
fn kubernetes_accepts_what_kustomize_makes() {
    let (Some(mut kubectl), Some(mut validate)) = (tool("kubectl"), tool("kubernetes-validate"))
    else {
        return;
    };
    let manifests = succeeds(kubectl.arg("kustomize").arg(deploy("kubernetes")));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("manifests.yaml");
    fs::write(&file, &manifests).unwrap();
    let passed = succeeds(validate.arg("--strict").arg(&file));
    let Some(documents) = yaml(&manifests) else {
        return;
    };
    let documents = documents.as_array().unwrap();
    assert_eq!(
        passed.matches(" passed ").count(),
        documents.len(),
        "{passed}"
    );
    let mut deployments = 0;
    for document in documents
        .iter()
        .filter(|document| document["kind"] == "Deployment")
    {
        deployments += 1;
        let pod = &document["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        let container = &pod["containers"][0];
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        understands(&container["args"]);
        let probe = &container["livenessProbe"]["exec"]["command"];
        if let Some(command) = probe.as_array() {
            understands(&Value::Array(command[1..].to_vec()));
        }
    }
    assert_eq!(deployments, 3);
}

#[test]
fn the_other_yaml_files_can_be_read_and_name_what_the_containers_have() {
    let read = |file: &str| yaml(&fs::read_to_string(deploy(file)).unwrap());
    let Some(collector) = read("compose/otel-collector.yaml") else {
        return;
    };
    let prometheus = read("prometheus/prometheus.yml").unwrap();
    let targets = |configs: &Value| -> Vec<Value> {
        let configs = configs.as_array().unwrap().iter();
        configs
            .map(|config| config["static_configs"].clone())
            .collect()
    };
    let scraped = &collector[0]["receivers"]["prometheus"]["config"]["scrape_configs"];
    assert_eq!(targets(scraped), targets(&prometheus[0]["scrape_configs"]));
    let dashboards = read("grafana/provisioning/dashboards/balde.yml").unwrap();
    let path = dashboards[0]["providers"][0]["options"]["path"]
        .as_str()
        .unwrap();
    let compose = fs::read_to_string(deploy("compose.yaml")).unwrap();
    for dashboard in ["balde-dict", "balde-limits", "balde-gateway"] {
        assert!(compose.contains(&format!(
            "./grafana/{dashboard}.json:{path}/{dashboard}.json:ro"
        )));
    }
    let sources = read("grafana/provisioning/datasources/prometheus.yml").unwrap();
    assert_eq!(
        sources[0]["datasources"][0]["url"],
        "http://prometheus:9090"
    );
}

#[test]
fn every_rule_links_to_its_section_in_both_runbooks() {
    let docs = repository().join("docs");
    let pages = ["runbook.md", "pt-BR/runbook.md"].map(|page| {
        let text = fs::read_to_string(docs.join(page)).unwrap();
        let headings = text.lines().filter_map(|line| line.strip_prefix("## "));
        headings.map(str::to_owned).collect::<Vec<_>>()
    });
    assert_eq!(pages[0], pages[1], "both pages have the same sections");
    let mut rules = BTreeSet::new();
    for file in [
        "balde-rules.yml",
        "balde-limits-rules.yml",
        "balde-gateway-rules.yml",
    ] {
        let text = fs::read_to_string(deploy("prometheus").join(file)).unwrap();
        for rule in text.split("- alert: ").skip(1) {
            let name = rule.split_whitespace().next().unwrap();
            assert!(pages[0].iter().any(|heading| heading == name), "{name}");
            let link = rule.lines().find(|line| line.contains("runbook_url: "));
            let link = link.unwrap_or_else(|| panic!("{name} has no runbook_url"));
            let anchor = format!("#{}'", name.to_lowercase());
            assert!(link.ends_with(&anchor), "{name}: {link}");
            rules.insert(name.to_owned());
        }
    }
    // The sections without a rule are about events that only the monitor sends.
    let others = pages[0].iter().filter(|heading| !rules.contains(*heading));
    assert_eq!(
        others.collect::<Vec<_>>(),
        ["DictLimitsChanged", "TestAlert"]
    );
}
