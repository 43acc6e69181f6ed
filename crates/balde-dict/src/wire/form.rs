//! Reading a request's fields, with everything that is wrong with them at once.

use super::element::Element;
use super::problem::Violation;
use super::time::Moment;

/// The most violations that an answer lists.
pub const VIOLATIONS_MAX: usize = 20;

/// A request being read. What is missing or wrong is noted and reading goes on, so that the sender
/// is told everything at once; [`finish`](Form::finish) then gives the request or the list.
pub(crate) struct Form<'e> {
    root: &'e Element,
    violations: Vec<Violation>,
}

impl<'e> Form<'e> {
    /// A form for a document whose root must have this name.
    pub(crate) fn new(root: &'e Element, name: &str) -> Self {
        let mut form = Self {
            root,
            violations: Vec::new(),
        };
        if root.name() != name {
            let reason = format!("the document is not a {name}");
            form.note(root, name, &reason);
        }
        form
    }

    /// The text at a path, which must be there.
    pub(crate) fn text(&mut self, path: &str) -> String {
        self.checked(path, "must not be empty", |text| !text.is_empty())
    }

    /// The text at a path, if it is there.
    pub(crate) fn maybe(&mut self, path: &str, longest: usize) -> Option<String> {
        let element = self.root.at(path)?;
        if element.text().chars().count() > longest {
            self.note(
                element,
                path,
                &format!("is longer than {longest} characters"),
            );
        }
        Some(element.text().to_owned()).filter(|text| !text.is_empty())
    }

    /// The text at a path, which must be there and keep a rule.
    pub(crate) fn checked(
        &mut self,
        path: &str,
        rule: &str,
        keeps: impl FnOnce(&str) -> bool,
    ) -> String {
        let Some(element) = self.root.at(path) else {
            self.note_missing(path);
            return String::new();
        };
        if !keeps(element.text()) {
            self.note(element, path, rule);
        }
        element.text().to_owned()
    }

    /// A word at a path, which must be there and known.
    pub(crate) fn word<T>(
        &mut self,
        path: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let Some(element) = self.root.at(path) else {
            self.note_missing(path);
            return None;
        };
        let word = read(element.text());
        if word.is_none() {
            self.note(element, path, "is none of the known words");
        }
        word
    }

    /// A word at a path, which must be known if it is there.
    pub(crate) fn maybe_word<T>(
        &mut self,
        path: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        self.root.at(path)?;
        self.word(path, read)
    }

    /// A moment at a path, which must be there.
    pub(crate) fn moment(&mut self, path: &str) -> Moment {
        let read = |text: &str| text.parse().ok();
        self.word(path, read).unwrap_or_default()
    }

    /// Notes something that is wrong with more than one field.
    pub(crate) fn note_at(&mut self, path: &str, reason: &str) {
        let element = self.root.at(path).unwrap_or(self.root);
        self.note(element, path, reason);
    }

    /// The request, unless something was wrong with it.
    pub(crate) fn finish<T>(self, request: Option<T>) -> Result<T, Vec<Violation>> {
        match request {
            Some(request) if self.violations.is_empty() => Ok(request),
            _ => Err(self.violations),
        }
    }

    fn note_missing(&mut self, path: &str) {
        // The deepest element on the way that is there says where it should be.
        let mut nearest = self.root;
        for name in path.split('/') {
            match nearest.child(name) {
                Some(child) => nearest = child,
                None => break,
            }
        }
        self.note(nearest, path, "is missing");
    }

    fn note(&mut self, element: &Element, path: &str, reason: &str) {
        if self.violations.len() >= VIOLATIONS_MAX {
            return;
        }
        let position = element.position();
        self.violations.push(Violation {
            reason: format!(
                "{reason} (line {}, column {})",
                position.line, position.column
            ),
            value: None,
            property: Some(path.replace('/', ".")),
        });
    }
}
