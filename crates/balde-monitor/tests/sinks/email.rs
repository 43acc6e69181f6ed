//! E-mails, as a real mail server (aiosmtpd) gets them.

use std::time::Duration;

use balde_monitor::alert::SinkClass;
use balde_monitor::delivery::DeliverySettings;
use balde_monitor::sink::{
    Email, EmailSettings, SendError, SendErrorKind, Sink, Wording, email_text,
};
use serde_json::Value;

use crate::messages::{TEN_US, commit_events, episode, every_kind, history, message};
use crate::servers::{Authority, Server};
use crate::stories::{deliver_all, dispatcher};

const SCRIPT: &str = include_str!("servers/mail.py");
const FROM: &str = "Balde <balde@bank.example>";

fn server(mode: &str, authority: &Authority, login: bool) -> Option<Server> {
    let (user, password) = if login {
        ("balde", "hunter2")
    } else {
        ("", "")
    };
    let (cert, key) = (authority.path("cert"), authority.path("key"));
    Server::start("aiosmtpd", SCRIPT, &[mode, &cert, &key, user, password])
}

fn settings(scheme: &str, server: &Server, authority: &Authority) -> EmailSettings {
    let to = ["on-call@bank.example", "Escalation <boss@bank.example>"];
    let url = format!("{scheme}://127.0.0.1:{}", server.port());
    EmailSettings::new(url, FROM, to.map(str::to_owned).to_vec())
        .ca_pem(authority.ca_pem.as_bytes())
        .timeout(Duration::from_secs(60))
}

fn sink(settings: EmailSettings) -> Sink {
    Sink::Email(Email::new(settings).expect("settings that make sense"))
}

async fn attempt(settings: EmailSettings) -> Result<(), SendError> {
    let message = message(episode("A").remove(0), SinkClass::Chat);
    let wording = Wording::default();
    sink(settings).deliver(&message, TEN_US, &wording).await
}

fn messages(lines: &[Value]) -> Vec<&Value> {
    lines
        .iter()
        .filter(|line| line["event"] == "message")
        .collect()
}

#[tokio::test]
async fn mails_arrive_over_tls_and_starttls_with_everything_that_people_and_programs_need() {
    let authority = Authority::new();
    for (mode, scheme) in [("tls", "smtps"), ("starttls", "smtp")] {
        let Some(mut server) = server(mode, &authority, true) else {
            return;
        };
        let settings = settings(scheme, &server, &authority).credentials("balde", "hunter2");
        let sink = sink(settings);
        let events = episode("ENTRIES_WRITE");
        for event in events.iter().chain([&events[0]]) {
            let message = message(event.clone(), SinkClass::Chat);
            let sent = sink.deliver(&message, TEN_US, &Wording::default()).await;
            assert_eq!(sent, Ok(()), "{mode}");
        }
        let printed = server.printed();
        let mails = messages(&printed);
        assert_eq!(mails.len(), 4);
        for (mail, event) in mails.iter().zip(&events) {
            assert_eq!(
                (&mail["tls"], &mail["user"]),
                (&true.into(), &"balde".into()),
                "{mode}"
            );
            assert_eq!(mail["sender"], "balde@bank.example");
            assert_eq!(mail["to"][1], "boss@bank.example");
            let headers = &mail["headers"];
            assert_eq!(headers["Subject"], Wording::default().title(event));
            assert_eq!(headers["X-Balde-Key"], event.key);
            assert_eq!(headers["Auto-Submitted"], "auto-generated");
            assert_eq!(headers["References"], mails[0]["headers"]["References"]);
            let text = mail["text"].as_str().unwrap().replace("\r\n", "\n");
            assert_eq!(
                text.trim_end(),
                email_text(event, &Wording::default()).trim_end()
            );
        }
        let id = |mail: usize| mails[mail]["headers"]["Message-ID"].clone();
        assert_eq!(
            id(0),
            id(3),
            "a message that is sent twice is the same message"
        );
        assert_ne!(id(0), id(1));
        assert_eq!(mails[0]["headers"]["Importance"], "high");
        assert_eq!(mails[2]["headers"]["Importance"], "normal", "it is over");
    }
}

#[tokio::test]
async fn nothing_is_said_to_a_server_without_tls_or_with_a_certificate_of_somebody_else() {
    let (authority, other) = (Authority::new(), Authority::new());
    let Some(mut server) = server("starttls", &authority, false) else {
        return;
    };
    let failure = attempt(settings("smtp", &server, &other))
        .await
        .unwrap_err();
    assert!(
        matches!(failure.kind(), SendErrorKind::Unreachable { .. }),
        "{failure}"
    );
    assert!(failure.to_string().contains("certificate"), "{failure}");
    assert!(failure.is_transient());
    assert_eq!(messages(&server.printed()).len(), 0);

    let Some(mut plain) = self::server("plain", &authority, false) else {
        return;
    };
    let failure = attempt(settings("smtp", &plain, &authority))
        .await
        .unwrap_err();
    assert!(failure.to_string().contains("STARTTLS"), "{failure}");
    assert_eq!(messages(&plain.printed()).len(), 0);
    let allowed = settings("smtp", &plain, &authority).without_tls();
    assert_eq!(attempt(allowed).await, Ok(()));
    assert_eq!(messages(&plain.printed())[0]["tls"], false);
}

#[tokio::test]
async fn rejections_show_what_the_server_said_but_no_password() {
    let authority = Authority::new();
    let Some(server) = server("tls", &authority, true) else {
        return;
    };
    let wrong = settings("smtps", &server, &authority).credentials("balde", "not-hunter2");
    let failure = attempt(wrong).await.unwrap_err();
    assert!(
        matches!(failure.kind(), SendErrorKind::Rejected { .. }),
        "{failure}"
    );
    assert!(failure.to_string().contains("535"), "{failure}");
    assert!(!failure.to_string().contains("hunter2"), "{failure}");

    let url = format!("smtps://127.0.0.1:{}", server.port());
    let nobody = EmailSettings::new(url, FROM, vec!["nobody@bank.example".to_owned()])
        .ca_pem(authority.ca_pem.as_bytes())
        .credentials("balde", "hunter2");
    let failure = attempt(nobody).await.unwrap_err();
    assert!(!failure.is_transient(), "{failure}");
    assert!(failure.to_string().contains("no such mailbox"), "{failure}");
}

#[tokio::test]
async fn a_server_that_defers_and_one_that_was_down_get_every_mail_in_the_end() {
    let authority = Authority::new();
    let Some(mut server) = server("tls", &authority, false) else {
        return;
    };
    let (_folder, history) = history().await;
    let sinks = vec![("mail", sink(settings("smtps", &server, &authority)))];
    let dispatcher = dispatcher(&history, &DeliverySettings::default(), sinks);
    let events = [episode("A"), episode("B"), episode("C")].concat();
    server.tell("down");
    commit_events(&history, &events, &["mail"]).await;
    let down = dispatcher
        .deliver_once(TEN_US, Duration::from_secs(60))
        .await
        .unwrap();
    assert_eq!(
        (down.delivered, down.failed),
        (0, 3),
        "the first of each episode"
    );
    server.tell("up");
    server.tell("defer 2");
    deliver_all(&history, &dispatcher, &["mail"]).await;
    let printed = server.printed();
    let deferred = printed
        .iter()
        .filter(|line| line["event"] == "deferred")
        .count();
    assert_eq!(deferred, 2);
    let mails = messages(&printed);
    assert_eq!(mails.len(), events.len(), "each once");
    for episode in events.chunks(3) {
        let keys: Vec<&str> = mails
            .iter()
            .filter_map(|mail| mail["headers"]["X-Balde-Key"].as_str())
            .filter(|key| episode.iter().any(|event| event.key == *key))
            .collect();
        let expected: Vec<&str> = episode.iter().map(|event| event.key.as_str()).collect();
        assert_eq!(keys, expected, "in order");
    }
}

#[tokio::test]
async fn no_name_breaks_a_header() {
    let authority = Authority::new();
    let Some(mut server) = server("plain", &authority, false) else {
        return;
    };
    let sink = sink(settings("smtp", &server, &authority).without_tls());
    let mut events: Vec<_> = every_kind().into_iter().step_by(9).collect();
    events[0].participant = "1\r\nBcc: evil@bank.example\r\n\r\nboo".to_owned();
    for event in &events {
        let message = message(event.clone(), SinkClass::Chat);
        let sent = sink.deliver(&message, TEN_US, &Wording::default()).await;
        assert_eq!(sent, Ok(()), "{event:?}");
    }
    let printed = server.printed();
    let mails = messages(&printed);
    assert_eq!(mails.len(), events.len());
    for mail in mails {
        assert!(mail["headers"].get("Bcc").is_none(), "{mail}");
        assert_eq!(mail["to"].as_array().unwrap().len(), 2, "{mail}");
        assert!(
            !mail["headers"]["Subject"].as_str().unwrap().contains('\n'),
            "{mail}"
        );
    }
}

#[test]
fn invalid_settings_are_rejected_with_their_reason() {
    let to = |to: &str| vec![to.to_owned()];
    let good = || EmailSettings::new("smtps://mail.example", FROM, to("a@b.example"));
    for (settings, expected) in [
        (
            EmailSettings::new("https://mail.example", FROM, to("a@b.example")),
            "smtps://",
        ),
        (
            EmailSettings::new("smtps://u:p@mail.example", FROM, to("a@b.example")),
            "smtps://",
        ),
        (
            EmailSettings::new("smtps://mail.example", "balde", to("a@b.example")),
            "`from`",
        ),
        (
            EmailSettings::new("smtps://mail.example", FROM, Vec::new()),
            "1 to 50",
        ),
        (
            EmailSettings::new(
                "smtps://mail.example",
                FROM,
                vec!["a@b.example".to_owned(); 51],
            ),
            "1 to 50",
        ),
        (good().credentials("balde", ""), "empty"),
        (good().ca_pem(b"no certificate"), "PEM"),
        (good().timeout(Duration::ZERO), "timeout"),
    ] {
        let error = Email::new(settings).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
