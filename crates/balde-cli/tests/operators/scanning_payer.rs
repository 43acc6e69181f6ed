//! A payer that scans keys through a gateway is on the monitor's report.

use serde_json::Value;

use crate::processes::{client_from, free_address, get_json, start, start_monitor, wait_for};

const PARTICIPANT: &str = "12345678";
/// A person.
const PAYER: &str = "11122233300";

#[tokio::test]
async fn a_payer_that_scans_is_on_the_monitors_report_and_its_refusals_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let [dict, listen, state] =
        [free_address(), free_address(), free_address()].map(|a| a.to_string());
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
    write(
        "gateway.toml",
        format!(
            "[[listener]]\naddress = \"{listen}\"\n\
             [[upstream]]\nname = \"dict\"\nurl = \"http://{dict}\"\n\
             [[route]]\npath = \"/\"\nupstream = \"dict\"\n\
             [state]\naddress = \"{state}\"\ntoken_env = \"TOKEN\"\n\
             [dict]\nupstream = \"dict\"\nparticipants = [\"{PARTICIPANT}\"]\n\
             worst_payer_lookups = 300\n"
        ),
    );
    write(
        "monitor.toml",
        format!(
            "[http]\naddress = \"127.0.0.1:0\"\n\
             [[participant]]\nispb = \"{PARTICIPANT}\"\n\
             gateway = \"http://{state}/balde/states\"\ntoken_env = \"TOKEN\"\n"
        ),
    );
    let is_listening = |event: &Value| event["event_type"] == "listening";
    let simulate = ["simulate", "--listen", &dict, "--category", "F"];
    let _dict = start(folder.path(), &simulate, is_listening);
    let _gateway = start(folder.path(), &["gateway", "-c", "gateway.toml"], |event| {
        event["event_type"] == "listening" || event["endpoint"] == "state"
    });
    let monitor = start_monitor(folder.path());
    let client = client_from("127.0.0.1");
    let (mut not_found, mut refused) = (0, 0);
    for number in 0..300 {
        let request = client
            .get(format!(
                "http://{listen}/api/v2/entries/ninguem{number}@exemplo.com.br"
            ))
            .header("PI-RequestingParticipant", PARTICIPANT)
            .header("PI-PayerId", PAYER)
            .header(
                "PI-EndToEndId",
                format!("E{PARTICIPANT}202601010000{number:011}"),
            );
        match request.send().await.unwrap().status().as_u16() {
            404 => not_found += 1,
            429 => refused += 1,
            status => panic!("{status}"),
        }
    }
    assert!(not_found >= 5 && refused >= 250, "{not_found} {refused}");

    let begun = std::time::Instant::now();
    let url = format!("http://{}/api/v1/status", monitor.address);
    let report = wait_for("the payer is reported", async || {
        let status = get_json(&client, &url).await;
        let report = status["gateways"][PARTICIPANT].clone();
        let is_there = report["duties"]["worst_payers"][0]["refused"] == refused;
        is_there.then_some(report)
    })
    .await;
    println!("the monitor reported the payer after {:?}", begun.elapsed());
    let payer = &report["duties"]["worst_payers"][0];
    assert_eq!(
        (&payer["not_found"], &payer["lookups"]),
        (&not_found.into(), &not_found.into())
    );
    assert_eq!(report["duties"]["worst_payer_lookups"], 300);
    assert!(!report.to_string().contains(PAYER), "payers are hashed");
    let refusals = report["refusals"].as_array().unwrap();
    let [refusals] = &refusals[..] else {
        panic!("{report}");
    };
    assert_eq!(refusals["policy"], "ENTRIES_READ_USER_ANTISCAN");
    assert!(refusals["refusals"].as_u64().unwrap() > 0, "{report}");

    let metrics = client.get(format!("http://{state}/metrics"));
    let metrics = metrics.bearer_auth("secret").send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let line = format!(
        "gateway_refusals_total{{participant=\"{PARTICIPANT}\",policy=\"ENTRIES_READ_USER_ANTISCAN\"}} {refused}"
    );
    assert!(metrics.contains(&line), "{metrics}");
}
