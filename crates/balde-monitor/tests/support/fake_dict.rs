//! A fake DICT whose response is set by the test, and which counts requests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// How it responds to a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// With these buckets: policy, level, capacity, refill per minute.
    Buckets(Vec<(&'static str, i64, u64, u64)>),
    /// With a status, an optional Retry-After and a body.
    Status(u16, Option<u64>, &'static str),
    /// With status 200 and this body.
    Body(&'static str),
    /// With the beginning of a valid response.
    Truncated,
    /// By closing the connection.
    Close,
    /// Not at all; the connection stays open.
    Hang,
}

#[derive(Clone)]
pub(crate) struct FakeDict {
    inner: Arc<Mutex<Inner>>,
    address: SocketAddr,
}

struct Inner {
    answer: Answer,
    category: char,
    requests: u64,
    /// The numbers of the requests that listed all buckets; the others read one.
    lists: BTreeSet<u64>,
    /// The policies that the others read.
    reads: BTreeMap<u64, String>,
    /// Called for every request before the response.
    on_request: Option<Box<dyn FnMut(u64) -> Option<Answer> + Send>>,
}

impl FakeDict {
    pub(crate) async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Mutex::new(Inner {
            answer,
            category: 'A',
            requests: 0,
            lists: BTreeSet::new(),
            reads: BTreeMap::new(),
            on_request: None,
        }));
        let served = Arc::clone(&inner);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let inner = Arc::clone(&served);
                tokio::spawn(async move { serve(stream, inner).await });
            }
        });
        Self { inner, address }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/api/v2/", self.address)
    }

    pub(crate) fn answer(&self, answer: Answer) {
        self.lock().answer = answer;
    }

    pub(crate) fn requests(&self) -> u64 {
        self.lock().requests
    }

    /// The numbers of the requests that listed all buckets.
    pub(crate) fn lists(&self) -> BTreeSet<u64> {
        self.lock().lists.clone()
    }

    /// The numbers of the requests that read one bucket, and its policy.
    pub(crate) fn reads(&self) -> BTreeMap<u64, String> {
        self.lock().reads.clone()
    }

    pub(crate) fn category(&self, category: char) {
        self.lock().category = category;
    }

    /// Calls `on_request` with the number of every request. An answer that it returns is used from
    /// then on.
    pub(crate) fn on_request(
        &self,
        on_request: impl FnMut(u64) -> Option<Answer> + Send + 'static,
    ) {
        self.lock().on_request = Some(Box::new(on_request));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn serve(mut stream: TcpStream, inner: Arc<Mutex<Inner>>) -> Option<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        let policy = policy_of(&head);
        let (answer, category) = {
            let mut inner = inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.requests += 1;
            let number = inner.requests;
            match &policy {
                Some(policy) => {
                    inner.reads.insert(number, policy.clone());
                }
                None => {
                    inner.lists.insert(number);
                }
            }
            let hook = inner.on_request.as_mut();
            if let Some(answer) = hook.and_then(|hook| hook(number)) {
                inner.answer = answer;
            }
            (inner.answer.clone(), inner.category)
        };
        let text = match answer {
            Answer::Buckets(buckets) => match &policy {
                Some(policy) => match buckets.iter().find(|(name, ..)| name == policy) {
                    Some(bucket) => http(200, None, &single(bucket, category)),
                    None => http(404, None, ""),
                },
                None => http(200, None, &document(&buckets, category)),
            },
            Answer::Status(status, retry_after, body) => http(status, retry_after, body),
            Answer::Body(body) => http(200, None, body),
            Answer::Truncated => {
                let whole = http(
                    200,
                    None,
                    &document(&[("ENTRIES_WRITE", 1, 2, 3)], category),
                );
                let half = &whole.as_bytes()[..whole.len() - 40];
                stream.write_all(half).await.ok()?;
                return None;
            }
            Answer::Close => return None,
            Answer::Hang => {
                tokio::time::sleep(Duration::from_secs(3_600)).await;
                return None;
            }
        };
        stream.write_all(text.as_bytes()).await.ok()?;
    }
}

/// The policy that a request reads alone: `GET /api/v2/policies/NAME`.
fn policy_of(head: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    let path = head.split(' ').nth(1)?;
    let (_, name) = path.split_once("/policies/")?;
    (!name.is_empty()).then(|| name.to_owned())
}

fn single(bucket: &(&str, i64, u64, u64), category: char) -> String {
    format!(
        "<GetPolicyResponse><Signature></Signature><Category>{category}</Category>{}\
         </GetPolicyResponse>",
        element(bucket)
    )
}

fn element((name, level, capacity, refill): &(&str, i64, u64, u64)) -> String {
    let name = name.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<Policy><AvailableTokens>{level}</AvailableTokens><Capacity>{capacity}</Capacity>\
         <RefillTokens>{refill}</RefillTokens><RefillPeriodSec>60</RefillPeriodSec>\
         <Name>{name}</Name></Policy>"
    )
}

fn document(buckets: &[(&str, i64, u64, u64)], category: char) -> String {
    let policies: String = buckets.iter().map(element).collect();
    format!(
        "<ListPoliciesResponse><Signature></Signature><Category>{category}</Category>\
         <Policies>{policies}</Policies></ListPoliciesResponse>"
    )
}

fn http(status: u16, retry_after: Option<u64>, body: &str) -> String {
    let retry_after = retry_after.map_or(String::new(), |s| format!("Retry-After: {s}\r\n"));
    format!(
        "HTTP/1.1 {status} Fake\r\nContent-Type: application/xml\r\n{retry_after}Content-Length: \
         {}\r\n\r\n{body}",
        body.len()
    )
}
