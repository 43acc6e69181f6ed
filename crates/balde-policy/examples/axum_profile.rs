//! An axum service whose limits, prices and credits come from `axum_profile.toml`.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Path, State};
use axum::{Router, http::StatusCode, routing::get, routing::post};
use balde::{OpId, RedisStore};
use balde_policy::{Engine, PolicyLayer, Profile, Subject};

async fn item(Path(id): Path<u32>) -> StatusCode {
    [StatusCode::NOT_FOUND, StatusCode::OK][usize::from(id == 42)]
}

async fn order(
    State(engine): State<Engine>,
    ConnectInfo(client): ConnectInfo<SocketAddr>,
    Path(id): Path<String>,
) -> Result<String, StatusCode> {
    let id = OpId::new(id).map_err(|_| StatusCode::BAD_REQUEST)?;
    let client = Subject::user(format!("ip:{}", client.ip()));
    let credited = engine.credit("order", &client, &id).await;
    credited.map_or(Err(StatusCode::SERVICE_UNAVAILABLE), |all| {
        Ok(format!("{all:?}"))
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut engine = Engine::builder(Profile::parse(include_str!("axum_profile.toml"))?);
    if let Ok(address) = std::env::var("REDIS_ADDR") {
        engine = engine.redis(&RedisStore::builder().address(address).build()?);
    }
    let engine = engine.build()?;
    let app = Router::new()
        .route("/items/{id}", get(item))
        .route("/orders/{id}", post(order));
    let app = app
        .with_state(engine.clone())
        .layer(PolicyLayer::new(engine));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(
        listener,
        app.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .await?)
}
