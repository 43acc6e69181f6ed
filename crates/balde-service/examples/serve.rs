//! The decision service in a program of its own, without the other commands of `balde`:
//!
//! ```text
//! serve -c FILE
//! ```
//!
//! With the allocator of the binary, so that `BALDE_BIN=target/release/examples/serve scripts/bench-service.sh`
//! measures the same code without building all of balde.

use std::error::Error;

use balde_service::{Config, Service};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().skip_while(|word| word != "-c").nth(1);
    let config = Config::read(file.ok_or("which file? -c FILE")?)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(workers) = config.server.workers {
        runtime.worker_threads(workers);
    }
    runtime.enable_all().build()?.block_on(async {
        let bound = Service::build(&config)?.bind().await?;
        for (protocol, url) in bound.urls() {
            println!("{protocol} {url}");
        }
        bound.run(std::future::pending()).await;
        Ok(())
    })
}
