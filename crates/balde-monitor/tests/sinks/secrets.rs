//! Secrets, looked for in everything that gets out.

use std::fmt::Write;
use std::time::Duration;

use balde_monitor::delivery::DeliverySettings;
use balde_monitor::sink::{HttpSettings, IncidentWebhook, PagerDuty, Sink, Slack, Webhook};
use tracing_subscriber::layer::SubscriberExt;

use crate::log::Lines;
use crate::messages::{TEN_US, commit_events, episode, history};
use crate::receiver::{Answer, Receiver};
use crate::stories::dispatcher;

const ROUTING_KEY: &str = "r0uting00000000000000000000secret";
const SECRETS: [&str; 4] = [
    "T0SECRET00/B0SECRET00/tokensecret0000000",
    "tokensecret0000000",
    "hmac-secret-0000",
    "proxy-password",
];

#[tokio::test]
async fn no_secret_is_in_a_log_line_an_error_the_database_or_a_debug_form() {
    let routing_key = &ROUTING_KEY[..32];
    let lines = Lines::default();
    let writer = {
        let lines = lines.clone();
        move || lines.clone()
    };
    // All log levels, not only the default ones.
    let everything =
        balde::telemetry::json_logs_at(tracing::level_filters::LevelFilter::TRACE, writer);
    let _listening =
        tracing::subscriber::set_default(tracing_subscriber::registry().with(everything));
    // A receiver that repeats whatever it was sent.
    let echo = |request: &crate::receiver::Request| {
        let body = String::from_utf8_lossy(&request.body);
        let key = body.split("\"routing_key\":").nth(1).unwrap_or_default();
        let text = format!("what is {}? and {key:.40}?", request.path);
        Answer::Status(400, String::new(), text)
    };
    let receiver = Receiver::start(echo).await;
    let base = receiver.url().replace("/hook", "");
    let secret_url = format!("{base}/services/{}", SECRETS[0]);
    let nobody = HttpSettings::default()
        .timeout(Duration::from_secs(5))
        .proxy(format!("http://user:{}@127.0.0.1:1", SECRETS[3]));
    let plain = HttpSettings::default();
    let sinks = || {
        vec![
            (
                "slack",
                Sink::Slack(Slack::new(&*secret_url, &plain).unwrap()),
            ),
            (
                "nobody",
                Sink::Slack(Slack::new(&*secret_url, &nobody).unwrap()),
            ),
            (
                "hook",
                Sink::Webhook(Webhook::new(&*secret_url, SECRETS[2], &plain).unwrap()),
            ),
            (
                "incident",
                Sink::Incident(IncidentWebhook::new(&*secret_url, SECRETS[2], &plain).unwrap()),
            ),
            (
                "pager",
                Sink::PagerDuty(PagerDuty::at(&*secret_url, routing_key, &plain).unwrap()),
            ),
        ]
    };
    let mut said = format!("{:?} {nobody:?}", sinks());
    let (_folder, history) = history().await;
    let dispatcher = dispatcher(&history, &DeliverySettings::default(), sinks());
    commit_events(
        &history,
        &episode("A"),
        &["slack", "nobody", "hook", "incident", "pager"],
    )
    .await;
    let round = dispatcher
        .deliver_once(TEN_US, Duration::from_secs(60))
        .await
        .unwrap();
    assert_eq!((round.delivered, round.failed), (0, 5));
    let backlog = history.backlog().await.unwrap();
    write!(said, "{dispatcher:?} {history:?} {backlog:?}").unwrap();
    for (_, sink) in sinks() {
        let message = crate::messages::message(
            episode("A").remove(0),
            balde_monitor::alert::SinkClass::Page,
        );
        let failure = sink
            .deliver(&message, TEN_US, &balde_monitor::sink::Wording::default())
            .await
            .unwrap_err();
        write!(said, "{failure} {failure:?}").unwrap();
    }
    for error in [
        Slack::new("not-a-url-tokensecret0000000", &plain).unwrap_err(),
        PagerDuty::new("tokensecret0000000", &plain).unwrap_err(),
    ] {
        write!(said, "{error} {error:?}").unwrap();
    }
    assert!(
        said.contains("what is ***"),
        "the receiver's words are shown: {said}"
    );
    let log = lines.text();
    assert!(
        log.contains("delivery_rejected") && log.contains("delivery_failed"),
        "{log}"
    );
    for secret in SECRETS.iter().chain([&routing_key]) {
        assert!(!said.contains(secret), "{secret} in {said}");
        for line in log.lines() {
            assert!(!line.contains(secret), "{secret} in {line}");
        }
    }
}
