//! One connection: who it belongs to, and the commands that are not about limits.

use std::sync::Arc;

use bytes::Bytes;

use super::RespServer;
use super::commands::{self, COMMANDS};
use super::reply::{Replies, Version};
use crate::access::{Rights, sha256};
use crate::decisions::{Answer, Caller, Command};
use crate::metrics::RequestResult;

/// The version of Redis whose commands at the start of a connection are answered. Clients look at it
/// to decide what they may send.
const REDIS_VERSION: &str = "7.2.0";

/// What a connection is to do after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Continue,
    Close,
}

/// The state of a connection.
#[derive(Debug)]
pub(super) struct Session {
    server: Arc<RespServer>,
    rights: Rights,
    /// The digest of the secret that the client has given.
    secret: Option<[u8; 32]>,
    /// Of the rights that were in force when this client's were looked up.
    generation: u64,
    name: Bytes,
    id: u64,
    pub(super) replies: Replies,
}

impl Session {
    pub(super) fn new(server: Arc<RespServer>, id: u64) -> Self {
        let generation = server.access.generation();
        let rights = server.access.read().anonymous();
        Self {
            server,
            rights,
            secret: None,
            generation,
            name: Bytes::new(),
            id,
            replies: Replies::new(),
        }
    }

    /// Runs a command, and appends its answer to the replies.
    pub(super) async fn run(&mut self, words: &[Bytes]) -> Next {
        let Some((name, words)) = words.split_first() else {
            return Next::Continue;
        };
        self.look_up_rights();
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        if commands::is_known(&name) {
            self.decide(&name, words).await;
            return Next::Continue;
        }
        let no_rights = Rights::NONE;
        let is_first = matches!(name.as_str(), "auth" | "hello" | "quit" | "reset");
        if self.rights == no_rights && !is_first {
            self.refuse_anonymous();
            return Next::Continue;
        }
        self.housekeeping(&name, words)
    }

    /// After a reload, a token may have other rights, or none.
    fn look_up_rights(&mut self) {
        let generation = self.server.access.generation();
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        let access = self.server.access.read();
        self.rights = match &self.secret {
            Some(digest) => access.rights_of_digest(digest).unwrap_or(Rights::NONE),
            None => access.anonymous(),
        };
    }

    async fn decide(&mut self, name: &str, words: &[Bytes]) {
        let several = commands::several(name, words);
        let parsed = several
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|several| commands::parse(name, words, several));
        let parsed = match parsed {
            Ok(parsed) => parsed,
            Err(error) => {
                self.server.metrics.count(RequestResult::Invalid);
                return self.replies.command_error(&error);
            }
        };
        if self.secret.is_none() && !self.rights.has(parsed.command.right()) {
            self.server.metrics.count(RequestResult::Invalid);
            return self.refuse_anonymous();
        }
        let caller = Caller {
            rights: self.rights,
            idempotency_key: parsed.idempotency_key,
            deadline: None,
        };
        let answer = self.server.decisions.run(parsed.command, &caller).await;
        self.server.metrics.count(RequestResult::new(&answer));
        match answer {
            Ok(Answer::One(verdict)) if name == "cl.throttle" => {
                // Nothing is refused where nothing is asked for.
                let is_peek = matches!(parsed.command, Command::Peek(_));
                self.replies.throttled(&verdict, is_peek);
            }
            Ok(answer) => self.replies.answer(&answer),
            Err(error) => self.replies.command_error(&error),
        }
    }

    fn refuse_anonymous(&mut self) {
        self.replies.error(&"NOAUTH Authentication required.");
    }

    fn housekeeping(&mut self, name: &str, words: &[Bytes]) -> Next {
        match (name, words) {
            ("ping", []) => self.replies.status("PONG"),
            ("ping" | "echo", [message]) => self.replies.bulk(message),
            ("auth", [secret]) => self.authenticate(None, secret),
            ("auth", [user, secret]) => self.authenticate(Some(user), secret),
            ("hello", words) => self.hello(words),
            ("client", [verb, rest @ ..]) => self.client(verb, rest),
            ("command", words) => self.describe(words),
            ("info", _) => {
                let info = self.server.info();
                self.replies.bulk(info.as_bytes());
            }
            ("select", [index]) if **index == *b"0" => self.replies.status("OK"),
            ("select", [_]) => self.replies.error(&"ERR DB index is out of range"),
            ("reset", []) => {
                *self =
                    Self::new(Arc::clone(&self.server), self.id).with_replies(&mut self.replies);
                self.replies.status("RESET");
            }
            ("quit", _) => {
                self.replies.status("OK");
                return Next::Close;
            }
            _ if is_housekeeping(name) => {
                let text = format!("ERR wrong number of arguments for '{name}' command");
                self.replies.error(&text);
            }
            _ => {
                let name: String = name.chars().take(64).collect();
                self.replies.error(&format_args!(
                    "ERR unknown command '{name}'; this is balde, which has CL.THROTTLE and BALDE.*"
                ));
            }
        }
        Next::Continue
    }

    /// Keeps the answers that wait to be written.
    fn with_replies(mut self, replies: &mut Replies) -> Self {
        self.replies.bytes = std::mem::take(&mut replies.bytes);
        self
    }

    fn authenticate(&mut self, user: Option<&[u8]>, secret: &[u8]) {
        if self.grant(user, secret) {
            self.replies.status("OK");
        } else {
            self.replies
                .error(&"WRONGPASS invalid username-password pair or user is disabled.");
        }
    }

    /// Returns whether the secret is a token's. A user name is the name of the token; `default`, which
    /// clients send if they know none, is any.
    fn grant(&mut self, user: Option<&[u8]>, secret: &[u8]) -> bool {
        let Ok(secret) = std::str::from_utf8(secret) else {
            return false;
        };
        let user = user.filter(|user| *user != b"default");
        let access = self.server.access.read();
        let rights = match user.map(std::str::from_utf8) {
            None => access.rights_of(secret),
            Some(Ok(user)) => access.rights_of_named(user, secret),
            Some(Err(_)) => None,
        };
        drop(access);
        let Some(rights) = rights else {
            return false;
        };
        self.rights = rights;
        self.secret = Some(sha256(secret));
        true
    }

    /// `HELLO [version [AUTH user secret] [SETNAME name]]`
    fn hello(&mut self, words: &[Bytes]) {
        let (version, mut rest) = match words.split_first() {
            None => (None, words),
            Some((version, rest)) => (Some(version), rest),
        };
        let version = match version.map(|word| &**word) {
            None => self.replies.version,
            Some(b"2") => Version::Two,
            Some(b"3") => Version::Three,
            Some(_) => return self.replies.error(&"NOPROTO unsupported protocol version"),
        };
        loop {
            match rest {
                [] => break,
                [verb, user, secret, after @ ..] if verb.eq_ignore_ascii_case(b"auth") => {
                    if !self.grant(Some(user), secret) {
                        let text = "WRONGPASS invalid username-password pair or user is disabled.";
                        return self.replies.error(&text);
                    }
                    rest = after;
                }
                [verb, name, after @ ..] if verb.eq_ignore_ascii_case(b"setname") => {
                    self.name = name.clone();
                    rest = after;
                }
                _ => return self.replies.error(&"ERR syntax error in HELLO"),
            }
        }
        if self.rights == Rights::NONE {
            let text = "NOAUTH HELLO must be called with the client already authenticated, otherwise \
                        the HELLO <proto> AUTH <user> <pass> option can be used";
            return self.replies.error(&text);
        }
        self.replies.version = version;
        self.greet();
    }

    fn greet(&mut self) {
        let version = self.replies.version;
        self.replies.map(7);
        for (name, text) in [("server", "redis"), ("version", REDIS_VERSION)] {
            self.replies.bulk(name.as_bytes());
            self.replies.bulk(text.as_bytes());
        }
        self.replies.bulk(b"proto");
        self.replies
            .integer(if version == Version::Three { 3 } else { 2 });
        self.replies.bulk(b"id");
        self.replies
            .integer(i64::try_from(self.id).unwrap_or(i64::MAX));
        for (name, text) in [("mode", "standalone"), ("role", "master")] {
            self.replies.bulk(name.as_bytes());
            self.replies.bulk(text.as_bytes());
        }
        self.replies.bulk(b"modules");
        self.replies.array(0);
    }

    fn client(&mut self, verb: &[u8], rest: &[Bytes]) {
        match (verb.to_ascii_lowercase().as_slice(), rest) {
            (b"setname", [name]) => {
                self.name = name.clone();
                self.replies.status("OK");
            }
            (b"getname", []) if self.name.is_empty() => self.replies.null(),
            (b"getname", []) => self.replies.bulk(&self.name.clone()),
            (b"id", []) => self
                .replies
                .integer(i64::try_from(self.id).unwrap_or(i64::MAX)),
            (b"setinfo", [_, _]) | (b"no-evict" | b"no-touch", [_]) => self.replies.status("OK"),
            (b"info" | b"list", []) => {
                let line = format!("id={} resp={:?}\n", self.id, self.replies.version);
                self.replies.bulk(line.as_bytes());
            }
            _ => self
                .replies
                .error(&"ERR unknown subcommand or wrong number of arguments for 'client' command"),
        }
    }

    /// `COMMAND` with its subcommands: clients ask for them to complete names and to find keys.
    fn describe(&mut self, words: &[Bytes]) {
        let verb = words.first().map(|verb| verb.to_ascii_lowercase());
        match verb.as_deref() {
            None => {
                self.replies.array(COMMANDS.len());
                for (name, least, _) in COMMANDS {
                    self.replies.array(6);
                    self.replies.bulk(name.as_bytes());
                    // At least that many words, the name among them.
                    self.replies.integer(-i64::try_from(least + 1).unwrap_or(1));
                    self.replies.array(1);
                    self.replies.status("write");
                    let position = i64::from(name == "cl.throttle");
                    for number in [position, position, position] {
                        self.replies.integer(number);
                    }
                }
            }
            Some(b"count") => self
                .replies
                .integer(i64::try_from(COMMANDS.len()).unwrap_or(0)),
            Some(b"docs") => self.replies.map(0),
            _ => self.replies.array(0),
        }
    }
}

impl RespServer {
    fn info(&self) -> String {
        format!(
            "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\n\
             balde_version:{}\r\n# Clients\r\nconnected_clients:{}\r\n\
             # Persistence\r\nloading:0\r\n# Stats\r\ntotal_commands_processed:{}\r\n\
             # Replication\r\nrole:master\r\n",
            env!("CARGO_PKG_VERSION"),
            self.metrics.connections(),
            self.metrics.requests(),
        )
    }
}

fn is_housekeeping(name: &str) -> bool {
    let names = ["ping", "echo", "auth", "client", "select", "reset"];
    names.contains(&name)
}
