//! Reads a file into a source: bounded in size, and UTF-8.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::diagnostic::{ConfigError, Diagnostic};
use crate::position::Position;
use crate::source::{FILE_BYTES_MAX, Source, Span};

impl Source {
    /// Reads a file of at most [`FILE_BYTES_MAX`] bytes of UTF-8.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let of_file = |message: String| {
            let position = Position::whole_file(&Self::new(&name, ""));
            ConfigError::from(Diagnostic::new(position, message))
        };
        let mut bytes = Vec::new();
        // One more than allowed, so that a file that grows or has no length is bounded, too.
        let limit = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX) + 1;
        File::open(path)
            .and_then(|file| file.take(limit).read_to_end(&mut bytes))
            .map_err(|error| of_file(format!("cannot read the file: {error}")))?;
        if bytes.len() > FILE_BYTES_MAX {
            return Err(of_file(too_large()));
        }
        String::from_utf8(bytes)
            .map(|text| Self::new(&name, text))
            .map_err(|error| {
                let valid = error.utf8_error().valid_up_to();
                let readable = String::from_utf8_lossy(&error.as_bytes()[..valid]);
                let position =
                    Position::in_source(&Self::new(&name, readable), Span::from(valid..valid));
                Diagnostic::new(position, "the file is not UTF-8 from here on").into()
            })
    }
}

pub(crate) fn too_large() -> String {
    format!("the file has more than {FILE_BYTES_MAX} bytes")
}
