//! The header fields of an HTTP request, as policies read them.

use crate::policy::Headers;

/// The header fields of an HTTP request, for [`Request::headers`](crate::Request::headers).
#[derive(Clone, Copy, Debug)]
pub struct HttpHeaders<'h>(pub &'h http::HeaderMap);

impl Headers for HttpHeaders<'_> {
    fn value_of(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.to_str().ok()
    }

    fn values_differ(&self, name: &str) -> bool {
        // Few requests have any field twice.
        if self.0.len() == self.0.keys_len() {
            return false;
        }
        let mut values = self.0.get_all(name).iter();
        let first = values.next();
        values.any(|value| Some(value) != first)
    }
}
