//! Sends a fixed sequence of requests through a gateway in this process to an upstream in this process,
//! for counting instructions (`scripts/count-instructions.sh`):
//!
//! `valgrind --tool=callgrind --callgrind-out-file=/dev/null gateway_requests 4000`
//!
//! The difference between two counts of requests, divided by the difference of the counts, is the cost
//! of one request, without the start. It includes the client and the upstream, which do very little.

use std::error::Error;
use std::path::Path;

use balde_gateway::{Config, Gateway};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn main() -> Result<(), Box<dyn Error>> {
    let requests: usize = std::env::args().nth(1).unwrap_or_default().parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let folder = std::env::temp_dir().join(format!("fixed-requests-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let sent = runtime.block_on(send(requests, &folder));
    std::fs::remove_dir_all(&folder)?;
    sent
}

async fn send(requests: usize, folder: &Path) -> Result<(), Box<dyn Error>> {
    let upstream = TcpListener::bind("127.0.0.1:0").await?;
    let upstream_address = upstream.local_addr()?;
    tokio::spawn(answer(upstream));
    let profile = "profile = \"fixed\"\n[[policy]]\nname = \"callers\"\nscope = \"user\"\n\
                   limit = \"1/s burst 1000000\"\n";
    std::fs::write(folder.join("profile.toml"), profile)?;
    let text = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"one\"\nurl = \"http://{upstream_address}\"\n\
         [[route]]\npath = \"/\"\nupstream = \"one\"\n[limiting]\nprofile = \"profile.toml\"\n"
    );
    let config = Config::parse(&text, "gateway.toml", folder, |_| None)?;
    let gateway = Gateway::build(&config)?;
    let bound = gateway.bind().await?;
    let address = bound.addresses()[0];
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(bound.run(async {
        let _stopped = stopped.await;
    }));
    let mut connection = TcpStream::connect(address).await?;
    let request = b"GET /orders/17?sort=date HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
    let mut buffer = vec![0; 4_096];
    for _ in 0..requests {
        connection.write_all(request).await?;
        let mut length = 0;
        while !buffer[..length].ends_with(b"\r\n\r\nok") {
            let read = connection.read(&mut buffer[length..]).await?;
            if read == 0 || length + read == buffer.len() {
                return Err(String::from_utf8_lossy(&buffer[..length])
                    .into_owned()
                    .into());
            }
            length += read;
        }
    }
    drop(connection);
    let _is_running = stop.send(());
    running.await?;
    println!("{requests} requests were answered with 200");
    Ok(())
}

/// Answers every request, which arrives in one piece.
async fn answer(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut buffer = vec![0; 4_096];
            while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                if stream.write_all(ANSWER).await.is_err() {
                    return;
                }
            }
        });
    }
}
