//! What each way of answering means for one attempt.

use std::time::Duration;

use balde_monitor::alert::SinkClass;
use balde_monitor::sink::{
    HttpSettings, RESPONSE_CHARS_MAX, RETRY_AFTER_MAX, SendError, SendErrorKind, Sink, Webhook,
};

use crate::messages::{TEN_US, episode, message};
use crate::receiver::{Answer, Receiver};

/// What one attempt comes to when it is answered so.
async fn attempt(answer: Answer, timeout: Duration) -> Result<(), SendError> {
    let receiver = Receiver::start(move |_| answer.clone()).await;
    let settings = HttpSettings::default().timeout(timeout);
    let sink = Sink::Webhook(Webhook::new(receiver.url(), "secret", &settings).unwrap());
    let message = message(episode("A").remove(0), SinkClass::Event);
    let result = sink
        .deliver(&message, TEN_US, &balde_monitor::sink::Wording::default())
        .await;
    assert_eq!(receiver.requests().len(), 1, "one attempt is one request");
    result
}

async fn failure(answer: Answer) -> SendError {
    attempt(answer, Duration::from_secs(20)).await.unwrap_err()
}

fn status(status: u16, lines: &str, body: &str) -> Answer {
    Answer::Status(status, lines.to_owned(), body.to_owned())
}

#[tokio::test]
async fn what_was_accepted_is_delivered_whatever_comes_after() {
    for answer in [
        Answer::Accept,
        Answer::status(200),
        Answer::status(204),
        Answer::TruncatedAccept,
        Answer::EndlessAccept,
    ] {
        let result = attempt(answer.clone(), Duration::from_secs(20)).await;
        assert_eq!(result, Ok(()), "{answer:?}");
    }
}

#[tokio::test]
async fn failures_say_whether_they_can_pass_by_themselves() {
    for (answer, is_transient) in [
        (Answer::status(500), true),
        (Answer::status(502), true),
        (Answer::status(408), true),
        (Answer::status(429), true),
        (Answer::Close, true),
        (Answer::HeaderFlood, true),
        (Answer::Garbage, true),
        (Answer::EndlessRefusal, true),
        (Answer::status(400), false),
        (Answer::status(401), false),
        (Answer::status(404), false),
        (status(302, "location: http://127.0.0.1:1/\r\n", ""), false),
    ] {
        let failure = failure(answer.clone()).await;
        assert_eq!(
            failure.is_transient(),
            is_transient,
            "{answer:?}: {failure}"
        );
    }
}

#[tokio::test]
async fn refused_connections_and_timeouts_are_distinguished() {
    let message = message(episode("A").remove(0), SinkClass::Event);
    let settings = HttpSettings::default();
    // Nothing listens on a port that was free a moment ago and is held by this socket now.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let url = format!("http://{}/", socket.local_addr().unwrap());
    let sink = Sink::Webhook(Webhook::new(url, "secret", &settings).unwrap());
    let failure = sink
        .deliver(&message, TEN_US, &balde_monitor::sink::Wording::default())
        .await
        .unwrap_err();
    assert!(
        matches!(failure.kind(), SendErrorKind::Unreachable { .. }),
        "{failure}"
    );
    assert!(failure.is_transient());

    let failure = attempt(Answer::Hang, Duration::from_millis(50))
        .await
        .unwrap_err();
    assert_eq!(*failure.kind(), SendErrorKind::Timeout);
    assert!(failure.is_transient());
}

#[tokio::test]
async fn a_refusal_says_what_the_receiver_said_shortened() {
    let body = r#"{"status":"invalid event","errors":["Length of 'routing_key' is incorrect"]}"#;
    let failure = failure(status(400, "", body)).await;
    assert_eq!(
        failure.to_string(),
        format!("the receiver responded with status 400: {body}")
    );
    let failure = self::failure(Answer::EndlessRefusal).await;
    let SendErrorKind::Status { status, body } = failure.kind() else {
        panic!("{failure}");
    };
    assert_eq!((*status, body.len()), (500, RESPONSE_CHARS_MAX));
}

#[tokio::test]
async fn retry_after_is_read_in_both_forms_and_has_an_end() {
    let seconds = |s| Some(Duration::from_secs(s));
    for (code, lines, expected) in [
        (429, "retry-after: 7\r\n", seconds(7)),
        (503, "retry-after: 120\r\n", seconds(120)),
        // Ninety seconds after the moment of the attempt.
        (
            429,
            "retry-after: Sun, 15 Nov 2026 10:01:30 GMT\r\n",
            seconds(90),
        ),
        (
            503,
            "retry-after: Sun, 15 Nov 2026 10:01:30 GMT\r\n",
            seconds(90),
        ),
        // A date that is past is no wait.
        (
            429,
            "retry-after: Sun, 15 Nov 2026 09:00:00 GMT\r\n",
            seconds(0),
        ),
        (429, "retry-after: 999999999999\r\n", Some(RETRY_AFTER_MAX)),
        (429, "retry-after: soon\r\n", None),
        (429, "", None),
        // Only where it means what it says.
        (400, "retry-after: 7\r\n", None),
    ] {
        let failure = failure(status(code, lines, "")).await;
        assert_eq!(failure.retry_after(), expected, "{code} {lines}");
    }
}
