//! A DICT that answers what it is told to, sound or not, and counts who asked.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What it does with a question.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// These buckets: policy, level, capacity, refill in a minute.
    Buckets(Vec<(&'static str, i64, u64, u64)>),
    /// A status with a body, and perhaps a Retry-After.
    Status(u16, Option<u64>, &'static str),
    /// 200, and this.
    Garbage(&'static str),
    /// The beginning of a good answer.
    Truncated,
    /// A connection that is closed without a word.
    Nothing,
    /// A connection that is kept open without a word.
    Silence,
}

#[derive(Clone)]
pub(crate) struct FakeDict {
    inner: Arc<Mutex<Inner>>,
    address: SocketAddr,
}

struct Inner {
    answer: Answer,
    category: char,
    asked: u64,
    /// Is told of every question before it is answered.
    staleness: Option<Box<dyn FnMut(u64) -> Option<Answer> + Send>>,
}

impl FakeDict {
    pub(crate) async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Mutex::new(Inner {
            answer,
            category: 'A',
            asked: 0,
            staleness: None,
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

    pub(crate) fn asked(&self) -> u64 {
        self.lock().asked
    }

    pub(crate) fn category(&self, category: char) {
        self.lock().category = category;
    }

    /// Calls `watch` with the number of every question; what it gives is answered from then on.
    pub(crate) fn watch(&self, watch: impl FnMut(u64) -> Option<Answer> + Send + 'static) {
        self.lock().watch = Some(Box::new(watch));
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
        let (answer, category) = {
            let mut inner = inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.asked += 1;
            let asked = inner.asked;
            if let Some(answer) = inner.watch.as_mut().and_then(|watch| watch(asked)) {
                inner.answer = answer;
            }
            (inner.answer.clone(), inner.category)
        };
        let text = match answer {
            Answer::Buckets(buckets) => http(200, None, &document(&buckets, category)),
            Answer::Status(status, retry_after, body) => http(status, retry_after, body),
            Answer::Garbage(body) => http(200, None, body),
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
            Answer::Nothing => return None,
            Answer::Silence => {
                tokio::time::sleep(Duration::from_secs(3_600)).await;
                return None;
            }
        };
        stream.write_all(text.as_bytes()).await.ok()?;
    }
}

fn document(buckets: &[(&str, i64, u64, u64)], category: char) -> String {
    let policy = |(name, level, capacity, refill): &(&str, i64, u64, u64)| {
        let name = name.replace('&', "&amp;").replace('<', "&lt;");
        format!(
            "<Policy><AvailableTokens>{level}</AvailableTokens><Capacity>{capacity}</Capacity>\
             <RefillTokens>{refill}</RefillTokens><RefillPeriodSec>60</RefillPeriodSec>\
             <Name>{name}</Name></Policy>"
        )
    };
    let policies: String = buckets.iter().map(policy).collect();
    format!(
        "<ListPoliciesResponse><Signature></Signature><Category>{category}</Category>\
         <Policies>{policies}</Policies></ListPoliciesResponse>"
    )
}

fn http(status: u16, retry_after: Option<u64>, body: &str) -> String {
    let retry_after = retry_after.map_or(String::new(), |s| format!("Retry-After: {s}\r\n"));
    format!(
        "HTTP/1.1 {status} Told\r\nContent-Type: application/xml\r\n{retry_after}Content-Length: \
         {}\r\n\r\n{body}",
        body.len()
    )
}
