//! The normal form of a path, byte by byte.

use std::borrow::Cow;

use super::PathError;
use super::rules::{DotSegments, PathRules, Permission};

/// Whether encoded characters that RFC 3986 reserves, and allows in a segment, are decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reserved {
    Decoded,
    Kept,
}

/// What a byte is in a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Letters, digits and `-._~`, which mean the same encoded or not.
    Unreserved,
    /// Other characters that a segment may contain.
    Reserved,
    Slash,
    Percent,
    Semicolon,
    /// Characters that have to be encoded.
    Other,
    Backslash,
    Control,
}

static CLASSES: [Class; 256] = {
    let mut classes = [Class::Other; 256];
    let mut byte = 0_u8;
    loop {
        classes[byte as usize] = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                Class::Unreserved
            }
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b'=' | b':' | b'@' => {
                Class::Reserved
            }
            b'/' => Class::Slash,
            b'%' => Class::Percent,
            b';' => Class::Semicolon,
            b'\\' => Class::Backslash,
            0..=0x20 | 0x7f => Class::Control,
            _ => Class::Other,
        };
        if byte == u8::MAX {
            break classes;
        }
        byte += 1;
    }
};

fn class(byte: u8) -> Class {
    CLASSES[usize::from(byte)]
}

pub(super) fn normalized(
    rules: PathRules,
    path: &str,
    reserved: Reserved,
) -> Result<Cow<'_, str>, PathError> {
    if is_plain(path) || !path.starts_with('/') {
        return Ok(Cow::Borrowed(path));
    }
    let mut speller = Speller::new(rules, reserved, path.len());
    for segment in path[1..].split('/') {
        speller.segment(segment)?;
    }
    let normal = speller.finish()?;
    if normal == path {
        return Ok(Cow::Borrowed(path));
    }
    Ok(Cow::Owned(normal))
}

/// A segment of a rule's path in the form in which paths are compared; `None` if no path can have it.
pub(crate) fn spelled_literal(segment: &str) -> Option<String> {
    let rules = PathRules::default()
        .escaped_slashes(Permission::Keep)
        .parameters(Permission::Keep)
        .double_encoding(Permission::Keep);
    let mut speller = Speller::new(rules, Reserved::Decoded, segment.len());
    speller.segment(segment).ok()?;
    let mut normal = speller.finish().ok()?;
    Some(normal.split_off(1))
}

/// What a byte is in a path that needs no change. Neither of the last two may follow a slash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Plain {
    No,
    Yes,
    Slash,
    Dot,
}

static PLAIN: [Plain; 256] = {
    let mut plain = [Plain::No; 256];
    let mut byte = 0;
    while byte < plain.len() {
        plain[byte] = match CLASSES[byte] {
            Class::Unreserved if byte == b'.' as usize => Plain::Dot,
            Class::Unreserved | Class::Reserved => Plain::Yes,
            Class::Slash => Plain::Slash,
            _ => Plain::No,
        };
        byte += 1;
    }
    plain
};

/// Whether a path is certainly in its normal form: nothing in it is encoded or has to be, and no
/// segment but the last is empty or begins with a dot. Nearly all paths are, so this has a table of its
/// own.
fn is_plain(path: &str) -> bool {
    let mut before = Plain::Yes;
    for byte in path.bytes() {
        let own = PLAIN[usize::from(byte)];
        if own == Plain::No || (before == Plain::Slash && own >= Plain::Slash) {
            return false;
        }
        before = own;
    }
    true
}

/// Writes a path segment by segment.
struct Speller {
    rules: PathRules,
    reserved: Reserved,
    /// The segments so far, each behind its slash.
    path: String,
    /// Whether the last segment was empty or a dot segment, so that the path ends with a slash.
    is_slash_last: bool,
    /// The decoded bytes of the path beyond ASCII, with a space for the characters between them.
    beyond_ascii: Vec<u8>,
}

impl Speller {
    fn new(rules: PathRules, reserved: Reserved, bytes: usize) -> Self {
        Self {
            rules,
            reserved,
            path: String::with_capacity(bytes),
            is_slash_last: false,
            beyond_ascii: Vec::new(),
        }
    }

    fn segment(&mut self, text: &str) -> Result<(), PathError> {
        let start = self.path.len();
        self.path.push('/');
        let mut rest = text.as_bytes();
        while let [first, after @ ..] = rest {
            rest = after;
            match class(*first) {
                Class::Percent => {
                    let [high, low, after @ ..] = after else {
                        return Err(PathError::BrokenEncoding);
                    };
                    let byte = hex(*high).zip(hex(*low));
                    let (high, low) = byte.ok_or(PathError::BrokenEncoding)?;
                    self.encoded(high << 4 | low)?;
                    rest = after;
                }
                _ => self.raw(*first)?,
            }
        }
        self.end(start)
    }

    fn raw(&mut self, byte: u8) -> Result<(), PathError> {
        match class(byte) {
            Class::Backslash => return Err(PathError::Backslash),
            Class::Control => return Err(PathError::Control),
            Class::Semicolon if self.rules.parameters == Permission::Refuse => {
                return Err(PathError::Parameter);
            }
            Class::Unreserved | Class::Reserved | Class::Semicolon => self.plain(byte),
            Class::Slash | Class::Percent | Class::Other => self.encode(byte),
        }
        Ok(())
    }

    fn encoded(&mut self, byte: u8) -> Result<(), PathError> {
        match class(byte) {
            // A space may be encoded, control characters may not.
            Class::Control if byte != b' ' => return Err(PathError::Control),
            Class::Slash | Class::Backslash if self.rules.escaped_slashes == Permission::Refuse => {
                return Err(PathError::EscapedSlash);
            }
            // Some servers look for parameters before they decode a path, some after it.
            Class::Semicolon if self.rules.parameters == Permission::Refuse => {
                return Err(PathError::Parameter);
            }
            Class::Unreserved => self.plain(byte),
            Class::Reserved | Class::Semicolon if self.reserved == Reserved::Decoded => {
                self.plain(byte);
            }
            _ => self.encode(byte),
        }
        Ok(())
    }

    fn plain(&mut self, byte: u8) {
        self.path.push(char::from(byte));
        self.separate();
    }

    fn encode(&mut self, byte: u8) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        self.path.push('%');
        for digit in [byte >> 4, byte & 15] {
            self.path.push(char::from(DIGITS[usize::from(digit)]));
        }
        if byte.is_ascii() {
            self.separate();
        } else {
            self.beyond_ascii.push(byte);
        }
    }

    /// Notes that a character of ASCII comes between the bytes beyond it.
    fn separate(&mut self) {
        if self
            .beyond_ascii
            .last()
            .is_some_and(|byte| !byte.is_ascii())
        {
            self.beyond_ascii.push(b' ');
        }
    }

    /// Ends the segment that begins at `start`: empty ones and dot segments are no segments.
    fn end(&mut self, start: usize) -> Result<(), PathError> {
        self.separate();
        let segment = &self.path[start + 1..];
        if self.rules.double_encoding == Permission::Refuse && is_encoded_twice(segment) {
            return Err(PathError::DoubleEncoding);
        }
        let name = segment.split(';').next().unwrap_or_default();
        let has_parameters = name.len() < segment.len();
        let is_up = name == "..";
        let is_dots = is_up || name == ".";
        if is_dots && (self.rules.dot_segments == DotSegments::Refuse || has_parameters) {
            return Err(PathError::DotSegment);
        }
        if self.reserved == Reserved::Decoded {
            // Rules do not see parameters.
            self.path.truncate(start + 1 + name.len());
        }
        self.is_slash_last = is_dots || self.path.len() == start + 1;
        if self.is_slash_last {
            self.path.truncate(start);
        }
        if is_up {
            let parent = self.path.rfind('/').ok_or(PathError::AboveRoot)?;
            self.path.truncate(parent);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<String, PathError> {
        if str::from_utf8(&self.beyond_ascii).is_err() {
            return Err(PathError::NotUtf8);
        }
        if self.is_slash_last || self.path.is_empty() {
            self.path.push('/');
        }
        Ok(self.path)
    }
}

/// Whether a segment in its normal form has an encoded percent sign that would make another encoded
/// character if it were decoded.
fn is_encoded_twice(segment: &str) -> bool {
    let mut rest = segment;
    while let Some(at) = rest.find("%25") {
        rest = &rest[at + 3..];
        if let [high, low, ..] = rest.as_bytes()
            && hex(*high).is_some()
            && hex(*low).is_some()
        {
            return true;
        }
    }
    false
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}
