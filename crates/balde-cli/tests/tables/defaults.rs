//! Tables with values: defaults, thresholds, routes, codes, limits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use balde_dict::{VolumeClass, profiles};
use balde_policy::SettingValue;
use balde_throttle::Degradation;

use super::pages::{numbers, read, sources, spans, table};

#[test]
fn dicts_settings_and_their_defaults_are_those_of_the_profile() {
    let page = read("docs/dict.md");
    let (_, from) = page.split_once("| Setting | Default |").unwrap();
    let rows = from
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let mut shown = BTreeMap::new();
    for row in rows {
        let mut cells = row.split('|').map(|cell| cell.trim().replace('`', ""));
        let (name, default) = (cells.nth(1).unwrap(), cells.next().unwrap());
        shown.insert(name, default);
    }
    let profile = profiles::default();
    let mut known = BTreeMap::new();
    for setting in profile.settings() {
        let value = match setting.value() {
            SettingValue::Text(text) => text.to_string(),
            SettingValue::Number(number) => number.to_string(),
            SettingValue::Bool(is_set) => is_set.to_string(),
            SettingValue::Numbers(numbers) => format!("{numbers:?}"),
        };
        known.insert(setting.name().to_owned(), value);
    }
    for (name, value) in &known {
        assert_eq!(shown.get(name), Some(value), "docs/dict.md: {name}");
    }
    let unknown: Vec<_> = shown
        .keys()
        .filter(|name| !known.contains_key(*name))
        .collect();
    assert!(
        unknown.is_empty(),
        "no setting of the profile is called {unknown:?}"
    );
}

#[test]
fn profiles_are_those_that_ship() {
    let shown = table("docs/dict.md", "Profile |");
    let known = profiles::TEXTS.map(|(name, _)| name.to_owned());
    assert_eq!(shown.spans(0), BTreeSet::from(known));
    for row in &shown.rows {
        let profile = profiles::named(&spans(&row[0])[0]).unwrap();
        let policies = profile.policies().len();
        let is_counted = row[1].contains(" policies");
        assert!(
            !is_counted || row[1].contains(&format!("{policies} policies")),
            "{row:?}"
        );
    }
}

#[test]
fn classes_of_volume_begin_where_the_table_says() {
    let shown = table("docs/for-bulk-jobs.md", "Class |");
    let classes: Vec<String> = shown.rows.iter().flat_map(|row| spans(&row[0])).collect();
    assert_eq!(classes, VolumeClass::ALL.map(VolumeClass::as_str));
    let class = |tokens: &str| {
        let limit = format!("{tokens}/min").parse().unwrap();
        VolumeClass::new("ENTRIES_WRITE", &limit).as_str()
    };
    for row in &shown.rows[..3] {
        for tokens in numbers(&row[1]) {
            // "fewer than 100" is the only bound that is outside.
            let tokens = if row[1].starts_with("fewer") {
                (tokens.parse::<u64>().unwrap() - 1).to_string()
            } else {
                tokens
            };
            assert_eq!(class(&tokens), spans(&row[0])[0], "{tokens} a minute");
        }
    }
    let rates: Vec<u64> = profiles::default()
        .policies()
        .iter()
        .filter(|policy| policy.name().contains("ANTISCAN"))
        .flat_map(|policy| {
            policy
                .limits()
                .iter()
                .map(|(_, limit)| limit.refill_tokens())
        })
        .collect();
    let bounds = [rates.iter().min().unwrap(), rates.iter().max().unwrap()];
    assert_eq!(numbers(&shown.rows[3][1]), bounds.map(ToString::to_string));
}

#[test]
fn limits_as_text_can_be_parsed_and_have_the_capacity_that_the_table_says() {
    for (page, head) in [
        ("crates/balde/README.md", "Text |"),
        ("README.pt-BR.md", "Texto |"),
    ] {
        let shown = table(page, head);
        for row in &shown.rows {
            let text = &spans(&row[0])[0];
            let limit: balde_core::Limit = text
                .parse()
                .unwrap_or_else(|error| panic!("{page}: {text}: {error}"));
            let Some((_, capacity)) = row[1].split_once("capac") else {
                continue;
            };
            assert_eq!(
                numbers(capacity),
                [limit.capacity().to_string()],
                "{page}: {text}"
            );
        }
    }
}

/// `5 s`
fn seconds(text: &str) -> Duration {
    let (number, unit) = text.trim().split_once(' ').unwrap();
    assert_eq!(unit, "s", "{text}");
    Duration::from_secs(number.parse().unwrap())
}

/// `5 %`, `5%`
fn share(text: &str) -> balde::Share {
    let text: String = text.split_whitespace().collect();
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn degradation_has_the_defaults_of_its_table() {
    let shown = table("docs/throttle.md", "When | Then | Default");
    let cell = |row: usize, column: usize| shown.rows[row][column].as_str();
    // `5 % of 1 s; 90 %; 5 s`
    let lowered: Vec<&str> = cell(0, 2).split("; ").collect();
    let (tolerance, window) = lowered[0].split_once(" of ").unwrap();
    // `5 s, 3 probes`
    let (reset, probes) = cell(3, 2).split_once(", ").unwrap();
    // `6 s; 10 % of the configured rate; 1 s`
    let rises: Vec<&str> = cell(6, 2).split("; ").collect();
    let written = Degradation::strict()
        .tolerance(share(tolerance))
        .window(seconds(window))
        .ratio(share(lowered[1]))
        .spacing(seconds(lowered[2]))
        .floor(share(cell(1, 2).split(" of ").next().unwrap()))
        .open_after(seconds(cell(2, 2)))
        .reset(seconds(reset))
        .probes(numbers(probes)[0].parse().unwrap())
        .recovery(seconds(rises[0]))
        .step(share(rises[1].split(" of ").next().unwrap()))
        .step_interval(seconds(rises[2]));
    assert_eq!(written, Degradation::new());

    // `every error; 90 %; 0 s`, `30 s, 3 probes`, `30 s without any error; 10 %; 30 s`
    let lowered: Vec<&str> = cell(0, 3).split("; ").collect();
    assert_eq!((lowered[0], cell(2, 3)), ("every error", "never"));
    let (reset, probes) = cell(3, 3).split_once(", ").unwrap();
    let rises: Vec<&str> = cell(6, 3).split("; ").collect();
    assert_eq!(rises[2], "30 s", "as far apart as `recovery`");
    let written = Degradation::strict()
        .ratio(share(lowered[1]))
        .spacing(seconds(lowered[2]))
        .floor(share(cell(1, 3)))
        .reset(seconds(reset))
        .probes(numbers(probes)[0].parse().unwrap())
        .recovery(seconds(
            rises[0].strip_suffix(" without any error").unwrap(),
        ))
        .step(share(rises[1]));
    assert_eq!(written, Degradation::strict());
}

#[test]
fn limits_of_the_gateway_are_its_defaults() {
    let file = "[[listener]]\naddress = '127.0.0.1:8080'\n[[upstream]]\nname = 'shop'\n\
                url = 'http://127.0.0.1:9000'\n[[route]]\npath = '/'\nupstream = 'shop'\npolicies = false\n";
    let config = balde_gateway::Config::parse(file, "gateway.toml", Path::new(""), |_| None);
    let config = config.unwrap_or_else(|error| panic!("{error}"));
    let (server, upstream) = (&config.server, &config.upstreams[0]);
    let s = |duration: Duration| format!("{} s", duration.as_secs());
    let count = |number: usize| {
        let digits = number.to_string();
        let split = digits.len().saturating_sub(3);
        if split == 0 {
            digits
        } else {
            format!("{},{}", &digits[..split], &digits[split..])
        }
    };
    let known = BTreeMap::from([
        (
            "head of a request",
            format!(
                "{} KiB, {} fields",
                server.header_bytes_max / 1_024,
                server.headers_max
            ),
        ),
        (
            "body of a request",
            format!("{} MiB", server.body_bytes_max / 1_024 / 1_024),
        ),
        ("wait for a head, idle connection", s(server.header_timeout)),
        ("pause in a request's body", s(server.body_timeout)),
        ("client that reads nothing", s(server.write_timeout)),
        ("connections of clients", count(server.connections_max)),
        (
            "connections to an upstream",
            count(upstream.connections_max),
        ),
        (
            "connection, response head, pause in a response",
            [
                upstream.connect_timeout,
                upstream.response_timeout,
                upstream.body_timeout,
            ]
            .map(s)
            .join(", "),
        ),
        (
            "response to a client that closed its half of the connection",
            s(server.half_close_timeout),
        ),
        ("waiting requests", count(config.limiting.waiters_max)),
        (
            "idle tunnel",
            format!("{} min", server.tunnel_idle_timeout.as_secs() / 60),
        ),
    ]);
    let shown = table("docs/gateway.md", "What | Default");
    let mut compared = 0;
    for row in &shown.rows {
        if let Some(default) = known.get(&*row[0]) {
            assert_eq!(row[1], *default, "{}", row[0]);
            compared += 1;
        }
    }
    assert_eq!(compared, known.len());
    // The SDK's default, and half of the connections for incomplete bodies.
    assert_eq!(shown.rows.len(), known.len() + 2);
    let reference = read("docs/options.toml");
    assert!(reference.contains("#keys_max = 1000000\n"));
    let keys_max = shown
        .rows
        .iter()
        .find(|row| row[0].contains("`keys_max`"))
        .unwrap();
    assert_eq!(numbers(&keys_max[1]), ["1000000"]);
}

/// The value of a key of a reference file; other tests hold those files to the code.
fn reference(file: &str, key: &str) -> String {
    let text = read(file);
    let mut lines = text.lines().map(|line| line.trim_start_matches('#').trim());
    let value = lines.find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='));
    let value = value.unwrap_or_else(|| panic!("{file} has no {key}"));
    value.split(" #").next().unwrap().trim().to_owned()
}

#[test]
fn defaults_of_the_monitor_are_those_of_its_reference_file() {
    let file = "docs/monitor.toml";
    for row in &table("docs/monitor.md", "Setting |").rows {
        let key = &spans(&row[0])[0];
        let shown = row[1].replace(['`', '[', ']'], "");
        assert_eq!(shown, reference(file, key).replace(['[', ']'], ""), "{key}");
    }
    // Of a share, such as "25%".
    let number = |key: &str| {
        let value = reference(file, key);
        let number = value.trim_matches(|c: char| !c.is_ascii_digit());
        number.parse::<u32>().unwrap()
    };
    let band = number("hysteresis");
    let thresholds = table("docs/monitor.md", "Severity | Raised");
    for (row, key) in thresholds
        .rows
        .iter()
        .zip(["warning", "critical", "exhausted"])
    {
        let raised = number(key);
        let is_none = raised == 0 && row[1].starts_with("no tokens");
        assert!(
            is_none || numbers(&row[1]) == [raised.to_string()],
            "{row:?}"
        );
        assert_eq!(numbers(&row[2]), [(raised + band).to_string()], "{row:?}");
        assert!(key.starts_with(&row[0].to_lowercase()), "{row:?}");
    }
    for (row, key) in table("docs/alerts.md", "Forecast |")
        .rows
        .iter()
        .zip(["predict_within", "page_within"])
    {
        let minutes = number(key);
        assert_eq!(numbers(&row[0]), [minutes.to_string()], "{row:?}");
        assert!(row[0].contains(key), "{row:?}");
    }
}

#[test]
fn routes_are_those_of_the_reference_file() {
    let words = BTreeMap::from([
        ("log", "log"),
        ("event", "event"),
        ("gauge", "gauge"),
        ("page", "a page"),
        ("page_urgent", "urgent page"),
        ("chat", "chat message"),
        ("incident", "incident"),
    ]);
    let classes = |severity: &str| -> BTreeSet<String> {
        let value = reference("docs/monitor.toml", severity);
        let classes = value.trim_matches(['[', ']']).split(", ");
        classes
            .map(|class| class.trim_matches('"').to_owned())
            .collect()
    };
    let mut before = BTreeSet::new();
    for row in &table("docs/alerts.md", "Severity |").rows {
        let classes = classes(&row[0]);
        // Each row says what it adds to the one before; an urgent page takes the place of a page.
        let added: BTreeSet<&String> = classes.difference(&before).collect();
        for class in &added {
            assert!(row[1].contains(words[class.as_str()]), "{row:?}: {class}");
        }
        let mut left_out: Vec<&String> = before.difference(&classes).collect();
        left_out.retain(|class| *class != "page");
        assert!(left_out.is_empty(), "{row:?}: {left_out:?}");
        before = classes;
    }
}

#[test]
fn timeouts_and_attempts_of_activities_are_those_of_the_retry_rules() {
    let source = read("crates/balde-monitor/src/schedule/temporal/retries.rs");
    let constants = ["FETCH", "STORE", "ANALYSE", "PUBLISH"];
    let activities = read("crates/balde-monitor/src/schedule/temporal/activities.rs");
    let shown = table("docs/monitor.md", "Step | Activity");
    assert_eq!(shown.rows.len(), constants.len());
    for (row, constant) in shown.rows.iter().zip(constants) {
        assert_eq!(row[0].to_uppercase(), constant);
        let name = &spans(&row[1])[0];
        assert!(activities.contains(&format!("name = \"{name}\"")), "{name}");
        let (_, rule) = source
            .split_once(&format!("{constant}: RetryRule = "))
            .unwrap();
        let rule = rule.split("};").next().unwrap();
        let field = |name: &str| {
            let (_, value) = rule.split_once(&format!("{name}: ")).unwrap();
            numbers(value.lines().next().unwrap())
        };
        assert_eq!(numbers(&row[2]), field("attempt"), "{constant}");
        let attempts = field("attempts");
        if attempts.is_empty() {
            assert!(source.contains("DATABASE_TIMEOUT: Duration = Duration::from_secs(300)"));
            assert_eq!(row[3], "for 5 minutes", "{constant}");
        } else {
            assert_eq!(numbers(&row[3]), attempts, "{constant}");
        }
        let waits = numbers(&row[4]);
        assert_eq!(waits[0], field("first_wait")[0], "{constant}");
        // The fetch ends after two waits, before the longest.
        let doubled = 2 * waits[0].parse::<u64>().unwrap();
        let last = [field("longest_wait")[0].clone(), doubled.to_string()];
        assert!(last.contains(&waits[1]), "{constant}: {waits:?}");
    }
}

#[test]
fn exit_codes_are_those_of_the_table() {
    let shown = table("docs/cli.md", "Code |");
    let shown: BTreeSet<String> = shown.rows.iter().map(|row| row[0].clone()).collect();
    // ExitCode::SUCCESS and FAILURE, clap's code for wrong arguments, and what the sources name.
    let mut known = BTreeSet::from(["0", "1", "2"].map(str::to_owned));
    for text in sources("balde-cli") {
        for call in ["process::exit(", "ExitCode::from("] {
            known.extend(
                text.split(call)
                    .skip(1)
                    .flat_map(|rest| numbers(rest.split(')').next().unwrap())),
            );
        }
    }
    assert_eq!(shown, known);
}

#[test]
fn priorities_and_actions_of_pagers_are_those_of_the_sinks() {
    let opsgenie = read("crates/balde-monitor/src/sink/opsgenie.rs");
    let priority = opsgenie.split("fn priority").nth(1).unwrap();
    let priority = priority.split("\n}").next().unwrap();
    let known: BTreeSet<String> = spans(&priority.replace('"', "`")).into_iter().collect();
    assert_eq!(table("docs/alerts.md", "Event | Priority").spans(1), known);
    let pager_duty = read("crates/balde-monitor/src/sink/pager_duty.rs");
    let shown = table("docs/alerts.md", "Event | `event_action`");
    for word in shown.spans(1).union(&shown.spans(2)) {
        assert!(pager_duty.contains(&format!("\"{word}\"")), "{word}");
    }
}

#[test]
fn dependencies_are_those_of_the_manifests() {
    let page = read("docs/dependencies.md");
    for section in page.split("\n## ").skip(1) {
        let name = section.lines().next().unwrap();
        if !name.starts_with("balde") {
            continue;
        }
        let manifest = read(&format!("crates/{name}/Cargo.toml"));
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        let cells = rows.filter_map(|row| row.split('|').nth(1));
        let shown: BTreeSet<String> = cells
            .flat_map(|cell| spans(&without_asides(cell)))
            .collect();
        let mut known = BTreeSet::new();
        let mut is_in = false;
        for line in manifest.lines() {
            if line.starts_with('[') {
                is_in = line == "[dependencies]" || line.ends_with(".dependencies]");
            } else if let Some((key, _)) = line.split_once([' ', '.']).filter(|_| is_in) {
                let is_name = !key.is_empty()
                    && !key.contains(|c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c)));
                let is_ours = key.starts_with("balde") || !is_name;
                known.extend((!is_ours).then(|| key.to_owned()));
            }
        }
        let missing: Vec<_> = known.difference(&shown).collect();
        let gone: Vec<_> = shown.difference(&known).collect();
        assert!(
            missing.is_empty(),
            "docs/dependencies.md, {name}: no row for {missing:?}"
        );
        assert!(
            gone.is_empty(),
            "docs/dependencies.md, {name}: {gone:?} is no dependency"
        );
    }
}

/// The text without what stands in parentheses.
fn without_asides(text: &str) -> String {
    let parts = text.split('(').enumerate();
    let parts = parts.map(|(index, part)| match part.split_once(')') {
        Some((_, rest)) if index > 0 => rest,
        _ => part,
    });
    parts.collect()
}
