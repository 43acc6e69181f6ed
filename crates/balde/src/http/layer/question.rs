//! From a request to the buckets it draws on, and their answer.

use ::http::{Extensions, HeaderMap};

use crate::decision::Decision;
use crate::http::identity::{ClientKey, NoKey};
use crate::limiter::{RateLimiter, TokenRequest};
use crate::multi::{MultiDecision, check_all, check_all_blocking};

use super::asked::Asked;
use super::rule::{Rule, Usual, Whose};
use super::rules::{Rules, WithoutKey};

/// The key of a bucket that everybody shares.
const EVERYONE: &[u8] = b"*";

/// The key of a bucket that all callers without a key share.
const NOBODY: &[u8] = b"-";

/// What a request has to ask: mostly one bucket, so that is kept without a list.
pub(super) enum Questions {
    None,
    One(Question),
    Many(Vec<Question>),
}

pub(super) struct Question {
    /// The rule's place in the layer.
    pub(super) rule: usize,
    pub(super) n: u64,
    key: Key,
}

/// The key of a bucket.
pub(super) enum Key {
    Fixed(&'static [u8]),
    Client(ClientKey),
    Own(Vec<u8>),
}

/// Why there is no question to ask: a key is missing.
#[derive(Clone, Copy)]
pub(super) struct Keyless {
    pub(super) rule: usize,
    /// What the identity said; nothing, where a closure gave no key.
    pub(super) why: Option<NoKey>,
}

impl Questions {
    #[inline]
    pub(super) fn of(rules: &Rules, asked: &Asked<'_>) -> Result<Self, Keyless> {
        if let [rule] = &*rules.list {
            return Ok(question(rules, 0, rule, asked)?.map_or(Self::None, Self::One));
        }
        let mut many = Vec::with_capacity(rules.list.len());
        for (index, rule) in rules.list.iter().enumerate() {
            many.extend(question(rules, index, rule, asked)?);
        }
        Ok(if many.is_empty() {
            Self::None
        } else {
            Self::Many(many)
        })
    }

    /// For `n` tokens of the bucket of this key, to the only rule of a layer.
    pub(super) fn only(n: u64, key: Key) -> Self {
        Self::One(Question { rule: 0, n, key })
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[Question] {
        match self {
            Self::None => &[],
            Self::One(question) => std::slice::from_ref(question),
            Self::Many(questions) => questions,
        }
    }

    /// Each decision with the name of the limiter that made it.
    pub(super) fn named<'a>(
        &self,
        rules: &'a Rules,
        decisions: &'a [Decision],
    ) -> Vec<(&'a str, &'a Decision)> {
        let names = self.as_slice().iter();
        let names = names.map(|question| question.limiter(rules).name());
        names.zip(decisions).collect()
    }

    /// Without waiting: all buckets are in this process.
    #[inline]
    pub(super) fn ask_now(&self, rules: &Rules) -> Decisions {
        match self {
            Self::None => Decisions::None,
            Self::One(question) => {
                let limiter = question.limiter(rules).blocking();
                Decisions::One(limiter.check_n(question.key(), question.n))
            }
            Self::Many(questions) => Decisions::Many(check_all_blocking(&asks(rules, questions))),
        }
    }

    pub(super) async fn request(&self, rules: &Rules) -> Decisions {
        match self {
            Self::None => Decisions::None,
            Self::One(question) => {
                let limiter = question.limiter(rules);
                Decisions::One(limiter.check_n(question.key(), question.n).await)
            }
            Self::Many(questions) => Decisions::Many(check_all(&asks(rules, questions)).await),
        }
    }
}

impl Usual {
    /// The key of the bucket that a request draws on.
    #[inline]
    pub(super) fn key(
        self,
        rules: &Rules,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Key, NoKey> {
        match self {
            Self::Caller => rules.identity.key(headers, extensions).map(Key::Client),
            Self::Everyone => Ok(Key::Fixed(EVERYONE)),
        }
    }
}

impl Key {
    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Fixed(key) => key,
            Self::Client(key) => key.as_ref(),
            Self::Own(key) => key,
        }
    }
}

impl Question {
    pub(super) fn limiter<'r>(&self, rules: &'r Rules) -> &'r RateLimiter {
        &rules.list[self.rule].limiter
    }

    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }
}

#[inline]
fn question(
    rules: &Rules,
    index: usize,
    rule: &Rule,
    asked: &Asked<'_>,
) -> Result<Option<Question>, Keyless> {
    if rule.applies.as_ref().is_some_and(|applies| !applies(asked)) {
        return Ok(None);
    }
    let found = match &rule.whose {
        Whose::Usual(usual) => usual
            .key(rules, asked.headers(), asked.extensions())
            .map_err(Some),
        Whose::By(key) => key(asked).map(Key::Own).ok_or(None),
    };
    let key = match (found, rules.without_key) {
        (Ok(key), _) => key,
        (Err(why), WithoutKey::Deny) => return Err(Keyless { rule: index, why }),
        (Err(_), WithoutKey::Allow) => return Ok(None),
        (Err(_), WithoutKey::Share) => Key::Fixed(NOBODY),
    };
    Ok(Some(Question {
        rule: index,
        n: rule.cost.as_ref().map_or(1, |cost| cost(asked)),
        key,
    }))
}

fn asks<'a>(rules: &'a Rules, questions: &'a [Question]) -> Vec<TokenRequest<'a>> {
    let ask = |question: &'a Question| {
        question
            .limiter(rules)
            .request_n(question.key(), question.n)
    };
    questions.iter().map(ask).collect()
}

/// The answers, in the order of the questions.
pub(super) enum Decisions {
    None,
    One(Decision),
    Many(MultiDecision),
}

impl Decisions {
    #[inline]
    pub(super) fn as_slice(&self) -> &[Decision] {
        match self {
            Self::None => &[],
            Self::One(decision) => std::slice::from_ref(decision),
            Self::Many(joint) => joint.parts(),
        }
    }

    /// Which question was refused, where one was.
    #[inline]
    pub(super) fn refused(&self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::One(decision) => (!decision.is_allowed()).then_some(0),
            Self::Many(joint) => joint.refused_index(),
        }
    }
}
