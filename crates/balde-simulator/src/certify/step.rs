//! One step of the conversation as data.

/// Who sends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The participant that is certified.
    Participant,
    /// The one on the other side.
    Counterparty,
}

/// What an answer must have, besides its status. Paths are such as `Claim/Status`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expectation {
    /// An element with this text, in which `{name}` stands for a value.
    Text(&'static str, &'static str),
    /// An element with any text.
    Present(&'static str),
    /// A child of the element with this text and attribute.
    Attribute {
        list: &'static str,
        text: &'static str,
        attribute: (&'static str, &'static str),
    },
    /// A descendant of the element with this text.
    Contains(&'static str, &'static str),
}

/// A request, and what the published texts say about its answer.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) chapter: &'static str,
    /// Where the sentence is from.
    pub(super) source: &'static str,
    /// What the source says, in short.
    pub(super) sentence: &'static str,
    pub(super) role: Role,
    pub(super) method: &'static str,
    /// Below the base path. `{self}` is who sends it.
    pub(super) path: &'static str,
    pub(super) headers: Vec<(&'static str, &'static str)>,
    pub(super) body: Option<&'static str>,
    pub(super) is_on_np: bool,
    pub(super) status: u16,
    /// The error type, or the root element of a success.
    pub(super) answer: &'static str,
    pub(super) expectations: Vec<Expectation>,
    pub(super) saves: Vec<(&'static str, &'static str)>,
    /// A value that is computed before the request is filled in.
    pub(super) computes: &'static [&'static str],
    /// Whether it is sent until it has the status, at most so many times as a bucket may hold.
    pub(super) is_repeated: bool,
}

impl Step {
    pub(super) fn get(name: &'static str, path: &'static str) -> Self {
        Self {
            name,
            chapter: "",
            source: "",
            sentence: "",
            role: Role::Participant,
            method: "GET",
            path,
            headers: Vec::new(),
            body: None,
            is_on_np: false,
            status: 200,
            answer: "",
            expectations: Vec::new(),
            saves: Vec::new(),
            computes: &[],
            is_repeated: false,
        }
    }

    pub(super) fn post(name: &'static str, path: &'static str, body: &'static str) -> Self {
        Self {
            method: "POST",
            body: Some(body),
            ..Self::get(name, path)
        }
    }

    /// What the source says.
    pub(super) fn says(mut self, source: &'static str, sentence: &'static str) -> Self {
        (self.source, self.sentence) = (source, sentence);
        self
    }

    /// The counterparty sends it.
    pub(super) fn by_counterparty(mut self) -> Self {
        self.role = Role::Counterparty;
        self
    }

    pub(super) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// It is accepted: status and root element.
    pub(super) fn accepted(mut self, status: u16, root: &'static str) -> Self {
        (self.status, self.answer) = (status, root);
        self
    }

    /// It is refused: status and error type.
    pub(super) fn refused(self, status: u16, error: &'static str) -> Self {
        self.accepted(status, error)
    }

    pub(super) fn text(mut self, path: &'static str, text: &'static str) -> Self {
        self.expectations.push(Expectation::Text(path, text));
        self
    }

    pub(super) fn present(mut self, path: &'static str) -> Self {
        self.expectations.push(Expectation::Present(path));
        self
    }

    pub(super) fn contains(mut self, path: &'static str, text: &'static str) -> Self {
        self.expectations.push(Expectation::Contains(path, text));
        self
    }

    pub(super) fn attribute(
        mut self,
        list: &'static str,
        text: &'static str,
        attribute: (&'static str, &'static str),
    ) -> Self {
        self.expectations.push(Expectation::Attribute {
            list,
            text,
            attribute,
        });
        self
    }

    pub(super) fn save(mut self, name: &'static str, path: &'static str) -> Self {
        self.saves.push((name, path));
        self
    }

    pub(super) fn computes(mut self, names: &'static [&'static str]) -> Self {
        self.computes = names;
        self
    }

    pub(super) fn on_np(mut self) -> Self {
        self.is_on_np = true;
        self
    }

    pub(super) fn repeated(mut self) -> Self {
        self.is_repeated = true;
        self
    }
}
