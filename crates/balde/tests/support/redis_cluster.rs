//! A Redis Cluster for tests: real nodes on free ports in temporary folders, stopped when dropped.

use std::env;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

const READY_WITHIN: Duration = Duration::from_secs(40);
/// Another process may take a port between our finding it free and the node's binding it.
const ATTEMPTS_MAX: usize = 5;
/// How soon the nodes take one of them for dead and promote its replica.
const NODE_TIMEOUT_MS: &str = "1000";

pub(crate) struct RedisCluster {
    nodes: Vec<Node>,
    dir: TempDir,
}

struct Node {
    child: Child,
    port: u16,
}

impl RedisCluster {
    /// Three primaries, each with so many replicas, and all slots served. Nothing, and loudly so,
    /// where Redis is not installed; a panic where `BALDE_REQUIRE_SERVICES=1` says it must be.
    pub(crate) fn start(replicas: usize) -> Option<Self> {
        for _ in 0..ATTEMPTS_MAX {
            match Self::try_start(3 * (1 + replicas), replicas) {
                Ok(Some(cluster)) => return Some(cluster),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let what = "redis-server or redis-cli is not installed";
                    assert!(
                        env::var("BALDE_REQUIRE_SERVICES").as_deref() != Ok("1"),
                        "{what}, and BALDE_REQUIRE_SERVICES=1"
                    );
                    eprintln!("\n*** SKIPPED: {what}, so this test tested NOTHING ***\n");
                    return None;
                }
                Err(error) => panic!("no cluster: {error}"),
            }
        }
        panic!("no cluster came up in {ATTEMPTS_MAX} attempts");
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        let url = |node: &Node| format!("redis://127.0.0.1:{}", node.port);
        self.nodes.iter().map(url).collect()
    }

    /// SIGKILL to the node that serves `slot` now. Where it has a replica, that is promoted.
    pub(crate) fn kill_primary_of(&mut self, slot: u16) -> u16 {
        let port = self.primary_of(slot).expect("a node serves the slot");
        let node = self.nodes.iter_mut().find(|node| node.port == port);
        let node = node.expect("it is one of ours");
        node.child.kill().expect("it was running");
        node.child.wait().expect("a child to wait for");
        port
    }

    /// The port of the node that serves `slot`, as any living node knows.
    pub(crate) fn primary_of(&self, slot: u16) -> Option<u16> {
        self.nodes.iter().find_map(|node| {
            let nodes = cli(node.port, &["cluster", "nodes"]).ok()?;
            nodes.lines().find_map(|line| serves(line, slot))
        })
    }

    fn try_start(count: usize, replicas: usize) -> io::Result<Option<Self>> {
        let dir = TempDir::new()?;
        let mut cluster = Self {
            nodes: Vec::new(),
            dir,
        };
        for port in free_ports(count)? {
            let folder = cluster.dir.path().join(port.to_string());
            std::fs::create_dir(&folder)?;
            let server = env::var_os("BALDE_REDIS_SERVER");
            let child = Command::new(server.unwrap_or_else(|| "redis-server".into()))
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
                .args(["--save", "", "--appendonly", "no"])
                .args(["--cluster-enabled", "yes"])
                .args(["--cluster-node-timeout", NODE_TIMEOUT_MS])
                // One dead primary is not to stop the others.
                .args(["--cluster-require-full-coverage", "no"])
                .arg("--dir")
                .arg(&folder)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            cluster.nodes.push(Node { child, port });
        }
        Ok(cluster.is_formed(replicas)?.then_some(cluster))
    }

    fn is_formed(&mut self, replicas: usize) -> io::Result<bool> {
        let started = Instant::now();
        let mut is_created = false;
        while started.elapsed() < READY_WITHIN {
            for node in &mut self.nodes {
                if node.child.try_wait()?.is_some() {
                    return Ok(false);
                }
            }
            let answers =
                |node: &Node| cli(node.port, &["ping"]).is_ok_and(|pong| pong == "PONG\n");
            if !is_created && self.nodes.iter().all(answers) {
                is_created = self.create(replicas)?;
            }
            let is_well = |node: &Node| {
                cli(node.port, &["cluster", "info"]).is_ok_and(|info| {
                    info.contains("cluster_state:ok")
                        && info.contains("cluster_slots_ok:16384")
                        && info.contains(&format!("cluster_known_nodes:{}", self.nodes.len()))
                })
            };
            if is_created && self.nodes.iter().all(is_well) && self.replicas() == 3 * replicas {
                return Ok(true);
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(false)
    }

    /// Replicas whose link to their primary is up.
    fn replicas(&self) -> usize {
        let is_replica = |node: &&Node| {
            cli(node.port, &["info", "replication"]).is_ok_and(|info| {
                info.contains("role:slave") && info.contains("master_link_status:up")
            })
        };
        self.nodes.iter().filter(is_replica).count()
    }

    fn create(&self, replicas: usize) -> io::Result<bool> {
        let addresses = self
            .nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.port));
        let output = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(addresses)
            .args(["--cluster-replicas", &replicas.to_string(), "--cluster-yes"])
            .stdin(Stdio::null())
            .output()?;
        Ok(output.status.success())
    }
}

impl Drop for RedisCluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            // An error means that it is dead already, which is what was asked for.
            let _ = node.child.kill();
            let _ = node.child.wait();
        }
    }
}

/// The port in a line of CLUSTER NODES, if that node is alive and serves the slot.
fn serves(line: &str, slot: u16) -> Option<u16> {
    let mut words = line.split_ascii_whitespace();
    let (_id, address, flags) = (words.next()?, words.next()?, words.next()?);
    if !flags.contains("master") || flags.contains("fail") {
        return None;
    }
    let is_in = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
    };
    words.skip(5).any(is_in).then_some(())?;
    let (_host, port) = address.split_once('@')?.0.rsplit_once(':')?;
    port.parse().ok()
}

fn cli(port: u16, arguments: &[&str]) -> io::Result<String> {
    let output = Command::new("redis-cli")
        .args(["-h", "127.0.0.1", "-p", &port.to_string()])
        .args(arguments)
        .stdin(Stdio::null())
        .output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Ports that are free, and whose partners for the nodes among themselves are, too.
fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    let mut held = Vec::new();
    let mut ports = Vec::new();
    while ports.len() < count {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        held.push(listener);
        if let Some(bus) = port.checked_add(10_000)
            && let Ok(bus) = TcpListener::bind((Ipv4Addr::LOCALHOST, bus))
        {
            held.push(bus);
            ports.push(port);
        }
    }
    Ok(ports)
}
