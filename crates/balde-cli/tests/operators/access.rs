//! Tokens with roles, and an authenticating proxy: who may acknowledge, tried from several addresses.

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use crate::processes::{Service, client_from, get_json, start_monitor, wait_for};
use crate::source::{PARTICIPANT, POLICY, Source};

/// The proxy connects from the second address of this machine.
const FILE: &str = "[http]\naddress = \"127.0.0.1:0\"\n\
    public_url = \"https://monitor.example.com\"\n\
    [[http.token]]\nname = \"grafana\"\nrole = \"read\"\ntoken_env = \"READ_TOKEN\"\n\
    [[http.token]]\nname = \"ana\"\nrole = \"acknowledge\"\ntoken_env = \"ANA_TOKEN\"\n\
    [[http.token]]\nname = \"robot\"\nrole = \"admin\"\ntoken_env = \"ADMIN_TOKEN\"\n\
    [http.sso]\ntrusted_proxies = [\"127.0.0.2\"]\n\
    acknowledge_groups = [\"oncall\"]\nadmin_groups = [\"sre\"]\n";

struct World {
    monitor: Service,
    _source: Source,
    _folder: tempfile::TempDir,
    client: Client,
    proxy: Client,
}

impl World {
    /// A monitor whose only bucket is empty, with an open alert.
    async fn start(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = Source::start(0).await;
        let section = source.section();
        let file = format!("{more}{section}");
        std::fs::write(folder.path().join("monitor.toml"), file).unwrap();
        Self {
            monitor: start_monitor(folder.path()),
            _source: source,
            _folder: folder,
            client: client_from("127.0.0.1"),
            proxy: client_from("127.0.0.2"),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.monitor.address)
    }

    /// The bucket, once its alert is open.
    async fn bucket(&self, client: &Client, token: &str) -> Value {
        wait_for("the alert is open", async || {
            let request = client.get(self.url("/api/v1/states")).bearer_auth(token);
            let states: Value = request.send().await.unwrap().json().await.unwrap();
            let bucket = states["participants"][0]["buckets"][0].clone();
            bucket["episode"].is_string().then_some(bucket)
        })
        .await
    }

    async fn acknowledge(
        &self,
        client: &Client,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> StatusCode {
        let mut request = client.post(self.url("/api/v1/acknowledgements")).json(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap().status()
    }

    async fn acknowledged_by(&self) -> Value {
        let states = get_json(&self.client, &self.url("/api/v1/states")).await;
        states["participants"][0]["buckets"][0]["acknowledged"]["by"].clone()
    }
}

#[tokio::test]
async fn a_read_token_cannot_acknowledge_and_a_name_comes_from_the_token() {
    let world = World::start(FILE).await;
    let client = &world.client;
    let bucket = world.bucket(client, "").await;
    // What a token's holder calls itself does not count.
    let body = json!({"episode": bucket["episode"], "by": "the boss"});
    for (token, status) in [
        ("", 403),
        ("Bearer wrong", 403),
        ("Bearer a-token-that-may-read", 403),
        ("Bearer the-token-of-ana-silva", 201),
    ] {
        let headers = [("authorization", token)];
        let answer = world.acknowledge(client, &headers, &body).await;
        assert_eq!(answer, status, "{token}");
        let expected = if status == 201 {
            json!("ana")
        } else {
            Value::Null
        };
        assert_eq!(world.acknowledged_by().await, expected, "{token}");
    }
    // The entry in the timeline, and in the log.
    let alerts = get_json(client, &world.url("/api/v1/alerts?limit=1")).await;
    assert_eq!(
        alerts[0]["kind"],
        json!({"type": "acknowledged", "by": "ana"})
    );
    let line = wait_for("the log says it", async || {
        let log = world.monitor.log.lock().unwrap();
        let line = log
            .iter()
            .find(|line| line.contains("acknowledged the alert"));
        line.cloned()
    })
    .await;
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&line["level"], &line["kind"]),
        (&json!("INFO"), &json!("acknowledged"))
    );
    let page = format!("https://monitor.example.com/#/policy/{PARTICIPANT}/{POLICY}");
    assert_eq!(line["dashboard"], page);

    // Undone with the same role, not with a lower one.
    let episode = bucket["episode"].as_str().unwrap();
    for (token, status) in [
        ("a-token-that-may-read", 403),
        ("the-token-of-ana-silva", 204),
        ("the-token-of-ana-silva", 404),
    ] {
        let request =
            client.delete(world.url(&format!("/api/v1/acknowledgements?episode={episode}")));
        let request = request.bearer_auth(token);
        assert_eq!(request.send().await.unwrap().status(), status, "{token}");
    }
    assert_eq!(world.acknowledged_by().await, Value::Null);
}

#[tokio::test]
async fn only_admins_silence_more_than_one_bucket_for_a_day() {
    let world = World::start(FILE).await;
    let client = &world.client;
    world.bucket(client, "").await;
    let one =
        json!({"participant": PARTICIPANT, "policy": POLICY, "up_to": "EXHAUSTED", "minutes": 60});
    let long = json!({"participant": PARTICIPANT, "policy": POLICY, "up_to": "EXHAUSTED", "minutes": 2_000});
    let all = json!({"up_to": "EXHAUSTED", "minutes": 60});
    for (token, body, status) in [
        ("a-token-that-may-read", &one, 403),
        ("the-token-of-ana-silva", &one, 201),
        ("the-token-of-ana-silva", &long, 403),
        ("the-token-of-ana-silva", &all, 403),
        ("a-token-that-may-do-all", &all, 201),
    ] {
        let request = client.post(world.url("/api/v1/silences")).json(body);
        let response = request.bearer_auth(token).send().await.unwrap();
        assert_eq!(response.status(), status, "{token} {body}");
    }
    let silences = get_json(client, &world.url("/api/v1/silences")).await;
    let by: Vec<&Value> = silences
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["by"])
        .collect();
    assert!(
        by.contains(&&json!("ana")) && by.contains(&&json!("robot")),
        "{silences}"
    );
    let states = get_json(client, &world.url("/api/v1/states")).await;
    let mark = &states["participants"][0]["buckets"][0]["silenced"];
    assert_eq!(mark["up_to"], "EXHAUSTED", "{states}");
}

#[tokio::test]
async fn a_proxys_user_counts_from_its_network_only() {
    let world = World::start(FILE).await;
    let bucket = world.bucket(&world.client, "").await;
    let body = json!({"episode": bucket["episode"]});
    let ana = [
        ("x-forwarded-user", "ana@example.com"),
        ("x-forwarded-groups", "staff,oncall"),
    ];
    let reader = [
        ("x-forwarded-user", "rui@example.com"),
        ("x-forwarded-groups", "staff"),
    ];
    // From another address, the header fields are ignored.
    assert_eq!(world.acknowledge(&world.client, &ana, &body).await, 403);
    let me = world
        .client
        .get(world.url("/api/v1/me"))
        .header("x-forwarded-user", "ana@example.com");
    let me: Value = me.send().await.unwrap().json().await.unwrap();
    assert_eq!((&me["name"], &me["role"]), (&Value::Null, &json!("read")));
    assert_eq!(world.acknowledge(&world.proxy, &reader, &body).await, 403);
    assert_eq!(world.acknowledge(&world.proxy, &[], &body).await, 403);
    assert_eq!(world.acknowledge(&world.proxy, &ana, &body).await, 201);
    assert_eq!(world.acknowledged_by().await, "ana@example.com");
}

#[tokio::test]
async fn where_reading_needs_authentication_nothing_is_read_without_it() {
    let file = FILE.replacen("[http]\n", "[http]\nread = \"authenticated\"\n", 1);
    let world = World::start(&file).await;
    world.bucket(&world.client, "a-token-that-may-read").await;
    for path in [
        "states",
        "alerts",
        "incidents",
        "status",
        "silences",
        "stream",
    ] {
        let response = world.client.get(world.url(&format!("/api/v1/{path}")));
        let response = response
            .header("x-forwarded-user", "ana")
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 401, "{path}");
    }
    for (path, status) in [
        ("/metrics", 401),
        ("/", 200),
        ("/healthz", 200),
        ("/readyz", 200),
    ] {
        let response = world.client.get(world.url(path)).send().await.unwrap();
        assert_eq!(response.status(), status, "{path}");
    }
    let metrics = world.client.get(world.url("/metrics"));
    let metrics = metrics.bearer_auth("a-token-that-may-read").send().await;
    assert_eq!(metrics.unwrap().status(), 200);
    let states = world
        .proxy
        .get(world.url("/api/v1/states"))
        .header("x-forwarded-user", "rui");
    assert_eq!(states.send().await.unwrap().status(), 200);
}
