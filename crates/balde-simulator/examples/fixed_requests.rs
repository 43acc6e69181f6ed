//! Sends a fixed sequence of getEntry to a simulator in the same process, one after another, for
//! counting instructions:
//!
//! `valgrind --tool=callgrind --callgrind-out-file=/dev/null fixed_requests 12000`
//!
//! The difference between two counts of requests, divided by the difference of the counts, is the
//! cost of one request, without the start.

use std::error::Error;

use balde_simulator::{self as simulator, Simulator};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

const ENTRIES: usize = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    let requests: usize = std::env::args().nth(1).unwrap_or_default().parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let simulator = Simulator::builder().build()?;
        simulator.directory().seed_generated("87654321", ENTRIES, |_, _| ()).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(simulator::run(listener, simulator, async {
            let _stopped = stopped.await;
        }));
        let mut connection = TcpStream::connect(address).await?;
        for (policy, variant) in [
            ("ENTRIES_READ_PARTICIPANT_ANTISCAN", "A"),
            ("ENTRIES_READ_USER_ANTISCAN", "PF"),
        ] {
            let change = format!(
                r#"{{"policy": "{policy}", "variant": "{variant}", "limit": "1000000/s burst 10000000"}}"#
            );
            let request = format!(
                "PUT /sim/limits HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{change}",
                change.len()
            );
            exchange(&mut connection, request.as_bytes()).await?;
        }
        for number in 0..requests {
            let i = number % ENTRIES + 1;
            let request = format!(
                "GET /api/v2/entries/pessoa{i:07}@exemplo.com.br HTTP/1.1\r\nHost: localhost\r\nPI-RequestingParticipant: 12345678\r\nPI-PayerId: {i:011}\r\nPI-EndToEndId: E12345678202601010000{i:011}\r\n\r\n"
            );
            exchange(&mut connection, request.as_bytes()).await?;
        }
        drop(connection);
        let _is_running = stop.send(());
        server.await??;
        println!("{requests} requests were answered with 200");
        Ok(())
    })
}

/// Sends a request and reads its answer, which must be a 2xx of known length.
async fn exchange(connection: &mut TcpStream, request: &[u8]) -> Result<(), Box<dyn Error>> {
    connection.write_all(request).await?;
    let mut answer = Vec::with_capacity(4_096);
    loop {
        if connection.read_buf(&mut answer).await? == 0 {
            return Err("the simulator closed the connection".into());
        }
        let text = String::from_utf8_lossy(&answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        if !head.starts_with("HTTP/1.1 2") {
            return Err(text.into_owned().into());
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.parse::<usize>().ok())?
        });
        if body.len() >= length.unwrap_or(0) {
            return Ok(());
        }
    }
}
