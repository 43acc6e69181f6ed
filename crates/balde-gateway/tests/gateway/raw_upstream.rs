//! An upstream that speaks raw bytes: it logs everything that it reads, and does with each request
//! what the test says.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// What the upstream does with a request.
pub(crate) enum Reply {
    /// Writes these bytes and keeps the connection.
    Bytes(String),
    /// Closes the connection without a byte.
    Close,
}

impl Reply {
    pub(crate) fn ok(text: &str) -> Self {
        let length = text.len();
        Self::Bytes(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{text}"
        ))
    }
}

pub(crate) struct RawUpstream {
    pub(crate) address: SocketAddr,
    /// What was read from each connection.
    log: Arc<Mutex<Vec<Vec<u8>>>>,
    task: JoinHandle<()>,
}

impl RawUpstream {
    /// `reply` is asked with the number of the connection and the number of the request on it, both
    /// from 0.
    pub(crate) async fn start(
        reply: impl Fn(usize, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (logged, reply) = (Arc::clone(&log), Arc::new(reply));
        let task = tokio::spawn(async move {
            let mut serving = JoinSet::new();
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                logged.lock().push(Vec::new());
                let (logged, reply) = (Arc::clone(&logged), Arc::clone(&reply));
                serving.spawn(serve(stream, connection, logged, move |request| {
                    reply(connection, request)
                }));
            }
        });
        Self { address, log, task }
    }

    /// What was read from each connection, as text.
    pub(crate) fn connections(&self) -> Vec<String> {
        let log = self.log.lock();
        let texts = log.iter().map(|read| String::from_utf8_lossy(read));
        texts.map(std::borrow::Cow::into_owned).collect()
    }

    /// Everything that was read.
    pub(crate) fn read(&self) -> String {
        self.connections().concat()
    }

    /// How many heads of requests were read.
    pub(crate) fn heads(&self) -> usize {
        self.read().matches(" HTTP/1.1\r\n").count()
    }
}

impl Drop for RawUpstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    connection: usize,
    log: Arc<Mutex<Vec<Vec<u8>>>>,
    reply: impl Fn(usize) -> Reply,
) {
    let mut rest = Vec::new();
    for request in 0.. {
        while !is_whole(&rest) {
            let mut buffer = [0; 4_096];
            let Ok(read @ 1..) = stream.read(&mut buffer).await else {
                return;
            };
            rest.extend_from_slice(&buffer[..read]);
            log.lock()[connection].extend_from_slice(&buffer[..read]);
        }
        rest.clear();
        match reply(request) {
            Reply::Bytes(bytes) => stream.write_all(bytes.as_bytes()).await.unwrap(),
            Reply::Close => return,
        }
    }
}

/// Whether a head and its body are there. Requests are not pipelined.
fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let field = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim)
    };
    if field("transfer-encoding:").is_some() {
        return body.ends_with("0\r\n\r\n");
    }
    let length = field("content-length:").map_or(0, |length| length.parse().unwrap());
    body.len() >= length
}
