//! The Helm chart: a real helm lints and renders it, and what it renders is validated as the manifests of
//! deploy/kubernetes are.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().unwrap()
}

fn chart() -> PathBuf {
    repository().join("deploy/helm/balde")
}

/// A program that scripts/test.sh installs from Python's index.
fn tool(name: &str) -> Option<Command> {
    let tools = std::env::var_os("BALDE_TEST_TOOLS").map(PathBuf::from);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let file = tools
        .unwrap_or_else(|| target.join("test-tools"))
        .join("bin")
        .join(name);
    if file.is_file() {
        return Some(Command::new(file));
    }
    assert!(
        std::env::var("BALDE_REQUIRE_SERVICES").as_deref() != Ok("1"),
        "{} does not exist, and BALDE_REQUIRE_SERVICES=1; scripts/test.sh installs it",
        file.display()
    );
    eprintln!("\n*** SKIPPED: {name} is not installed, so this test tested NOTHING ***\n");
    None
}

fn text_of(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

fn helm(arguments: &[&str]) -> Option<Output> {
    let mut helm = tool("helm")?;
    let folder = tempfile::tempdir().unwrap();
    let output = helm
        .args(arguments)
        .current_dir(chart())
        // helm keeps what it knows about registries there.
        .env("HOME", folder.path())
        .output();
    Some(output.unwrap())
}

/// The documents that the chart renders as the release `balde`.
fn rendered(arguments: &[&str]) -> Option<(String, Vec<Value>)> {
    let output = helm(&[&["template", "balde", "."], arguments].concat())?;
    assert!(output.status.success(), "{}", text_of(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let python = tool("python3")?;
    let documents = yaml(python, &text);
    Some((text, documents))
}

fn yaml(mut python: Command, text: &str) -> Vec<Value> {
    let program = "import json, sys, yaml; print(json.dumps(list(filter(None, yaml.safe_load_all(sys.stdin)))))";
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
    serde_json::from_slice(&output.stdout).unwrap()
}

fn find<'a>(documents: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = documents
        .iter()
        .find(|document| document["kind"] == kind && document["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn check_file(text: &str, name: &str) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(name), text).unwrap();
    let mut balde = Command::new(env!("CARGO_BIN_EXE_balde"));
    let balde = balde
        .args(["check", "--without-env", name])
        .current_dir(folder.path());
    let output = balde.output().unwrap();
    assert!(output.status.success(), "{}\n{text}", text_of(&output));
}

/// Checks that every selector of a release finds pods, and every port has a container behind it.
fn check_selectors(documents: &[Value]) {
    let of_kind = |kind: &'static str| documents.iter().filter(move |one| one["kind"] == kind);
    let pods: Vec<&Value> = of_kind("Deployment")
        .map(|one| &one["spec"]["template"])
        .collect();
    let selects = |selector: &Value, labels: &Value| {
        let pairs = selector.as_object().expect("labels");
        pairs.iter().all(|(name, value)| labels[name] == *value)
    };
    let pod_of = |selector: &Value| {
        let mut found = pods
            .iter()
            .filter(|pod| selects(selector, &pod["metadata"]["labels"]));
        let pod = found
            .next()
            .unwrap_or_else(|| panic!("nothing has {selector}"));
        assert!(found.next().is_none(), "{selector} selects two deployments");
        *pod
    };
    for service in of_kind("Service") {
        let pod = pod_of(&service["spec"]["selector"]);
        for port in service["spec"]["ports"].as_array().unwrap() {
            let ports = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
            assert!(
                ports.iter().any(|one| one["name"] == port["targetPort"]),
                "{port}"
            );
        }
    }
    for kind in ["PodDisruptionBudget", "Deployment"] {
        for document in of_kind(kind) {
            pod_of(&document["spec"]["selector"]["matchLabels"]);
        }
    }
    for policy in of_kind("NetworkPolicy") {
        pod_of(&policy["spec"]["podSelector"]["matchLabels"]);
    }
    for monitor in of_kind("ServiceMonitor") {
        let labels = &monitor["spec"]["selector"]["matchLabels"];
        let services: Vec<&Value> = of_kind("Service")
            .filter(|service| selects(labels, &service["metadata"]["labels"]))
            .collect();
        assert_eq!(services.len(), 1, "{labels}");
        let port = &monitor["spec"]["endpoints"][0]["port"];
        let ports = services[0]["spec"]["ports"].as_array().unwrap();
        assert!(ports.iter().any(|one| one["name"] == *port), "{port}");
    }
}

#[test]
fn helm_lints_the_chart_and_kubernetes_accepts_what_it_renders() {
    for (values, parts) in [("dict", 2), ("http", 1), ("serve", 1)] {
        let file = format!("ci/{values}-values.yaml");
        let Some(lint) = helm(&["lint", "--strict", ".", "-f", &file]) else {
            return;
        };
        assert!(lint.status.success(), "{}", text_of(&lint));
        let Some((text, documents)) = rendered(&["-f", &file]) else {
            return;
        };
        // ServiceMonitors are not Kubernetes' own, so their schema is not among those of the validator.
        let own: Vec<&str> = text
            .split("\n---")
            .filter(|part| !part.contains("monitoring.coreos.com/"))
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let manifests = folder.path().join("manifests.yaml");
        fs::write(&manifests, own.join("\n---")).unwrap();
        let mut validate = tool("kubernetes-validate").unwrap();
        let output = validate.arg("--strict").arg(&manifests).output().unwrap();
        let passed = text_of(&output);
        assert!(output.status.success(), "{passed}");
        let own = documents
            .iter()
            .filter(|one| one["kind"] != "ServiceMonitor");
        assert_eq!(passed.matches(" passed ").count(), own.count(), "{passed}");
        check_selectors(&documents);
        let deployments: Vec<&Value> = documents
            .iter()
            .filter(|one| one["kind"] == "Deployment")
            .collect();
        assert_eq!(deployments.len(), parts);
        for deployment in deployments {
            let pod = &deployment["spec"]["template"]["spec"];
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
            let container = &pod["containers"][0];
            assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
            let arguments = container["args"].as_array().unwrap();
            let mut balde = Command::new(env!("CARGO_BIN_EXE_balde"));
            let words = arguments.iter().map(|word| word.as_str().unwrap());
            let output = balde.args(words).arg("--help").output().unwrap();
            assert!(output.status.success(), "{arguments:?}");
        }
        for config in documents.iter().filter(|one| one["kind"] == "ConfigMap") {
            for (name, text) in config["data"].as_object().unwrap() {
                check_file(text.as_str().unwrap(), name);
            }
        }
    }
}

#[test]
fn probes_secrets_and_policies_are_what_the_services_need() {
    let Some((_, documents)) = rendered(&["-f", "ci/dict-values.yaml"]) else {
        return;
    };
    let container = |name: &str| {
        find(&documents, "Deployment", name)["spec"]["template"]["spec"]["containers"][0].clone()
    };
    let gateway = container("balde-gateway");
    assert_eq!(
        gateway["readinessProbe"]["httpGet"],
        json!({"path": "/readyz", "port": "state"})
    );
    assert_eq!(
        gateway["livenessProbe"]["httpGet"],
        json!({"path": "/healthz", "port": "state"})
    );
    let monitor = container("balde-monitor");
    assert_eq!(
        monitor["livenessProbe"]["httpGet"],
        json!({"path": "/healthz", "port": "http"})
    );
    assert_eq!(monitor["startupProbe"]["failureThreshold"], 60);
    let secret = |container: &Value, variable: &str| {
        let variables = container["env"].as_array().unwrap();
        let found = variables.iter().find(|one| one["name"] == variable);
        let reference =
            &found.unwrap_or_else(|| panic!("no {variable}"))["valueFrom"]["secretKeyRef"];
        format!(
            "{}/{}",
            reference["name"].as_str().unwrap(),
            reference["key"].as_str().unwrap()
        )
    };
    assert_eq!(
        secret(&gateway, "BALDE_GATEWAY_TOKEN"),
        "balde-gateway/token"
    );
    assert_eq!(secret(&gateway, "REDIS_PASSWORD"), "redis/password");
    assert_eq!(
        secret(&monitor, "BALDE_GATEWAY_TOKEN"),
        "balde-gateway/token"
    );
    assert_eq!(
        secret(&monitor, "BALDE_MONITOR_DATABASE"),
        "balde-monitor/database"
    );
    assert!(
        documents.iter().all(|one| one["kind"] != "Secret"),
        "secrets exist already"
    );

    // Requests: clients and the named namespace. State: the monitor and Prometheus, and nobody else.
    let ingress = &find(&documents, "NetworkPolicy", "balde-gateway")["spec"]["ingress"];
    let [requests, state] = &ingress.as_array().unwrap()[..] else {
        panic!("{ingress}");
    };
    assert_eq!(
        requests["ports"],
        json!([{"protocol": "TCP", "port": "http"}])
    );
    assert_eq!(
        requests["from"][0]["podSelector"]["matchLabels"],
        json!({"balde/client": "true"})
    );
    assert_eq!(requests["from"].as_array().unwrap().len(), 2);
    assert_eq!(
        state["ports"],
        json!([{"protocol": "TCP", "port": "state"}])
    );
    let monitors = &state["from"][0]["podSelector"]["matchLabels"];
    assert_eq!(monitors["app.kubernetes.io/component"], "monitor");
    assert!(
        state["from"][0].get("namespaceSelector").is_none(),
        "of this namespace only"
    );
    let prometheus = json!({"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}});
    assert_eq!(state["from"][1], json!({"namespaceSelector": prometheus}));
    assert_eq!(state["from"].as_array().unwrap().len(), 2);
    let pages = &find(&documents, "NetworkPolicy", "balde-monitor")["spec"]["ingress"][0];
    assert_eq!(pages["from"].as_array().unwrap().len(), 2);

    let scraped = &find(&documents, "ServiceMonitor", "balde-gateway")["spec"]["endpoints"][0];
    let credentials = json!({"name": "balde-gateway", "key": "token"});
    assert_eq!(scraped["authorization"]["credentials"], credentials);

    let Some((_, documents)) = rendered(&["-f", "ci/http-values.yaml"]) else {
        return;
    };
    let scaler = &find(&documents, "HorizontalPodAutoscaler", "balde-gateway")["spec"];
    assert_eq!(scaler["scaleTargetRef"]["name"], "balde-gateway");
    let deployment = find(&documents, "Deployment", "balde-gateway");
    assert!(
        deployment["spec"].get("replicas").is_none(),
        "the autoscaler sets them"
    );
}

#[test]
fn the_decision_service_has_the_ports_of_its_protocols_and_its_token() {
    let Some((_, documents)) = rendered(&["-f", "ci/serve-values.yaml"]) else {
        return;
    };
    let pod = &find(&documents, "Deployment", "balde-serve")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let arguments = ["serve", "--config", "/etc/balde/config/serve.toml"];
    assert_eq!(container["args"], json!(arguments));
    let ports = |ports: &Value, number: &str| -> Vec<(String, u64)> {
        let pair = |port: &Value| {
            (
                port["name"].as_str().unwrap().to_owned(),
                port[number].as_u64().unwrap(),
            )
        };
        ports.as_array().unwrap().iter().map(pair).collect()
    };
    let own = |(name, port): (&str, u64)| (name.to_owned(), port);
    let public = [("http", 8_085), ("resp", 6_380), ("rls", 8_081)].map(own);
    let service = &find(&documents, "Service", "balde-serve")["spec"]["ports"];
    assert_eq!(ports(service, "port"), public, "proxy is left out");
    let all = [&public[..], &[own(("state", 8_090))]].concat();
    assert_eq!(ports(&container["ports"], "containerPort"), all);
    let file = find(&documents, "ConfigMap", "balde-serve");
    let file = file["data"]["serve.toml"].as_str().unwrap();
    for (_, port) in all {
        assert!(file.contains(&format!("\"0.0.0.0:{port}\"")), "{port}");
    }
    let scraped = &find(&documents, "ServiceMonitor", "balde-serve")["spec"]["endpoints"][0];
    let credentials = json!({"name": "balde-serve", "key": "token"});
    assert_eq!(scraped["authorization"]["credentials"], credentials);
    let ingress = &find(&documents, "NetworkPolicy", "balde-serve")["spec"]["ingress"];
    let asked = ingress[0]["ports"].as_array().unwrap().iter();
    let asked: Vec<&Value> = asked.map(|port| &port["port"]).collect();
    assert_eq!(asked, ["http", "resp", "rls"]);
}

#[test]
fn values_that_are_missing_are_named() {
    for (arguments, expected) in [
        (
            vec![],
            "monitor.config is empty: write the file monitor.toml there",
        ),
        (
            vec!["--set", "monitor.enabled=false"],
            "gateway.config is empty: write the file gateway.toml there",
        ),
        (
            vec![
                "-f",
                "ci/dict-values.yaml",
                "--set",
                "monitor.database.existingSecret=",
            ],
            "BALDE_MONITOR_DATABASE needs existingSecret",
        ),
    ] {
        let Some(output) = helm(&[&["template", "balde", "."], &arguments[..]].concat()) else {
            return;
        };
        assert!(!output.status.success());
        assert!(text_of(&output).contains(expected), "{}", text_of(&output));
    }
}

#[test]
fn the_chart_has_the_version_of_the_workspace() {
    let workspace = fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let version = workspace.split_once("\nversion = \"").unwrap().1;
    let version = version.split_once('"').unwrap().0;
    let chart = fs::read_to_string(chart().join("Chart.yaml")).unwrap();
    assert!(chart.contains(&format!("\nversion: {version}\nappVersion: {version}\n")));
}
