//! The client against servers that misbehave.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use balde::{Clock, ManualClock};
use balde_dict::client::{Client, ClientBuildError, ClientBuilder, ClientError};
use balde_dict::wire::{SignatureError, Verifier};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const PARTICIPANT: &str = "12345678";

/// A server that answers each connection with the next of these responses, and repeats the last one.
/// An empty response closes the connection.
struct Scripted {
    address: String,
    served: Arc<AtomicUsize>,
}

impl Scripted {
    async fn new(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/api/v2/", listener.local_addr().unwrap());
        let served = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&served);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let answer = answers[number.min(answers.len() - 1)].clone();
                let mut request = vec![0; 4_096];
                let _whatever_it_says = stream.read(&mut request).await;
                let _it_may_have_gone = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { address, served }
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }

    fn client(&self) -> ClientBuilder {
        Client::builder(&self.address, PARTICIPANT)
            .backoff(Duration::from_millis(1))
            .wait_max(Duration::from_millis(200))
    }
}

fn response(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n{body}",
        body.len()
    )
}

fn policy(name: &str, tokens: i64, capacity: i64, refill: i64) -> String {
    format!(
        "<Policy><AvailableTokens>{tokens}</AvailableTokens><Capacity>{capacity}</Capacity>\
         <RefillTokens>{refill}</RefillTokens><RefillPeriodSec>60</RefillPeriodSec>\
         <Name>{name}</Name></Policy>"
    )
}

fn list(policies: &str) -> String {
    let body = format!(
        "<ListPoliciesResponse><Category>B</Category><Policies>{policies}</Policies></ListPoliciesResponse>"
    );
    response("200 OK", "", &body)
}

const PROBLEM: &str = "<problem xmlns='urn:ietf:rfc:7807'><type>https://x/error/Forbidden</type>\
                       <title>Forbidden</title><status>403</status></problem>";

#[tokio::test]
async fn negative_and_unknown_states_are_returned_in_order() {
    let server = Scripted::new(vec![list(
        &(policy("NEW", -15, 100, 2) + &policy("B", 1, 2, 3)),
    )])
    .await;
    let states = server
        .client()
        .build()
        .unwrap()
        .list_bucket_states()
        .await
        .unwrap();
    assert_eq!(states.category.as_deref(), Some("B"));
    assert_eq!(states.policies[0].available_tokens, -15);
    assert_eq!(states.policies[1].name, "B");
}

#[tokio::test]
async fn permanent_errors_are_not_retried() {
    let forbidden = Scripted::new(vec![response("403 Forbidden", "", PROBLEM)]).await;
    match forbidden
        .client()
        .build()
        .unwrap()
        .list_bucket_states()
        .await
    {
        Err(ClientError::Forbidden(Some(problem))) => assert_eq!(problem.error_type(), "Forbidden"),
        other => panic!("{other:?}"),
    }
    assert_eq!(forbidden.served(), 1);
    for garbage in [
        "",
        "hello",
        "<html/>",
        "<ListPoliciesResponse><Policies><Policy/></Policies></ListPoliciesResponse>",
    ] {
        let server = Scripted::new(vec![response("200 OK", "", garbage)]).await;
        let answer = server.client().build().unwrap().list_bucket_states().await;
        assert!(
            matches!(answer, Err(ClientError::InvalidResponse(_))),
            "{garbage}: {answer:?}"
        );
        assert_eq!(server.served(), 1, "{garbage}");
    }
    let endless = Scripted::new(vec![response("200 OK", "", &" ".repeat(2 << 20))]).await;
    let answer = endless.client().build().unwrap().list_bucket_states().await;
    assert!(matches!(answer, Err(ClientError::TooLong)), "{answer:?}");
}

/// Returns true for the expected error.
type Expected = fn(&ClientError) -> bool;

#[tokio::test]
async fn transient_errors_are_retried_a_limited_number_of_times() {
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n<ListPol".to_owned();
    let cases: [(String, Expected); 4] = [
        (String::new(), |error| {
            matches!(error, ClientError::Unreachable { .. })
        }),
        (cut, |error| matches!(error, ClientError::Truncated)),
        (response("503 Service Unavailable", "", ""), |error| {
            matches!(
                error,
                ClientError::Unavailable {
                    retry_after: None,
                    ..
                }
            )
        }),
        (response("500 Internal Server Error", "", ""), |error| {
            matches!(error, ClientError::Status { status: 500, .. })
        }),
    ];
    for (answer, expected) in cases {
        let server = Scripted::new(vec![answer.clone()]).await;
        let error = server
            .client()
            .attempts(3)
            .build()
            .unwrap()
            .list_bucket_states()
            .await
            .unwrap_err();
        assert!(expected(&error), "{answer}: {error}");
        assert!(error.is_transient());
        assert_eq!(server.served(), 3, "{answer}");
        let server = Scripted::new(vec![answer, list("")]).await;
        assert!(
            server
                .client()
                .build()
                .unwrap()
                .list_bucket_states()
                .await
                .is_ok()
        );
        assert_eq!(server.served(), 2);
    }
}

#[tokio::test]
async fn a_refused_connection_and_a_timeout_are_different_errors() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/api/v2/", listener.local_addr().unwrap());
    let client = |url: &str| {
        Client::builder(url, PARTICIPANT)
            .attempts(1)
            .timeout(Duration::from_millis(100))
            .build()
            .unwrap()
    };
    assert_eq!(
        client(&url).list_bucket_states().await,
        Err(ClientError::Timeout)
    );
    drop(listener);
    let answer = client(&url).list_bucket_states().await;
    assert!(
        matches!(answer, Err(ClientError::Unreachable { .. })),
        "{answer:?}"
    );
}

#[tokio::test]
async fn retry_after_is_respected_unless_it_is_too_long() {
    let refused = response("429 Too Many Requests", "Retry-After: 3600\r\n", "");
    let server = Scripted::new(vec![refused]).await;
    let error = server
        .client()
        .build()
        .unwrap()
        .list_bucket_states()
        .await
        .unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3_600)));
    assert_eq!(server.served(), 1, "an hour is too long to wait");
    let away = response("503 Service Unavailable", "Retry-After: 0\r\n", "");
    let server = Scripted::new(vec![away, list("")]).await;
    assert!(
        server
            .client()
            .build()
            .unwrap()
            .list_bucket_states()
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn retries_take_from_the_local_bucket_and_never_exceed_it() {
    // The clock does not move, so the bucket's twenty tokens are all there is.
    let clock = ManualClock::new();
    let server = Scripted::new(vec![response("503 Service Unavailable", "", "")]).await;
    let client = server
        .client()
        .attempts(10)
        .wait_max(Duration::from_secs(1))
        .clock(Clock::manual(&clock))
        .build()
        .unwrap();
    let mut own_limits = 0;
    for _ in 0..6 {
        if let Err(ClientError::LocalLimit { .. }) = client.list_bucket_states().await {
            own_limits += 1;
        }
    }
    assert_eq!(
        server.served(),
        20,
        "as many as the policy allows, retries among them"
    );
    assert!(own_limits >= 3, "{own_limits}");
    clock.advance(Duration::from_secs(10));
    let _fails_all_the_same = client.list_bucket_states().await;
    assert_eq!(server.served(), 21, "six a minute");
}

#[tokio::test]
async fn the_local_bucket_takes_over_dicts_limit_and_level() {
    let clock = ManualClock::new();
    let answers = vec![list(&policy("POLICIES_LIST", 1, 5, 60))];
    let server = Scripted::new(answers).await;
    let client = server
        .client()
        .clock(Clock::manual(&clock))
        .build()
        .unwrap();
    assert!(client.list_bucket_states().await.is_ok());
    // DICT reports one token; the next comes after a second, at sixty a minute.
    assert!(client.list_bucket_states().await.is_ok());
    server_says_wait(&client, Duration::from_secs(1)).await;
    assert_eq!(server.served(), 2);
    let in_debt = Scripted::new(vec![list(&policy("POLICIES_LIST", -5, 20, 6))]).await;
    let client = in_debt
        .client()
        .clock(Clock::manual(&clock))
        .build()
        .unwrap();
    assert!(client.list_bucket_states().await.is_ok());
    server_says_wait(&client, Duration::from_secs(60)).await;
    // Numbers that are not a valid limit are ignored.
    let zeros = Scripted::new(vec![list(&policy("POLICIES_LIST", 100, 0, 0))]).await;
    let client = zeros.client().clock(Clock::manual(&clock)).build().unwrap();
    for _ in 0..20 {
        assert!(client.list_bucket_states().await.is_ok());
    }
    server_says_wait(&client, Duration::from_secs(10)).await;
}

async fn server_says_wait(client: &Client, wait: Duration) {
    match client.list_bucket_states().await {
        Err(ClientError::LocalLimit { retry_after }) => assert_eq!(retry_after, wait),
        other => panic!("{other:?}"),
    }
}

#[derive(Debug)]
struct Distrust;

impl Verifier for Distrust {
    fn verify(&self, _document: &[u8]) -> Result<(), SignatureError> {
        Err(SignatureError::Missing)
    }
}

#[tokio::test]
async fn a_response_that_the_verifier_rejects_is_an_error() {
    let server = Scripted::new(vec![list("")]).await;
    let client = server
        .client()
        .verifier(Arc::new(Distrust))
        .build()
        .unwrap();
    let answer = client.list_bucket_states().await;
    assert_eq!(answer, Err(ClientError::Signature(SignatureError::Missing)));
}

#[test]
fn invalid_settings_are_rejected() {
    let build =
        |url: &str, participant: &str| Client::builder(url, participant).build().unwrap_err();
    assert_eq!(build("ftp://x/", PARTICIPANT), ClientBuildError::BaseUrl);
    assert_eq!(build("", PARTICIPANT), ClientBuildError::BaseUrl);
    assert_eq!(build("http://x/", "1"), ClientBuildError::Participant);
    let builder = || Client::builder("http://127.0.0.1/", PARTICIPANT);
    assert!(builder().attempts(0).build().is_err());
    assert!(builder().timeout(Duration::ZERO).build().is_err());
    assert!(builder().list_limit("often").build().is_err());
    let error = builder().ca_pem(b"x").build().unwrap_err();
    assert!(error.to_string().contains("CA"), "{error}");
}
