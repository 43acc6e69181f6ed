//! A link to a server that a test can spoil while it is in use: a TCP proxy on a free port.
//!
//! A connection that has lost bytes never passes any again. TCP delivers all or breaks, so bytes
//! that go on arriving after a gap would be a fault that no network has.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Pieces on their way in one direction of one connection.
const PIECES_MAX: usize = 4_096;
const PIECE_BYTES: usize = 16 * 1_024;
const BACKLOG: u32 = 128;
const REBIND_WITHIN: Duration = Duration::from_secs(5);

/// What the link does to those who use it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Weather {
    Fair,
    /// Everything takes so much longer, in each direction. Nothing is lost.
    Slow(Duration),
    /// All connections are closed, and new ones refused.
    Cut,
    /// All connections are reset, and new ones as soon as they are made.
    Reset,
    /// Connections are accepted and stay open, and nothing ever arrives.
    BlackHole,
    /// After so many bytes of answers a connection says no more, in the middle of whatever it was
    /// saying, but goes on listening.
    HalfClose {
        after_bytes: usize,
    },
    /// With every piece that arrives the connection breaks by this chance, in thousandths.
    Lossy {
        per_mille: u32,
    },
}

pub(crate) struct ChaosProxy {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    task: JoinHandle<()>,
}

impl ChaosProxy {
    /// Fair weather, until told otherwise. What is left to chance follows from `seed`.
    pub(crate) async fn start(upstream: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let (weather, forecast) = watch::channel(Weather::Fair);
        let link = Link {
            address,
            upstream,
            weather: forecast,
            random: Arc::new(Mutex::new(Rng::with_seed(seed))),
        };
        Self {
            address,
            weather,
            task: tokio::spawn(link.serve(listener)),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    pub(crate) fn turn(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }
}

impl Drop for ChaosProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Link {
    address: SocketAddr,
    upstream: SocketAddr,
    weather: watch::Receiver<Weather>,
    random: Arc<Mutex<Rng>>,
}

impl Link {
    async fn serve(mut self, listener: TcpListener) {
        let mut listener = Some(listener);
        // Dropped with this task, and every connection with it.
        let mut connections = JoinSet::new();
        loop {
            let now = *self.weather.borrow_and_update();
            if now == Weather::Cut {
                listener = None;
            } else if listener.is_none() {
                listener = Some(rebind(self.address).await);
            }
            let accepted = async {
                match &listener {
                    Some(listener) => listener.accept().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                accepted = accepted => {
                    if let Ok((stream, _)) = accepted {
                        connections.spawn(self.clone().carry(stream));
                    }
                }
                changed = self.weather.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn carry(self, mut client: TcpStream) {
        if *self.weather.borrow() == Weather::Reset {
            // Closing with unsent data thrown away is a reset.
            let _ = client.set_zero_linger();
            return;
        }
        let Ok(mut server) = TcpStream::connect(self.upstream).await else {
            return;
        };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let asked = pump(from_client, to_server, Way::There, &self);
        let answered = pump(from_server, to_client, Way::Back, &self);
        let mut weather = self.weather.clone();
        let is_broken = |now: &Weather| matches!(now, Weather::Cut | Weather::Reset);
        tokio::select! {
            _ = async { tokio::try_join!(asked, answered) } => {}
            _ = weather.wait_for(is_broken) => {}
        }
        if *self.weather.borrow() == Weather::Reset {
            let _ = client.set_zero_linger();
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    There,
    Back,
}

/// The connection is over, in both directions.
struct Broken;

/// Carries one direction until it ends, each piece with its own delay.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    way: Way,
    link: &Link,
) -> Result<(), Broken> {
    let (pieces, queue) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES_MAX);
    let reading = async move {
        let mut buffer = vec![0; PIECE_BYTES];
        let mut is_swallowed = false;
        let mut passed_bytes = 0;
        loop {
            let Ok(read @ 1..) = from.read(&mut buffer).await else {
                return Ok(());
            };
            let mut piece = &buffer[..read];
            let mut due = Instant::now();
            match *link.weather.borrow() {
                Weather::BlackHole => is_swallowed = true,
                Weather::Slow(by) => due += by,
                Weather::Lossy { per_mille } if link.random.lock().u32(..1_000) < per_mille => {
                    return Err(Broken);
                }
                Weather::HalfClose { after_bytes } if way == Way::Back => {
                    piece = &piece[..read.min(after_bytes.saturating_sub(passed_bytes))];
                    passed_bytes += piece.len();
                }
                _ => {}
            }
            if is_swallowed {
                continue;
            }
            let is_cut_short = piece.len() < read;
            let sent = pieces.send((due, piece.to_vec())).await;
            if is_cut_short || sent.is_err() {
                return Ok(());
            }
        }
    };
    tokio::try_join!(reading, write(queue, to)).map(drop)
}

async fn write(
    mut queue: mpsc::Receiver<(Instant, Vec<u8>)>,
    mut to: impl AsyncWrite + Unpin,
) -> Result<(), Broken> {
    while let Some((due, piece)) = queue.recv().await {
        sleep_until(due).await;
        to.write_all(&piece).await.map_err(|_| Broken)?;
    }
    to.shutdown().await.map_err(|_| Broken)
}

/// The same port again. Connections of before may linger on it for a moment.
async fn rebind(address: SocketAddr) -> TcpListener {
    let binding = async {
        loop {
            match bind(address) {
                Ok(listener) => return listener,
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let bound = timeout(REBIND_WITHIN, binding).await;
    bound.expect("the proxy's port is free again")
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
