//! A line server on plain tokio that limits its callers by address:
//! `cargo run -p balde --example tokio_server`, and in another terminal
//!
//! ```sh
//! for i in $(seq 8); do echo hello | timeout 1 bash -c 'cat >/dev/tcp/127.0.0.1/7878 && true'; done
//! ```
//!
//! or, with netcat, `nc 127.0.0.1 7878` and a few lines by hand: five answers at once, then one a
//! second. `--self-test` starts the server, asks it seven times and stops.

use balde::RateLimiter;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Outcome {
    let is_self_test = std::env::args().any(|arg| arg == "--self-test");
    let address = if is_self_test {
        "127.0.0.1:0"
    } else {
        "127.0.0.1:7878"
    };
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    println!("listening on {address}");

    let limiter = RateLimiter::new("1/s burst 5")?;
    let server = tokio::spawn(serve(listener, limiter));
    if is_self_test {
        return ask(TcpStream::connect(address).await?).await;
    }
    server.await?;
    Ok(())
}

async fn serve(listener: TcpListener, limiter: RateLimiter) {
    while let Ok((stream, peer)) = listener.accept().await {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let (reader, mut writer) = stream.into_split();
            let mut lines = BufReader::new(reader).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let decision = limiter.check(peer.ip().to_string()).await;
                let answer = match decision.retry_after() {
                    None => format!("you said {line}\n"),
                    Some(wait) => format!("too fast, try again in {} ms\n", wait.as_millis() + 1),
                };
                if writer.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
    }
}

async fn ask(stream: TcpStream) -> Outcome {
    let (reader, mut writer) = stream.into_split();
    let mut answers = BufReader::new(reader).lines();
    for request in 1..=7 {
        writer.write_all(b"hello\n").await?;
        let answer = answers.next_line().await?.unwrap_or_default();
        println!("{request}: {answer}");
        assert_eq!(answer.starts_with("you said"), request <= 5);
    }
    Ok(())
}
