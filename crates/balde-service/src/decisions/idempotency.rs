//! Answers that are given again when a caller repeats a request with the same idempotency key.

use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash as _, Hasher as _};

use parking_lot::Mutex;

use super::answer::Answer;
use super::command::Command;
use super::error::CommandError;

/// How long an answer is remembered, in microseconds.
const TTL_US: u64 = 600_000_000;

/// The most answers that are remembered. The oldest is forgotten for a new one.
const ANSWERS_MAX: usize = 65_536;

/// The answers of this process, by idempotency key.
#[derive(Debug, Default)]
pub(super) struct PastAnswers {
    past: Mutex<Past>,
}

#[derive(Debug, Default)]
struct Past {
    answers: HashMap<Box<str>, PastAnswer>,
    /// When each expires.
    order: VecDeque<(u64, Box<str>)>,
}

#[derive(Debug)]
struct PastAnswer {
    command: u64,
    /// `None` while the first request is under way.
    answer: Option<Answer>,
}

impl PastAnswers {
    /// Returns the answer to an earlier request with this key. `None` if this is the first: then
    /// [`finish`](PastAnswers::finish) must follow.
    pub(super) fn begin(
        &self,
        key: &str,
        command: &Command<'_>,
        now_us: u64,
    ) -> Result<Option<Answer>, CommandError> {
        let fingerprint = fingerprint(command);
        let mut past = self.past.lock();
        past.forget(now_us);
        match past.answers.entry(key.into()) {
            Entry::Occupied(known) => match known.get() {
                known if known.command != fingerprint => Err(CommandError::KeyReused),
                PastAnswer { answer: None, .. } => Err(CommandError::Full(
                    "a request with this idempotency key under way",
                )),
                PastAnswer { answer, .. } => Ok(answer.clone()),
            },
            Entry::Vacant(room) => {
                room.insert(PastAnswer {
                    command: fingerprint,
                    answer: None,
                });
                let expires_us = now_us.saturating_add(TTL_US);
                past.order.push_back((expires_us, key.into()));
                Ok(None)
            }
        }
    }

    /// Remembers the answer. After an error the request may be repeated.
    pub(super) fn finish(&self, key: &str, answer: Option<&Answer>) {
        let mut past = self.past.lock();
        let Some(answer) = answer else {
            past.answers.remove(key);
            past.order.retain(|(_, other)| **other != *key);
            return;
        };
        if let Some(known) = past.answers.get_mut(key) {
            known.answer = Some(answer.clone());
        }
    }
}

impl Past {
    fn forget(&mut self, now_us: u64) {
        while let Some((expires_us, _)) = self.order.front()
            && (*expires_us <= now_us || self.order.len() >= ANSWERS_MAX)
            && let Some((_, key)) = self.order.pop_front()
        {
            self.answers.remove(&key);
        }
    }
}

fn fingerprint(command: &Command<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    command.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::command::Bucket;

    fn peek(key: &[u8]) -> Command<'_> {
        Command::Peek(Bucket::named("a", key))
    }

    #[test]
    fn an_answer_is_repeated_for_its_request_only_and_for_its_time() {
        let past = PastAnswers::default();
        assert_eq!(past.begin("1", &peek(b"k"), 0), Ok(None));
        assert!(matches!(
            past.begin("1", &peek(b"k"), 1),
            Err(CommandError::Full(_))
        ));
        past.finish("1", Some(&Answer::Done));
        assert_eq!(past.begin("1", &peek(b"k"), 2), Ok(Some(Answer::Done)));
        assert_eq!(
            past.begin("1", &peek(b"other"), 2),
            Err(CommandError::KeyReused)
        );
        assert_eq!(past.begin("1", &peek(b"other"), TTL_US), Ok(None));
    }

    #[test]
    fn a_failed_request_can_be_repeated() {
        let past = PastAnswers::default();
        assert_eq!(past.begin("1", &peek(b"k"), 0), Ok(None));
        past.finish("1", None);
        assert_eq!(past.begin("1", &peek(b"k"), 0), Ok(None));
    }

    #[test]
    fn the_oldest_answers_make_room() {
        let past = PastAnswers::default();
        for index in 0..=ANSWERS_MAX {
            assert_eq!(past.begin(&index.to_string(), &peek(b"k"), 0), Ok(None));
        }
        assert_eq!(past.past.lock().answers.len(), ANSWERS_MAX);
    }
}
