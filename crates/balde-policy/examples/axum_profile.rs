//! An axum service whose limits, prices by status and credits come from `axum_profile.toml`.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Path, State};
use axum::{Router, http::StatusCode, routing::get, routing::post};
use balde::{OpId, RedisStore};
use balde_policy::{Engine, PolicyLayer, Profile, Subject};

async fn item(Path(id): Path<u32>) -> StatusCode {
    [StatusCode::NOT_FOUND, StatusCode::OK][usize::from(id == 42)]
}

type Client = ConnectInfo<SocketAddr>;
type Reply = Result<String, StatusCode>;

async fn order(State(engine): State<Engine>, client: Client, id: Path<String>) -> Reply {
    let client = Subject::user(format!("ip:{}", client.0.ip()));
    let id = OpId::new(id.as_bytes()).map_err(|_| StatusCode::BAD_REQUEST)?;
    Ok(format!("{:?}", engine.credit("order", &client, &id).await))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut builder = Engine::builder(Profile::parse(include_str!("axum_profile.toml"))?);
    if let Ok(address) = std::env::var("REDIS_ADDR") {
        builder = builder.redis(&RedisStore::builder().address(address).build()?);
    }
    let engine = builder.build()?;
    let app = Router::new()
        .route("/items/{id}", get(item))
        .route("/orders/{id}", post(order))
        .with_state(engine.clone())
        .layer(PolicyLayer::new(engine));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(balde::http::serve(listener, app).await?)
}
