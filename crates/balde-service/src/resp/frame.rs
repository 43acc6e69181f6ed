//! Commands as clients send them: arrays of bulk strings, or a line of words.

use bytes::{Buf as _, Bytes, BytesMut};

/// The longest line: the head of an array or bulk string, or a command as a line of words.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The most bytes of a command, whatever its arguments.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// Reads commands out of the bytes of a connection, within limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameReader {
    pub(super) argument_bytes_max: usize,
    pub(super) arguments_max: usize,
}

/// Why the bytes of a connection are no commands. The connection is closed, because the start of the
/// next command is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("Protocol error: too big inline request")]
    LongLine,
    #[error("Protocol error: invalid multibulk length")]
    Arguments,
    #[error("Protocol error: invalid bulk length")]
    Argument,
    #[error("Protocol error: expected '$'")]
    NoBulk,
    #[error("Protocol error: expected a line end after a bulk string")]
    NoLineEnd,
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    #[error("Protocol error: the command is too long")]
    LongFrame,
}

impl FrameReader {
    /// Takes the next command out of the buffer: its words, which are empty for an empty line.
    /// `None` if the rest of it has not arrived yet; then the buffer has not changed.
    pub(super) fn next(self, buffer: &mut BytesMut) -> Result<Option<Vec<Bytes>>, FrameError> {
        match buffer.first() {
            None => Ok(None),
            Some(b'*') => self.array(buffer),
            Some(_) => words(buffer),
        }
    }

    fn array(self, buffer: &mut BytesMut) -> Result<Option<Vec<Bytes>>, FrameError> {
        let Some((count, mut at)) = number(buffer, 1, FrameError::Arguments)? else {
            return Ok(None);
        };
        // Redis takes an empty or null array for no command.
        let count = usize::try_from(count).unwrap_or(0);
        if count > self.arguments_max {
            return Err(FrameError::Arguments);
        }
        let mut ends = Vec::with_capacity(count);
        for _ in 0..count {
            match buffer.get(at) {
                None => return Ok(None),
                Some(b'$') => {}
                Some(_) => return Err(FrameError::NoBulk),
            }
            let Some((bytes, start)) = number(buffer, at + 1, FrameError::Argument)? else {
                return Ok(None);
            };
            let bytes = usize::try_from(bytes).map_err(|_| FrameError::Argument)?;
            if bytes > self.argument_bytes_max {
                return Err(FrameError::Argument);
            }
            let end = start + bytes;
            if end > FRAME_BYTES_MAX {
                return Err(FrameError::LongFrame);
            }
            match buffer.get(end..end + 2) {
                None => return Ok(None),
                Some(b"\r\n") => {}
                Some(_) => return Err(FrameError::NoLineEnd),
            }
            ends.push((start, end));
            at = end + 2;
        }
        let frame = buffer.split_to(at).freeze();
        let words = ends.into_iter().map(|(start, end)| frame.slice(start..end));
        Ok(Some(words.collect()))
    }
}

/// The number on the line that begins at `at`, and where the next line begins.
fn number(buffer: &[u8], at: usize, wrong: FrameError) -> Result<Option<(i64, usize)>, FrameError> {
    // A sign and nineteen digits.
    const DIGITS_MAX: usize = 20;
    let rest = buffer.get(at..).unwrap_or_default();
    let Some(length) = rest.iter().position(|byte| *byte == b'\r') else {
        return if rest.len() > DIGITS_MAX {
            Err(wrong)
        } else {
            Ok(None)
        };
    };
    match rest.get(length + 1) {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) => return Err(wrong),
    }
    let digits = std::str::from_utf8(&rest[..length]).map_err(|_| wrong)?;
    let is_canonical = !digits.starts_with('+');
    let number = digits.parse().ok().filter(|_| is_canonical);
    let number = number.ok_or(wrong)?;
    Ok(Some((number, at + length + 2)))
}

/// A command as a line of words, as people type it. Words may be in double or single quotes.
fn words(buffer: &mut BytesMut) -> Result<Option<Vec<Bytes>>, FrameError> {
    let Some(length) = buffer
        .iter()
        .take(LINE_BYTES_MAX)
        .position(|byte| *byte == b'\n')
    else {
        return if buffer.len() >= LINE_BYTES_MAX {
            Err(FrameError::LongLine)
        } else {
            Ok(None)
        };
    };
    let line = buffer.split_to(length);
    buffer.advance(1);
    let line = line.strip_suffix(b"\r").unwrap_or(&line);
    split_words(line).map(Some)
}

fn split_words(line: &[u8]) -> Result<Vec<Bytes>, FrameError> {
    let mut words = Vec::new();
    let mut rest = line.iter().copied().peekable();
    loop {
        while rest.next_if(u8::is_ascii_whitespace).is_some() {}
        let Some(first) = rest.peek().copied() else {
            return Ok(words);
        };
        let mut word = Vec::new();
        if first == b'"' || first == b'\'' {
            rest.next();
            loop {
                match rest.next() {
                    None => return Err(FrameError::Quotes),
                    Some(byte) if byte == first => break,
                    Some(b'\\') if rest.peek().is_some() => word.extend(rest.next()),
                    Some(byte) => word.push(byte),
                }
            }
            if rest.peek().is_some_and(|byte| !byte.is_ascii_whitespace()) {
                return Err(FrameError::Quotes);
            }
        } else {
            while let Some(byte) = rest.next_if(|byte| !byte.is_ascii_whitespace()) {
                word.push(byte);
            }
        }
        words.push(word.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READER: FrameReader = FrameReader {
        argument_bytes_max: 64,
        arguments_max: 4,
    };

    fn read(bytes: &[u8]) -> Result<Option<Vec<Bytes>>, FrameError> {
        READER.next(&mut BytesMut::from(bytes))
    }

    #[test]
    fn a_command_is_read_whole_wherever_its_bytes_are_cut() {
        let bytes = b"*3\r\n$5\r\nCHECK\r\n$0\r\n\r\n$4\r\na\r\nb\r\n";
        for cut in 0..bytes.len() {
            let mut buffer = BytesMut::from(&bytes[..cut]);
            assert_eq!(READER.next(&mut buffer), Ok(None), "{cut}");
            assert_eq!(buffer.len(), cut);
            buffer.extend_from_slice(&bytes[cut..]);
            buffer.extend_from_slice(b"PING\r\n");
            let words = READER.next(&mut buffer).unwrap().unwrap();
            assert_eq!(words, [&b"CHECK"[..], b"", b"a\r\nb"]);
            assert_eq!(READER.next(&mut buffer).unwrap().unwrap(), [&b"PING"[..]]);
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn lines_of_words_may_be_quoted() {
        assert_eq!(
            read(b"echo  \"a b\" 'c\"' \n").unwrap().unwrap(),
            [&b"echo"[..], b"a b", b"c\""]
        );
        assert_eq!(read(b"\r\n").unwrap().unwrap(), Vec::<Bytes>::new());
        assert_eq!(read(b"echo \"a\n"), Err(FrameError::Quotes));
        assert_eq!(read(b"echo \"a\"b\n"), Err(FrameError::Quotes));
    }

    #[test]
    fn what_is_too_much_or_no_command_is_an_error_before_it_is_buffered() {
        assert_eq!(read(b"*5\r\n"), Err(FrameError::Arguments));
        assert_eq!(
            read(b"*99999999999999999999\r\n"),
            Err(FrameError::Arguments)
        );
        assert_eq!(
            read(b"*111111111111111111111111"),
            Err(FrameError::Arguments)
        );
        assert_eq!(read(b"*+1\r\n"), Err(FrameError::Arguments));
        assert_eq!(read(b"*1\r\n$104857600\r\n"), Err(FrameError::Argument));
        assert_eq!(read(b"*1\r\n$-1\r\n"), Err(FrameError::Argument));
        assert_eq!(read(b"*1\r\n:1\r\n"), Err(FrameError::NoBulk));
        assert_eq!(read(b"*1\r\n$1\r\nabc"), Err(FrameError::NoLineEnd));
        assert_eq!(read(&vec![b'x'; LINE_BYTES_MAX]), Err(FrameError::LongLine));
        assert_eq!(read(b"*-1\r\n").unwrap().unwrap(), Vec::<Bytes>::new());
    }
}
