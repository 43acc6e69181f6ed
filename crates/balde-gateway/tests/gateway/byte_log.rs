//! An upstream that keeps the bytes of every request head, and answers 200.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

pub(crate) struct ByteLog {
    pub(crate) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl ByteLog {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&heads);
        let task = tokio::spawn(async move {
            let mut serving = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                serving.spawn(serve(stream, Arc::clone(&kept)));
            }
        });
        Self {
            address,
            heads,
            task,
        }
    }

    /// The heads that were received, and forgets them.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.heads.lock())
    }
}

impl Drop for ByteLog {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, heads: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while let Ok(byte) = stream.read_u8().await {
        head.push(byte);
        if head.ends_with(b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&head).into_owned();
            heads.lock().push(text);
            head.clear();
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            if stream.write_all(answer).await.is_err() {
                return;
            }
        }
    }
}
