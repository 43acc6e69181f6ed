//! Asks a decision service as fast as it answers, for `scripts/bench-service.sh`.
//!
//! ```text
//! service_load PROTOCOL SERVER ADDRESS KEYS uniform|zipf SECONDS CONNECTIONS PIPELINE
//! ```
//!
//! PROTOCOL is `http`, `resp` or `grpc`, SERVER is `balde`, `throttlecrab` or, over `resp`, `redis-cell`. It prints the requests, p50
//! and p99 in microseconds. With `each` instead of the distribution, every key is asked for once.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf as _, BufMut as _, Bytes};
use http::uri::PathAndQuery;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

/// The lines of an answer to `CL.THROTTLE`: a header, and five numbers.
const RESP_LINES: usize = 6;

/// How many keys are chosen before the measurement; each connection begins elsewhere among them.
const CHOSEN: usize = 1 << 20;

type Failure = Box<dyn Error + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Balde,
    Throttlecrab,
}

/// What a connection does.
#[derive(Clone, Debug)]
struct Plan {
    server: Server,
    address: String,
    keys: Arc<Vec<u32>>,
    /// The position of the first key, and the distance to the next.
    first: usize,
    step: usize,
    /// `None` if every key is asked for once.
    until: Option<Instant>,
    pipeline: usize,
}

impl Plan {
    /// The next keys, as many as are asked for at once; `None` at the end.
    fn next(&mut self) -> Option<Vec<String>> {
        match self.until {
            Some(until) if Instant::now() >= until => return None,
            None if self.first >= self.keys.len() => return None,
            _ => {}
        }
        let mut batch = Vec::with_capacity(self.pipeline);
        while batch.len() < self.pipeline && (self.until.is_some() || self.first < self.keys.len())
        {
            let key = self.keys[self.first % self.keys.len()];
            batch.push(format!("key-{key:020}"));
            self.first += self.step;
        }
        Some(batch)
    }
}

/// The requests, and how long each batch of them took, in microseconds.
#[derive(Debug, Default)]
struct Measured {
    requests: u64,
    times_us: Vec<u64>,
}

impl Measured {
    fn add(&mut self, requests: usize, begun: Instant) {
        self.requests += u64::try_from(requests).unwrap_or(u64::MAX);
        let us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.times_us.push(us);
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [
        protocol,
        server,
        address,
        keys,
        distribution,
        seconds,
        connections,
        pipeline,
    ] = arguments.as_slice()
    else {
        return Err("see the first lines of this program for its arguments".into());
    };
    let server = match server.as_str() {
        "throttlecrab" => Server::Throttlecrab,
        // redis-cell has the same command.
        _ => Server::Balde,
    };
    let is_each = distribution == "each";
    let keys = Arc::new(choose(keys.parse()?, distribution));
    let connections: usize = connections.parse()?;
    let until = Instant::now() + Duration::from_secs(seconds.parse()?);
    let plan = |index: usize| Plan {
        server,
        address: address.clone(),
        keys: Arc::clone(&keys),
        first: if is_each { index } else { index * 7_919 },
        step: if is_each { connections } else { 1 },
        until: (!is_each).then_some(until),
        pipeline: pipeline.parse().unwrap_or(1),
    };
    let plans: Vec<Plan> = (0..connections).map(plan).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let measured = runtime.block_on(measure(protocol, plans))?;
    let mut times = measured.times_us;
    times.sort_unstable();
    let share = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or(0);
    println!("{} {} {}", measured.requests, share(50), share(99));
    Ok(())
}

async fn measure(protocol: &str, plans: Vec<Plan>) -> Result<Measured, Failure> {
    let mut tasks = tokio::task::JoinSet::new();
    for plan in plans {
        match protocol {
            "http" => tasks.spawn(http(plan)),
            "resp" => tasks.spawn(resp(plan)),
            _ => tasks.spawn(grpc(plan)),
        };
    }
    let mut all = Measured::default();
    while let Some(measured) = tasks.join_next().await {
        let measured = measured??;
        all.requests += measured.requests;
        all.times_us.extend(measured.times_us);
    }
    Ok(all)
}

/// Indices of keys. Of `zipf`, key number n is n to the power of 1.1 times rarer than the first.
fn choose(keys: u32, distribution: &str) -> Vec<u32> {
    let mut random = fastrand::Rng::with_seed(20_261_117);
    match distribution {
        "each" => (0..keys).collect(),
        "zipf" => {
            let mut sum = 0.0;
            let mut sums = Vec::new();
            for n in 1..=keys {
                sum += f64::from(n).powf(-1.1);
                sums.push(sum);
            }
            let mut pick = || {
                let at = random.f64() * sum;
                let index = sums.partition_point(|sum| *sum < at);
                u32::try_from(index).unwrap_or(0).min(keys - 1)
            };
            (0..CHOSEN).map(|_| pick()).collect()
        }
        _ => (0..CHOSEN).map(|_| random.u32(0..keys)).collect(),
    }
}

async fn http(mut plan: Plan) -> Result<Measured, Failure> {
    let mut stream = TcpStream::connect(&plan.address).await?;
    stream.set_nodelay(true)?;
    let mut measured = Measured::default();
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    while let Some(keys) = plan.next() {
        sent.clear();
        for key in &keys {
            let (path, body) = match plan.server {
                Server::Balde => (
                    "/v1/check",
                    format!("{{\"limit\":\"users\",\"key\":\"{key}\"}}"),
                ),
                Server::Throttlecrab => (
                    "/throttle",
                    format!(
                        "{{\"key\":\"{key}\",\"max_burst\":1000000,\"count_per_period\":1000000,\
                         \"period\":1}}"
                    ),
                ),
            };
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            );
            sent.extend_from_slice(head.as_bytes());
        }
        let begun = Instant::now();
        stream.write_all(&sent).await?;
        for _ in &keys {
            answer(&mut stream, &mut received).await?;
        }
        measured.add(keys.len(), begun);
    }
    Ok(measured)
}

/// Reads one answer of HTTP/1.1, and leaves what follows it in `received`.
async fn answer(stream: &mut TcpStream, received: &mut Vec<u8>) -> Result<(), Failure> {
    let mut needed = None;
    loop {
        if needed.is_none()
            && let Some(end) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n")
        {
            let head = std::str::from_utf8(&received[..end])?.to_ascii_lowercase();
            if !head.starts_with("http/1.1 200") {
                return Err(head.into());
            }
            let length = head.split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.split("\r\n").next());
            let length: usize = length.ok_or("no content-length")?.parse()?;
            needed = Some(end + 4 + length);
        }
        if let Some(needed) = needed
            && received.len() >= needed
        {
            received.drain(..needed);
            return Ok(());
        }
        if stream.read_buf(received).await? == 0 {
            return Err("the server closed the connection".into());
        }
    }
}

async fn resp(mut plan: Plan) -> Result<Measured, Failure> {
    let mut stream = TcpStream::connect(&plan.address).await?;
    stream.set_nodelay(true)?;
    let mut measured = Measured::default();
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    let name = match plan.server {
        Server::Balde => "CL.THROTTLE",
        Server::Throttlecrab => "THROTTLE",
    };
    // A bucket that is full again at once would be forgotten before it is measured.
    let (burst, count, period) = match plan.until {
        Some(_) => ("1000000", "1000000", "1"),
        None => ("15", "1", "86400"),
    };
    while let Some(keys) = plan.next() {
        sent.clear();
        for key in &keys {
            sent.extend_from_slice(b"*5\r\n");
            for word in [name, key, burst, count, period] {
                sent.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
            }
        }
        let begun = Instant::now();
        stream.write_all(&sent).await?;
        let (mut lines, mut last) = (0, b'\n');
        while lines < keys.len() * RESP_LINES {
            received.clear();
            received.push(last);
            if stream.read_buf(&mut received).await? == 0 || is_error(&received) {
                return Err(String::from_utf8_lossy(&received).into_owned().into());
            }
            lines += received[1..].split(|byte| *byte == b'\n').count() - 1;
            last = received.last().copied().unwrap_or(last);
        }
        measured.add(keys.len(), begun);
    }
    Ok(measured)
}

/// Whether a line begins as errors do; numbers may be negative.
fn is_error(received: &[u8]) -> bool {
    received.windows(2).any(|bytes| bytes == b"\n-")
}

async fn grpc(mut plan: Plan) -> Result<Measured, Failure> {
    let endpoint = Endpoint::from_shared(format!("http://{}", plan.address))?;
    let mut client: Grpc<Channel> = Grpc::new(endpoint.connect().await?);
    let path = PathAndQuery::from_static(match plan.server {
        Server::Balde => "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        Server::Throttlecrab => "/throttlecrab.RateLimiter/Throttle",
    });
    let mut measured = Measured::default();
    while let Some(keys) = plan.next() {
        for key in keys {
            let message = message(plan.server, &key);
            let begun = Instant::now();
            client.ready().await?;
            client
                .unary(Request::new(message), path.clone(), Raw)
                .await?;
            measured.add(1, begun);
        }
    }
    Ok(measured)
}

/// The message of a request, in the encoding of Protocol Buffers.
fn message(server: Server, key: &str) -> Bytes {
    let text = |field: u8, bytes: &[u8]| {
        let mut encoded = vec![field << 3 | 2, u8::try_from(bytes.len()).unwrap_or(127)];
        encoded.extend_from_slice(bytes);
        encoded
    };
    let encoded = match server {
        Server::Balde => {
            let entry = [text(1, b"user"), text(2, key.as_bytes())].concat();
            let descriptor = text(1, &entry);
            [text(1, b"edge"), text(2, &descriptor)].concat()
        }
        Server::Throttlecrab => {
            // A million as a variable-length integer, for the burst and the count; a second; one token.
            let numbers = [
                2 << 3,
                0xc0,
                0x84,
                0x3d,
                3 << 3,
                0xc0,
                0x84,
                0x3d,
                4 << 3,
                1,
                5 << 3,
                1,
            ];
            [text(1, key.as_bytes()), numbers.to_vec()].concat()
        }
    };
    encoded.into()
}

/// Sends messages as they are, and does not look at answers.
#[derive(Clone, Copy, Debug)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        buffer.advance(buffer.remaining());
        Ok(Some(()))
    }
}
