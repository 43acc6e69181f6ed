//! Real proxies in front of a small upstream, with the example files of `deploy/proxies`.

use std::process::Command;

use crate::eventually;
use crate::proxy_process::{Proxy, Upstream, envoy, examples, free_port, header, program};
use crate::running::Running;

/// The example service on free ports.
async fn service() -> Running {
    let text = std::fs::read_to_string(examples().join("service.toml")).unwrap();
    let text = text.replace(":8081\"", ":0\"").replace(":8082\"", ":0\"");
    Running::start_only(&text).await
}

/// Three searches are forwarded, the fourth is refused with its fields, and others are not limited.
async fn limits_searches(proxy: &Proxy, upstream: &Upstream) {
    // Traefik answers 404 until it has read its routes.
    eventually("the proxy forwards", async || {
        proxy.status("/ready", &[]).await == 200
    })
    .await;
    let before = upstream.served();
    // A client cannot choose the address, path or method that it is counted under.
    let forged = [
        ("x-forwarded-for", "203.0.113.9"),
        ("x-original-uri", "/other"),
        ("x-original-method", "POST"),
        ("x-forwarded-uri", "/other"),
        ("x-forwarded-method", "POST"),
    ];
    for index in 0..3 {
        let fields = if index == 1 { &forged[..] } else { &[] };
        let response = proxy.get("/search?q=shoes", fields).await;
        assert_eq!(response.status(), 200, "request {index}");
    }
    let refused = proxy.get("/search?q=shoes", &forged).await;
    assert_eq!(refused.status(), 429);
    let retry_after: u64 = header(&refused, "retry-after").parse().unwrap();
    assert!((1..=20).contains(&retry_after), "{retry_after}");
    assert_eq!(upstream.served() - before, 3);
    assert_eq!(proxy.status("/other", &[]).await, 200);
    assert_eq!(
        proxy.status("/%73earch", &[]).await,
        429,
        "another spelling of the same path"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_asks_before_it_forwards() {
    let Some(nginx) = program("nginx") else {
        return;
    };
    let (service, upstream) = (service().await, Upstream::start().await);
    let ports = [
        (8_082, service.address("proxy").port()),
        (9_000, upstream.port),
    ];
    let proxy = Proxy::start(&["nginx.conf"], &ports, |folder| {
        let mut command = Command::new(&nginx);
        let pid = folder.join("nginx.pid");
        command
            .arg("-p")
            .arg(folder)
            .arg("-c")
            .arg(folder.join("nginx.conf"));
        command.arg("-e").arg(folder.join("error.log")).arg("-g");
        command.arg(format!(
            "daemon off; master_process off; pid {};",
            pid.display()
        ));
        command
    })
    .await;
    limits_searches(&proxy, &upstream).await;
    let response = proxy.get("/other", &[]).await;
    assert_eq!(response.status(), 200);
    // Without balde the example forwards requests.
    service.stop().await;
    assert_eq!(proxy.status("/search", &[]).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn caddy_asks_before_it_forwards() {
    let Some(caddy) = program("caddy") else {
        return;
    };
    let (service, upstream) = (service().await, Upstream::start().await);
    let ports = [
        (8_082, service.address("proxy").port()),
        (9_000, upstream.port),
    ];
    let proxy = Proxy::start(&["Caddyfile"], &ports, |folder| {
        let mut command = Command::new(&caddy);
        command.args(["run", "--adapter", "caddyfile", "--config"]);
        command.arg(folder.join("Caddyfile"));
        command
    })
    .await;
    limits_searches(&proxy, &upstream).await;
    service.stop().await;
    assert_eq!(
        proxy.status("/search", &[]).await,
        502,
        "without balde Caddy refuses"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn traefik_asks_before_it_forwards() {
    let Some(traefik) = program("traefik") else {
        return;
    };
    let (service, upstream) = (service().await, Upstream::start().await);
    let ports = [
        (8_082, service.address("proxy").port()),
        (9_000, upstream.port),
    ];
    let files = ["traefik.yaml", "traefik-routes.yaml"];
    let proxy = Proxy::start(&files, &ports, |folder| {
        let mut command = Command::new(&traefik);
        command.arg(format!(
            "--configfile={}",
            folder.join("traefik.yaml").display()
        ));
        command
    })
    .await;
    limits_searches(&proxy, &upstream).await;
    service.stop().await;
    assert_eq!(
        proxy.status("/search", &[]).await,
        500,
        "without balde Traefik refuses"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_asks_before_it_forwards() {
    let Some(path) = program("envoy") else { return };
    let (service, upstream) = (service().await, Upstream::start().await);
    let ports = [
        (8_082, service.address("proxy").port()),
        (9_000, upstream.port),
    ];
    let file = "envoy-ext-authz.yaml";
    let proxy = Proxy::start(&[file], &ports, |folder| envoy(&path, folder, file)).await;
    limits_searches(&proxy, &upstream).await;
    service.stop().await;
    assert_eq!(
        proxy.status("/search", &[]).await,
        200,
        "failure_mode_allow is true"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_limits_by_address_and_by_header_through_the_rate_limit_service() {
    let Some(path) = program("envoy") else { return };
    let text = std::fs::read_to_string(examples().join("service.toml")).unwrap();
    // The same port for the service that is started again.
    let port = free_port();
    let text = text
        .replace(":8081\"", &format!(":{port}\""))
        .replace(":8082\"", ":0\"");
    let service = Running::start_only(&text).await;
    let upstream = Upstream::start().await;
    let ports = [(8_081, port), (9_000, upstream.port)];
    let file = "envoy-rate-limit.yaml";
    let proxy = Proxy::start(&[file], &ports, |folder| envoy(&path, folder, file)).await;
    let alice = [("x-user", "alice")];
    for remaining in ["2", "1", "0"] {
        let response = proxy.get("/", &alice).await;
        assert_eq!(response.status(), 200);
        assert_eq!(header(&response, "ratelimit-remaining"), remaining);
        assert_eq!(header(&response, "x-ratelimit-remaining"), remaining);
    }
    let refused = proxy.get("/", &alice).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(header(&refused, "ratelimit-limit"), "3");
    assert_eq!(header(&refused, "x-envoy-ratelimited"), "true");
    let retry_after: u64 = header(&refused, "retry-after").parse().unwrap();
    assert!((1..=20).contains(&retry_after), "{retry_after}");
    // The refused request took nothing from the address: two of five are left.
    assert_eq!(proxy.status("/", &[]).await, 200);
    assert_eq!(proxy.status("/", &[]).await, 200);
    let refused = proxy.get("/", &[]).await;
    assert_eq!(
        (
            refused.status().as_u16(),
            header(&refused, "ratelimit-limit").as_str()
        ),
        (429, "5")
    );
    assert_eq!(upstream.served(), 5);
    service.stop().await;
    assert_eq!(
        proxy.status("/", &alice).await,
        200,
        "failure_mode_deny is false"
    );
    let service = Running::start_only(&text).await;
    eventually("Envoy asks the new service", async || {
        let response = proxy.get("/", &[("x-user", "bob")]).await;
        !header(&response, "ratelimit-remaining").is_empty()
    })
    .await;
    service.stop().await;
}

#[tokio::test]
async fn an_address_that_is_not_trusted_gets_no_answer() {
    let text = std::fs::read_to_string(examples().join("service.toml")).unwrap();
    let text = text.replace(":8081\"", ":0\"").replace(":8082\"", ":0\"");
    let text = text.replace("[\"127.0.0.1\"]", "[\"192.0.2.1\"]");
    let service = Running::start_only(&text).await;
    let url = format!("http://{}/ext-authz/search", service.address("proxy"));
    let response = service.client.get(url).send().await.unwrap();
    assert_eq!(response.status(), 403);
    assert!(response.text().await.unwrap().contains("trusted_proxies"));
    service.stop().await;
}
