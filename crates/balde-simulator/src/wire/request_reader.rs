//! Reads the fields of a request document and collects all violations.

use balde_dict::wire::{Element, Timestamp, Violation, formats};

/// The most violations that a response lists.
const VIOLATIONS_MAX: usize = 20;

/// The most characters of a refused text that a response repeats.
const VALUE_CHARS_MAX: usize = 200;

/// The published reason of a text that does not have the pattern of its field, with that pattern.
macro_rules! no_match {
    ($pattern:literal) => {
        concat!("Value does not match regex '", $pattern, "'")
    };
}
pub(crate) use no_match;

/// The reason of an ISPB that is not eight letters or digits.
pub(crate) const ISPB_PATTERN: &str = no_match!("^(?i)[a-z0-9]{8}");

/// Reads one request document. A missing or invalid field is recorded and reading continues, so that
/// the sender learns of all violations at once. [`finish`](RequestReader::finish) returns either the
/// request or the violations.
pub(crate) struct RequestReader<'e> {
    root: &'e Element,
    violations: Vec<Violation>,
}

impl<'e> RequestReader<'e> {
    /// Starts reading a document whose root element must have this name.
    pub(crate) fn new(root: &'e Element, name: &str) -> Self {
        let mut reader = Self {
            root,
            violations: Vec::new(),
        };
        if root.name() != name {
            let reason = format!("the document is not a {name}");
            reader.add_violation(root, name, &reason);
        }
        reader
    }

    /// Reads a required text.
    pub(crate) fn text(&mut self, path: &str) -> String {
        self.text_matching(path, "must not be empty", |text| !text.is_empty())
    }

    /// Returns true if the document has an element at this path.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.root.at(path).is_some()
    }

    /// The element at a path. An element that the document has more than once must have the same
    /// content each time: nobody could say which one was meant.
    pub(crate) fn find(&mut self, path: &str) -> Option<&'e Element> {
        let mut element = self.root;
        for name in path.split('/') {
            let mut same = element
                .children()
                .iter()
                .filter(|child| child.name() == name);
            let first = same.next()?;
            if same.any(|other| !first.has_content_of(other)) {
                self.add_violation(first, path, "appears several times with different values");
            }
            element = first;
        }
        Some(element)
    }

    /// Reads an optional text, if it is present and not empty.
    pub(crate) fn optional_matching(
        &mut self,
        path: &str,
        reason: &str,
        is_valid: impl FnOnce(&str) -> bool,
    ) -> Option<String> {
        let element = self.find(path)?;
        let text = element.text();
        if text.is_empty() {
            return None;
        }
        if !is_valid(text) {
            self.add_violation(element, path, reason);
        }
        Some(text.to_owned())
    }

    /// Reads an optional text of at most `chars_max` characters. An empty text counts as absent.
    pub(crate) fn optional_text(&mut self, path: &str, chars_max: usize) -> Option<String> {
        let element = self.find(path)?;
        if element.text().chars().count() > chars_max {
            let reason = format!("is longer than {chars_max} characters");
            self.add_violation(element, path, &reason);
        }
        Some(element.text().to_owned()).filter(|text| !text.is_empty())
    }

    /// Reads a required text. `reason` is the violation if it is not valid.
    pub(crate) fn text_matching(
        &mut self,
        path: &str,
        reason: &str,
        is_valid: impl FnOnce(&str) -> bool,
    ) -> String {
        let Some(element) = self.find(path) else {
            self.add_missing(path);
            return String::new();
        };
        if !is_valid(element.text()) {
            self.add_violation(element, path, reason);
        }
        element.text().to_owned()
    }

    /// Reads a participant's ISPB.
    pub(crate) fn ispb(&mut self, path: &str) -> String {
        let ispb = self.text_matching(path, ISPB_PATTERN, formats::is_ispb);
        formats::canonical_ispb(&ispb).into_owned()
    }

    /// Reads the id of a request: a UUID of version 4.
    pub(crate) fn request_id(&mut self, path: &str) -> String {
        let pattern =
            no_match!("^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$");
        self.text_matching(path, pattern, formats::is_uuid_v4)
            .to_lowercase()
    }

    /// Reads a UUID.
    pub(crate) fn uuid(&mut self, path: &str) -> String {
        self.text_matching(path, "is not a UUID", formats::is_uuid)
            .to_lowercase()
    }

    /// Reads a required value of an enumeration.
    pub(crate) fn value<T>(
        &mut self,
        path: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let Some(element) = self.find(path) else {
            self.add_missing(path);
            return None;
        };
        let value = parse(element.text());
        if value.is_none() {
            self.add_violation(element, path, "is not a known value");
        }
        value
    }

    /// Reads an optional value of an enumeration.
    pub(crate) fn optional_value<T>(
        &mut self,
        path: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        self.root.at(path)?;
        self.value(path, parse)
    }

    /// Reads a required timestamp.
    pub(crate) fn timestamp(&mut self, path: &str) -> Timestamp {
        let parse = |text: &str| text.parse().ok();
        self.value(path, parse).unwrap_or_default()
    }

    /// Records a violation that the caller has found.
    pub(crate) fn add_violation_at(&mut self, path: &str, reason: &str) {
        let element = self.root.at(path).unwrap_or(self.root);
        self.add_violation(element, path, reason);
    }

    /// Returns the request, or the violations if there are any.
    pub(crate) fn finish<T>(self, request: Option<T>) -> Result<T, Vec<Violation>> {
        match request {
            Some(request) if self.violations.is_empty() => Ok(request),
            _ => Err(self.violations),
        }
    }

    fn add_missing(&mut self, path: &str) {
        // The violation points to the deepest element of the path that exists.
        let mut nearest = self.root;
        for name in path.split('/') {
            match nearest.child(name) {
                Some(child) => nearest = child,
                None => break,
            }
        }
        self.add_violation(nearest, path, "is missing");
        if let Some(violation) = self.violations.last_mut() {
            violation.value = None;
        }
    }

    fn add_violation(&mut self, element: &Element, path: &str, reason: &str) {
        if self.violations.len() >= VIOLATIONS_MAX {
            return;
        }
        self.violations.push(Violation {
            reason: reason.to_owned(),
            value: refused_text(element),
            property: Some(property(path)),
        });
    }
}

/// The text that is refused, if it is the element's own.
fn refused_text(element: &Element) -> Option<String> {
    let text = element.text();
    let is_own = element.children().is_empty() && !text.is_empty();
    is_own.then(|| text.chars().take(VALUE_CHARS_MAX).collect())
}

/// `Entry/Account/Participant` is the property `entry.account.participant`.
pub(crate) fn property(path: &str) -> String {
    let mut property = String::with_capacity(path.len());
    for name in path.split('/') {
        if !property.is_empty() {
            property.push('.');
        }
        let mut letters = name.chars();
        property.extend(letters.next().map(|first| first.to_ascii_lowercase()));
        property.push_str(letters.as_str());
    }
    property
}
