//! The Redis store against real servers: the same answers as the core and as the memory store, over
//! TLS, and on a Cluster.

#[path = "../support/chance.rs"]
mod chance;
mod cluster;
mod conformance;
mod differential;
mod holds;
#[path = "../support/redis_cluster.rs"]
#[expect(dead_code, reason = "no node is killed here")]
mod redis_cluster;
#[path = "../support/redis_oracle.rs"]
mod redis_oracle;
#[path = "../support/redis_server.rs"]
mod redis_server;
mod server;
mod tls;
