//! The server that other tests build on does what it says.

use std::time::Duration;

use crate::redis_server::RedisServer;
use redis::{Client, Commands, Connection, RedisResult};

fn connect(server: &RedisServer) -> Connection {
    let connection = Client::open(server.url())
        .unwrap()
        .get_connection()
        .unwrap();
    connection
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    connection
}

#[test]
fn it_answers_freezes_thaws_dies_and_comes_back_on_its_port() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let mut connection = connect(&server);
    let _: () = connection.set("key", 1).unwrap();

    server.pause();
    let silence: RedisResult<Option<u8>> = connection.get("key");
    assert!(silence.unwrap_err().is_timeout());
    server.resume();
    let kept: Option<u8> = connect(&server).get("key").unwrap();
    assert_eq!(kept, Some(1));

    let port = server.port();
    server.kill();
    assert!(
        Client::open(server.url())
            .unwrap()
            .get_connection()
            .is_err()
    );
    server.restart();
    assert_eq!(server.port(), port);
    let lost: Option<u8> = connect(&server).get("key").unwrap();
    assert_eq!(lost, None);
}

#[test]
fn it_takes_arguments_of_its_own() {
    let Some(server) = RedisServer::start_with(&["--maxmemory", "123mb"]) else {
        return;
    };
    let info: String = redis::cmd("INFO").query(&mut connect(&server)).unwrap();
    assert!(info.contains("maxmemory_human:123.00M"));
}
