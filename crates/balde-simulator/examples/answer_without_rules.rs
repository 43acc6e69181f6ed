//! An axum server that answers every request with the same bytes: what the simulator's speed is
//! measured against by `scripts/bench-simulator.sh`.

use std::error::Error;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use tokio::net::TcpListener;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(address), Some(file)) = (args.next(), args.next()) else {
        println!("usage: answer_without_rules ADDRESS FILE");
        return Ok(());
    };
    let body = Bytes::from(std::fs::read(file)?);
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let answer = move || {
            let body = body.clone();
            async move { ([(CONTENT_TYPE, "application/xml;charset=utf-8")], body) }
        };
        let listener = TcpListener::bind(&address).await?;
        // As the simulator does.
        let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
            let _slower_without = stream.set_nodelay(true);
        });
        axum::serve(listener, Router::new().fallback(answer)).await?;
        Ok(())
    })
}
