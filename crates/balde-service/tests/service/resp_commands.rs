//! The commands of the Redis protocol, byte by byte.

use tokio::io::AsyncWriteExt as _;

use crate::running::{ADMIN, CHECKER, Running};

const LIMITS: &str =
    "[limits.users]\nlimit = \"10/day\"\n[limits.users.tiers]\ngold = \"100/day\"\n";

#[tokio::test]
async fn cl_throttle_answers_as_redis_cell_documents() {
    let service = Running::start(LIMITS).await;
    let mut resp = service.resp().await;
    // The example of redis-cell's own documentation.
    resp.expect(
        "CL.THROTTLE user123 15 30 60\r\n",
        "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n",
    )
    .await;
    resp.expect(
        "CL.THROTTLE user123 15 30 60 5\r\n",
        "*5\r\n:0\r\n:16\r\n:10\r\n:-1\r\n:12\r\n",
    )
    .await;
    // Nothing is taken for a quantity of zero.
    resp.expect(
        "cl.throttle user123 15 30 60 0\r\n",
        "*5\r\n:0\r\n:16\r\n:10\r\n:-1\r\n:12\r\n",
    )
    .await;
    // Refused: eleven are two seconds away, and nothing is taken.
    resp.expect(
        "CL.THROTTLE user123 15 30 60 11\r\n",
        "*5\r\n:1\r\n:16\r\n:10\r\n:2\r\n:12\r\n",
    )
    .await;
    // More than the limit is never given.
    resp.expect(
        "CL.THROTTLE user123 15 30 60 17\r\n",
        "*5\r\n:1\r\n:16\r\n:10\r\n:-1\r\n:12\r\n",
    )
    .await;
    // A limit of one.
    resp.expect(
        "CL.THROTTLE once 0 1 3600\r\n",
        "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:3600\r\n",
    )
    .await;
    resp.expect(
        "CL.THROTTLE once 0 1 3600\r\n",
        "*5\r\n:1\r\n:1\r\n:0\r\n:3600\r\n:3600\r\n",
    )
    .await;
    service.stop().await;
}

#[tokio::test]
async fn a_key_keeps_its_bucket_when_its_parameters_change() {
    let service = Running::start(LIMITS).await;
    let mut resp = service.resp().await;
    resp.expect(
        "CL.THROTTLE k 9 10 86400 4\r\n",
        "*5\r\n:0\r\n:10\r\n:6\r\n:-1\r\n:34560\r\n",
    )
    .await;
    // The four tokens that were taken are still gone.
    resp.expect(
        "CL.THROTTLE k 19 10 86400 1\r\n",
        "*5\r\n:0\r\n:20\r\n:15\r\n:-1\r\n:43200\r\n",
    )
    .await;
    resp.expect(
        "CL.THROTTLE k 9 10 86400 0\r\n",
        "*5\r\n:0\r\n:10\r\n:5\r\n:-1\r\n:43200\r\n",
    )
    .await;
    service.stop().await;
}

#[tokio::test]
async fn wrong_arguments_are_errors_and_the_connection_goes_on() {
    let service = Running::start(LIMITS).await;
    let mut resp = service.resp().await;
    let wrong = "-ERR wrong number of arguments for 'cl.throttle' command\r\n";
    resp.expect("CL.THROTTLE k 15 30\r\n", wrong).await;
    resp.expect("CL.THROTTLE k 15 30 60 1 1\r\n", wrong).await;
    resp.expect(
        "CL.THROTTLE k -1 30 60\r\n",
        "-ERR max_burst must be an integer in its range\r\n",
    )
    .await;
    resp.expect(
        "CL.THROTTLE k 15 x 60\r\n",
        "-ERR count must be an integer in its range\r\n",
    )
    .await;
    for zero in ["CL.THROTTLE k 15 0 60", "CL.THROTTLE k 15 30 0"] {
        let mut other = service.resp().await;
        let commands = format!("{zero}\r\nQUIT\r\n");
        other.0.write_all(commands.as_bytes()).await.unwrap();
        let answer = other.rest().await;
        assert!(
            answer.starts_with("-ERR ") && answer.ends_with("\r\n+OK\r\n"),
            "{answer}"
        );
    }
    resp.expect(
        "BALDE.CHECK nobody k\r\n",
        "-ERR there is no limit \"nobody\"; write [limits.nobody] in the service's file\r\n",
    )
    .await;
    resp.expect(
        "GET k\r\n",
        "-ERR unknown command 'get'; this is balde, which has CL.THROTTLE and BALDE.*\r\n",
    )
    .await;
    resp.expect("PING\r\n", "+PONG\r\n").await;
    service.stop().await;
}

#[tokio::test]
async fn balde_commands_answer_with_maps_in_both_versions() {
    let service = Running::start(LIMITS).await;
    let mut resp = service.resp().await;
    let fields = "$7\r\nallowed\r\n:1\r\n$6\r\nreason\r\n$7\r\ngranted\r\n$5\r\nlevel\r\n:7\r\n\
                  $9\r\nremaining\r\n:7\r\n$8\r\ncapacity\r\n:10\r\n$14\r\nretry_after_us\r\n:-1\r\n";
    resp.expect("BALDE.CHECK users a 3\r\n", &format!("*16\r\n{fields}"))
        .await;
    service.stop().await;
    let service = Running::start(LIMITS).await;
    let mut resp = service.resp().await;
    resp.expect("HELLO 3\r\n", "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.2.0\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n").await;
    resp.expect("BALDE.CHECK users a 3\r\n", &format!("%8\r\n{fields}"))
        .await;
    service.stop().await;
}

#[tokio::test]
async fn the_commands_at_the_start_of_a_connection_are_answered() {
    let service = Running::start(LIMITS).await;
    let mut resp = service.resp().await;
    resp.expect("CLIENT SETINFO LIB-NAME redis-py\r\n", "+OK\r\n")
        .await;
    resp.expect(
        "CLIENT SETNAME me\r\nCLIENT GETNAME\r\n",
        "+OK\r\n$2\r\nme\r\n",
    )
    .await;
    resp.expect(
        "SELECT 0\r\nSELECT 1\r\n",
        "+OK\r\n-ERR DB index is out of range\r\n",
    )
    .await;
    resp.expect("ECHO \"a b\"\r\nPING x\r\n", "$3\r\na b\r\n$1\r\nx\r\n")
        .await;
    resp.expect("COMMAND COUNT\r\nCOMMAND DOCS\r\n", ":16\r\n*0\r\n")
        .await;
    resp.expect("HELLO 4\r\n", "-NOPROTO unsupported protocol version\r\n")
        .await;
    resp.expect(
        "PING a b\r\n",
        "-ERR wrong number of arguments for 'ping' command\r\n",
    )
    .await;
    resp.expect("RESET\r\n\r\nQUIT\r\n", "+RESET\r\n+OK\r\n")
        .await;
    assert_eq!(resp.rest().await, "");
    service.stop().await;
}

#[tokio::test]
async fn tokens_are_passwords() {
    let closed = format!(
        "{LIMITS}[resp]\naddress = \"127.0.0.1:0\"\n[[token]]\nname = \"ops\"\ntoken_env = \"ADMIN\"\n\
         rights = [\"check\", \"settle\", \"admin\"]\n[[token]]\nname = \"shop\"\n\
         token_env = \"CHECKER\"\nrights = [\"check\"]\n"
    );
    let service = Running::start_only(&closed).await;
    let mut resp = service.resp().await;
    let no_auth = "-NOAUTH Authentication required.\r\n";
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    resp.expect("PING\r\nCL.THROTTLE a 1 1 1\r\n", &no_auth.repeat(2))
        .await;
    resp.expect("HELLO 3\r\n", "-NOAUTH HELLO").await;
    let mut resp = service.resp().await;
    resp.expect("AUTH guess\r\nAUTH ops guess\r\n", &wrong.repeat(2))
        .await;
    resp.expect(&format!("AUTH ops {CHECKER}\r\n"), wrong).await;
    resp.expect(&format!("AUTH shop {CHECKER}\r\n"), "+OK\r\n")
        .await;
    resp.expect("PING\r\n", "+PONG\r\n").await;
    resp.expect(
        "BALDE.RESET users a\r\n",
        "-NOPERM this needs the right \"admin\"; the caller does not have it\r\n",
    )
    .await;
    resp.expect(
        &format!("AUTH {ADMIN}\r\nBALDE.RESET users a\r\n"),
        "+OK\r\n+OK\r\n",
    )
    .await;
    resp.expect(
        &format!("HELLO 2 AUTH default {CHECKER} SETNAME x\r\n"),
        "*14\r\n",
    )
    .await;
    service.stop().await;
}
