//! A receiver on a free port that records what it gets, and responds as configured: well,
//! badly, late, in part, without end or not at all.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

/// Only there to end a test that would otherwise never end.
const PATIENCE: Duration = Duration::from_secs(60);

const HEAD_BYTES_MAX: usize = 64 * 1_024;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// The answer it got.
    pub(crate) answer: Answer,
}

impl Request {
    pub(crate) fn key(&self) -> &str {
        &self.headers["idempotency-key"]
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("a body of JSON")
    }

    pub(crate) fn is_accepted(&self) -> bool {
        matches!(
            self.answer,
            Answer::Accept | Answer::AcceptAndClose | Answer::TruncatedAccept | Answer::Hang
        )
    }
}

/// What a receiver does with a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// 202 and a short body.
    Accept,
    /// A status, further header lines and a body.
    Status(u16, String, String),
    /// Nothing, until released; then 202.
    Hang,
    /// The connection is closed.
    Close,
    /// The same, after taking in what came: only the sender does not know that it arrived.
    AcceptAndClose,
    /// 202, and a connection that is closed in the middle of the body.
    TruncatedAccept,
    /// 202 and a body without end.
    EndlessAccept,
    /// 500 and a body without end.
    EndlessRefusal,
    /// Header lines without end.
    HeaderFlood,
    /// Something that is no HTTP.
    Garbage,
}

impl Answer {
    pub(crate) fn status(status: u16) -> Self {
        Self::Status(status, String::new(), String::new())
    }
}

type Plan = Box<dyn FnMut(&Request) -> Answer + Send>;

struct Desk {
    plan: Mutex<Plan>,
    requests: watch::Sender<Vec<Request>>,
    released: watch::Sender<bool>,
    /// Requests that have no answer yet, and the most there ever were.
    open: Mutex<(usize, usize)>,
}

pub(crate) struct Receiver {
    address: SocketAddr,
    desk: Arc<Desk>,
    task: JoinHandle<()>,
}

impl Receiver {
    /// Answers each request as `plan` says.
    pub(crate) async fn start(plan: impl FnMut(&Request) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let desk = Arc::new(Desk {
            plan: Mutex::new(Box::new(plan)),
            requests: watch::Sender::new(Vec::new()),
            released: watch::Sender::new(false),
            open: Mutex::new((0, 0)),
        });
        let task = tokio::spawn(serve(listener, Arc::clone(&desk)));
        Self {
            address,
            desk,
            task,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.desk.requests.borrow().clone()
    }

    /// What was accepted, without repetitions: what a receiver that discards them would have.
    pub(crate) fn accepted_keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = Vec::new();
        for request in self.requests().iter().filter(|one| one.is_accepted()) {
            if !keys.iter().any(|key| key == request.key()) {
                keys.push(request.key().to_owned());
            }
        }
        keys
    }

    pub(crate) fn plan(&self, plan: impl FnMut(&Request) -> Answer + Send + 'static) {
        *self.desk.plan.lock() = Box::new(plan);
    }

    /// The most requests that were there at once.
    pub(crate) fn most_at_once(&self) -> usize {
        self.desk.open.lock().1
    }

    /// Releases the requests that were left hanging.
    pub(crate) fn release(&self) {
        self.desk.released.send_replace(true);
    }

    /// Waits until `is_enough` of what has come.
    pub(crate) async fn wait_for(&self, mut is_enough: impl FnMut(&[Request]) -> bool) {
        let mut requests = self.desk.requests.subscribe();
        let waiting = requests.wait_for(|requests| is_enough(requests));
        let waited = timeout(PATIENCE, waiting).await;
        drop(waited.expect("enough requests").expect("a receiver"));
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, desk: Arc<Desk>) {
    // Dropped with this task, and every connection with it.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(talk(stream, Arc::clone(&desk)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn talk(mut stream: TcpStream, desk: Arc<Desk>) -> Option<()> {
    let _ = stream.set_nodelay(true);
    loop {
        let mut request = read(&mut stream).await?;
        request.answer = (desk.plan.lock())(&request);
        let answer = request.answer.clone();
        let open = Open::new(&desk);
        desk.requests.send_modify(|requests| requests.push(request));
        match answer {
            Answer::Accept => say(&mut stream, 202, "", "ok").await?,
            Answer::Status(status, lines, body) => say(&mut stream, status, &lines, &body).await?,
            Answer::Hang => {
                let mut released = desk.released.subscribe();
                drop(released.wait_for(|is_released| *is_released).await.ok()?);
                drop(open);
                say(&mut stream, 202, "", "ok").await?;
            }
            Answer::Close | Answer::AcceptAndClose => return None,
            Answer::TruncatedAccept => {
                let text = "HTTP/1.1 202 Accepted\r\ncontent-length: 1000\r\n\r\nhalf an ans";
                stream.write_all(text.as_bytes()).await.ok()?;
                return None;
            }
            Answer::EndlessAccept => endless(&mut stream, "HTTP/1.1 202 Accepted").await?,
            Answer::EndlessRefusal => endless(&mut stream, "HTTP/1.1 500 Oh").await?,
            Answer::HeaderFlood => {
                stream.write_all(b"HTTP/1.1 202 Accepted\r\n").await.ok()?;
                loop {
                    stream
                        .write_all(b"x-flood: aaaaaaaaaaaaaaaa\r\n")
                        .await
                        .ok()?;
                }
            }
            Answer::Garbage => {
                stream.write_all(b"\x16\x03\x01 what?\r\n\r\n").await.ok()?;
                return None;
            }
        }
    }
}

/// A request without an answer.
struct Open<'a>(&'a Desk);

impl<'a> Open<'a> {
    fn new(desk: &'a Desk) -> Self {
        let mut open = desk.open.lock();
        open.0 += 1;
        open.1 = open.1.max(open.0);
        Self(desk)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.lock().0 -= 1;
    }
}

async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        assert!(bytes.len() < HEAD_BYTES_MAX, "a request without end");
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).expect("a head of text");
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers.get("content-length")?.parse().ok()?;
    let mut body = bytes.split_off(head_end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Request {
        method,
        path,
        headers,
        body,
        answer: Answer::Accept,
    })
}

async fn say(stream: &mut TcpStream, status: u16, lines: &str, body: &str) -> Option<()> {
    let length = body.len();
    let text = format!("HTTP/1.1 {status} Said\r\n{lines}content-length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await.ok()
}

async fn endless(stream: &mut TcpStream, status: &str) -> Option<()> {
    let head = format!("{status}\r\ntransfer-encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    let piece = format!("1000\r\n{}\r\n", "a".repeat(0x1000));
    loop {
        stream.write_all(piece.as_bytes()).await.ok()?;
    }
}
