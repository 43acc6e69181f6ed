//! A maximum size for replies. The client library buffers a reply until it is whole, however long it
//! gets; a server that is broken or hostile could fill the memory of the process.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::observer;

/// The largest reply that is read. The script's replies have some tens of bytes for each bucket.
pub(super) const REPLY_BYTES_MAX: u64 = 1 << 20;

/// Digits of a length, with its sign. No length within the maximum is longer.
const LENGTH_DIGITS_MAX: usize = 20;

/// A stream that fails as soon as a reply announces that it is larger than the maximum, or is.
pub(super) struct ReplyLimit<S> {
    stream: S,
    frames: Frames,
}

impl<S> ReplyLimit<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            frames: Frames::default(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReplyLimit<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if matches!(read, Poll::Ready(Ok(()))) {
            let bytes = &buf.filled()[before..];
            if self.frames.pass(bytes).is_err() {
                observer::reply_too_large();
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the reply is larger than the maximum",
                )));
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReplyLimit<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[derive(Debug, PartialEq, Eq)]
struct TooLarge;

/// Follows the frames of RESP2 and RESP3 far enough to know where a reply ends.
#[derive(Debug, Default)]
struct Frames {
    /// Bytes of the current reply, those that it has announced included.
    bytes: u64,
    /// Values that the current reply still needs, once it has begun.
    values_left: u64,
    part: Part,
}

#[derive(Debug, Default)]
enum Part {
    /// Before the type of a value.
    #[default]
    Type,
    /// In the line of a value: its type, and the beginning of what follows.
    Line {
        kind: u8,
        digits: [u8; LENGTH_DIGITS_MAX],
        len: usize,
    },
    /// In a string of which so many bytes are missing.
    Bulk { left: u64 },
}

impl Frames {
    fn pass(&mut self, mut bytes: &[u8]) -> Result<(), TooLarge> {
        while let Some((first, rest)) = bytes.split_first() {
            match &mut self.part {
                Part::Type => {
                    self.part = Part::Line {
                        kind: *first,
                        digits: [0; LENGTH_DIGITS_MAX],
                        len: 0,
                    };
                    if self.values_left == 0 {
                        (self.bytes, self.values_left) = (0, 1);
                    }
                    self.count(1)?;
                    bytes = rest;
                }
                Part::Line { kind, digits, len } => {
                    if *first == b'\n' {
                        let (kind, digits, len) = (*kind, *digits, *len);
                        self.end_line(kind, &digits[..len.min(LENGTH_DIGITS_MAX)])?;
                    } else if *first != b'\r' {
                        if let Some(digit) = digits.get_mut(*len) {
                            *digit = *first;
                        }
                        *len = len.saturating_add(1);
                    }
                    self.count(1)?;
                    bytes = rest;
                }
                Part::Bulk { left } => {
                    // Counted when it was announced.
                    let passed = bytes
                        .len()
                        .min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= passed as u64;
                    let is_whole = *left == 0;
                    bytes = &bytes[passed..];
                    if is_whole {
                        self.end_value();
                    }
                }
            }
        }
        Ok(())
    }

    fn end_line(&mut self, kind: u8, digits: &[u8]) -> Result<(), TooLarge> {
        let length = || {
            let text = std::str::from_utf8(digits).map_err(|_| TooLarge)?;
            let number: i64 = text.trim().parse().map_err(|_| TooLarge)?;
            // A negative length is a null.
            Ok(u64::try_from(number).unwrap_or(0))
        };
        let is_null = digits.first() == Some(&b'-');
        match kind {
            b'$' | b'!' | b'=' if !is_null => {
                // And the end of the line.
                let left = length()?.saturating_add(2);
                self.count(left)?;
                self.part = Part::Bulk { left };
                return Ok(());
            }
            b'*' | b'~' | b'>' => self.expect(length()?)?,
            b'%' => self.expect(length()?.saturating_mul(2))?,
            // Attributes come before the value that they describe.
            b'|' => self.expect(length()?.saturating_mul(2).saturating_add(1))?,
            _ => {}
        }
        self.end_value();
        Ok(())
    }

    fn expect(&mut self, values: u64) -> Result<(), TooLarge> {
        // Each value has at least three bytes.
        if self.bytes.saturating_add(values.saturating_mul(3)) > REPLY_BYTES_MAX {
            return Err(TooLarge);
        }
        self.values_left += values;
        Ok(())
    }

    fn end_value(&mut self) {
        self.values_left -= 1;
        self.part = Part::Type;
    }

    fn count(&mut self, bytes: u64) -> Result<(), TooLarge> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > REPLY_BYTES_MAX {
            return Err(TooLarge);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes `bytes` in pieces of `size`.
    fn pass(bytes: &[u8], size: usize) -> (Frames, Result<(), TooLarge>) {
        let mut frames = Frames::default();
        for piece in bytes.chunks(size) {
            if let Err(error) = frames.pass(piece) {
                return (frames, Err(error));
            }
        }
        (frames, Ok(()))
    }

    #[test]
    fn replies_of_every_type_end_where_they_end() {
        let replies: [&[u8]; 16] = [
            b"+OK\r\n",
            b"-ERR max number of clients reached\r\n",
            b":-12\r\n",
            b"$5\r\nhe\r\no\r\n",
            b"$0\r\n\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"*3\r\n$2\r\nab\r\n*2\r\n:1\r\n+x\r\n_\r\n",
            b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n#t\r\n",
            b"~2\r\n,1.5\r\n(12345678901234567890123\r\n",
            b"|1\r\n+ttl\r\n:9\r\n$1\r\nx\r\n",
            b">2\r\n+message\r\n$1\r\nm\r\n",
            b"!5\r\nERR x\r\n",
            b"=6\r\ntxt:ab\r\n",
            b"+\r\n",
        ];
        let all = replies.concat();
        for reply in replies.into_iter().chain([all.as_slice()]) {
            for size in 1..=reply.len() {
                let (frames, result) = pass(reply, size);
                assert_eq!(result, Ok(()));
                assert_eq!(frames.values_left, 0, "{}", reply.escape_ascii());
                assert!(matches!(frames.part, Part::Type));
            }
            let (frames, _) = pass(&reply[..reply.len() - 1], 1);
            assert!(frames.values_left > 0, "{}", reply.escape_ascii());
        }
    }

    #[test]
    fn what_is_too_large_fails_before_it_arrives() {
        for announced in [
            &b"$536870912\r\n"[..],
            b"$1048576\r\n",
            b"$99999999999999999999999\r\n",
            b"*400000\r\n",
            b"*2\r\n$1000000\r\n",
            b"%9223372036854775807\r\n",
            b"|9223372036854775807\r\n",
            b"=600000000\r\n",
            b"$?\r\n",
        ] {
            let (frames, result) = pass(announced, 3);
            let is_incomplete = result.is_ok();
            // The second string of an array is counted with the first.
            let whole = if is_incomplete {
                pass(
                    &[announced, &vec![b'x'; 1_000_000], b"\r\n$50000\r\n"].concat(),
                    4_096,
                )
                .1
            } else {
                result
            };
            assert_eq!(
                whole,
                Err(TooLarge),
                "{} {frames:?}",
                announced.escape_ascii()
            );
        }
    }

    #[test]
    fn an_endless_line_fails_at_the_maximum() {
        for kind in [b'+', b'-', b':', b'(', b'$', b'x'] {
            let mut frames = Frames::default();
            frames.pass(&[kind]).unwrap();
            let mut passed = 0;
            while frames.pass(&[b'1'; 1_000]).is_ok() {
                passed += 1_000;
                assert!(passed <= REPLY_BYTES_MAX);
            }
        }
    }

    #[test]
    fn replies_in_a_row_may_be_more_than_the_maximum_together() {
        let reply = [
            b"$100000\r\n".to_vec(),
            vec![b'x'; 100_000],
            b"\r\n".to_vec(),
        ]
        .concat();
        let mut frames = Frames::default();
        for _ in 0..100 {
            frames.pass(&reply).unwrap();
        }
    }

    #[test]
    fn whatever_arrives_nothing_panics() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..50_000 {
            let len = random.usize(1..40);
            let bytes: Vec<u8> = (0..len)
                .map(|_| *random.choice(b"$*%|~>+-:!=\r\n0123456789x?").unwrap())
                .collect();
            let _ = pass(&bytes, random.usize(1..8));
        }
    }
}
