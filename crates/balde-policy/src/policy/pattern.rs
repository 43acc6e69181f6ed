//! Patterns of text, such as a number of eleven digits.
//!
//! A pattern is the part of regular expressions that needs no search: characters and classes in a
//! row, each with a count. Reading stops at the first character that does not fit, so no text makes
//! it slow.

use std::fmt;

/// The longest pattern, and the highest count.
const PATTERN_BYTES_MAX: usize = 256;
const COUNT_MAX: u16 = 1_024;

/// A pattern for a whole text, in a small subset of regular expressions. It is always anchored.
///
/// A character matches itself, `[0-9A-Z]` one character of a class, and `[^@]` one character that
/// is not in it. `{11}` or `{1,14}` after either repeats it, and `\` makes the next character
/// literal. There is no backtracking, so what follows a repetition of varying length must not match
/// its class: `[0-9]{1,3}[A-Z]` is valid, `[0-9]{1,3}[0-9]` is refused. `<=77` at the end limits the
/// length of the whole text, in bytes.
///
/// ```
/// use balde_policy::Pattern;
///
/// let phone = Pattern::new(r"\+[1-9][0-9]{1,14}")?;
/// assert!(phone.matches("+5511987654321"));
/// assert!(!phone.matches("5511987654321"));
/// # Ok::<(), balde_policy::PatternError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    runs: Vec<Run>,
    /// Most texts are ruled out by their length alone.
    bytes_least: usize,
    bytes_most: usize,
}

/// A pattern with its name in a profile, such as `CPF`.
pub type NamedPattern = (Box<str>, Pattern);

/// Between `least` and `most` characters of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    class: Class,
    least: u16,
    most: u16,
}

/// ASCII characters as bits; all others are in or out together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    ascii: u128,
    has_others: bool,
}

impl Class {
    const EMPTY: Self = Self {
        ascii: 0,
        has_others: false,
    };

    /// Whether it has the character that begins with this byte.
    fn contains(self, byte: u8) -> bool {
        if byte.is_ascii() {
            self.ascii & (1 << u32::from(byte)) != 0
        } else {
            self.has_others
        }
    }

    fn overlaps(self, other: Self) -> bool {
        self.ascii & other.ascii != 0 || (self.has_others && other.has_others)
    }
}

impl Pattern {
    /// Parses a pattern.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::TooLong);
        }
        let (pattern, bytes_max) = match text.split_once("<=") {
            Some((pattern, most)) => {
                let most = most.parse().map_err(|_| PatternError::Count)?;
                (pattern, most)
            }
            None => (text, usize::MAX),
        };
        let mut runs = Vec::new();
        let mut rest = pattern.chars().peekable();
        while let Some(c) = rest.next() {
            let class = match c {
                '[' => read_class(&mut rest)?,
                '\\' => class_of(rest.next().ok_or(PatternError::Class)?)?,
                ']' | '{' | '}' | '*' | '+' | '?' | '(' | ')' | '|' | '^' | '$' | '.' => {
                    return Err(PatternError::Unescaped { character: c });
                }
                _ => class_of(c)?,
            };
            let (least, most) = if rest.next_if_eq(&'{').is_some() {
                read_count(&mut rest)?
            } else {
                (1, 1)
            };
            runs.push(Run { class, least, most });
        }
        if runs.is_empty() {
            return Err(PatternError::Empty);
        }
        for pair in runs.windows(2) {
            if pair[0].least != pair[0].most
                && (pair[0].class.overlaps(pair[1].class) || pair[1].least == 0)
            {
                return Err(PatternError::Ambiguous);
            }
        }
        let least = runs.iter().map(|run| usize::from(run.least)).sum();
        // A character that is not ASCII takes up to four bytes.
        let widest = |run: &Run| usize::from(run.most) * if run.class.has_others { 4 } else { 1 };
        let most: usize = runs.iter().map(widest).sum();
        Ok(Self {
            text: text.into(),
            runs,
            bytes_least: least,
            bytes_most: most.min(bytes_max),
        })
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the whole text matches the pattern.
    pub fn matches(&self, text: &str) -> bool {
        if text.len() < self.bytes_least || text.len() > self.bytes_most {
            return false;
        }
        let mut rest = text.as_bytes();
        for run in &self.runs {
            let mut count = 0;
            while count < run.most
                && let Some(first) = rest.first()
                && run.class.contains(*first)
            {
                // All bytes of a character that is not ASCII go together.
                let width = rest[1..].iter().take_while(|byte| is_inner(**byte));
                rest = &rest[1 + width.count()..];
                count += 1;
            }
            if count < run.least {
                return false;
            }
        }
        rest.is_empty()
    }
}

/// Whether a byte of UTF-8 is one that does not begin a character.
const fn is_inner(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

type Rest<'t> = std::iter::Peekable<std::str::Chars<'t>>;

fn class_of(c: char) -> Result<Class, PatternError> {
    if !c.is_ascii() {
        return Err(PatternError::Class);
    }
    Ok(Class {
        ascii: 1 << u32::from(c),
        has_others: false,
    })
}

fn read_class(rest: &mut Rest<'_>) -> Result<Class, PatternError> {
    let is_negated = rest.next_if_eq(&'^').is_some();
    let mut class = Class::EMPTY;
    loop {
        let from = match rest.next().ok_or(PatternError::Class)? {
            ']' => break,
            '\\' => rest.next().ok_or(PatternError::Class)?,
            c => c,
        };
        let mut to = from;
        if rest.next_if_eq(&'-').is_some() {
            to = match rest.peek().copied().ok_or(PatternError::Class)? {
                // A dash at the end is a character of the class.
                ']' => {
                    class.ascii |= 1 << u32::from('-');
                    from
                }
                c => {
                    rest.next();
                    let escaped = if c == '\\' { rest.next() } else { Some(c) };
                    escaped.ok_or(PatternError::Class)?
                }
            };
        }
        if !from.is_ascii() || !to.is_ascii() || from > to {
            return Err(PatternError::Class);
        }
        for c in from..=to {
            class.ascii |= 1 << u32::from(c);
        }
    }
    if class == Class::EMPTY {
        return Err(PatternError::Class);
    }
    if is_negated {
        class.ascii = !class.ascii;
        class.has_others = true;
    }
    Ok(class)
}

fn read_count(rest: &mut Rest<'_>) -> Result<(u16, u16), PatternError> {
    let least = read_number(rest)?;
    let most = if rest.next_if_eq(&',').is_some() {
        read_number(rest)?
    } else {
        least
    };
    let is_closed = rest.next() == Some('}');
    if !is_closed || least > most || most == 0 || most > COUNT_MAX {
        return Err(PatternError::Count);
    }
    Ok((least, most))
}

fn read_number(rest: &mut Rest<'_>) -> Result<u16, PatternError> {
    let mut number = None;
    while let Some(digit) = rest.next_if(char::is_ascii_digit) {
        let digit = u16::try_from(u32::from(digit) - u32::from('0')).unwrap_or(0);
        let tens = number.unwrap_or(0_u16).checked_mul(10);
        let sum = tens.and_then(|tens| tens.checked_add(digit));
        number = Some(sum.ok_or(PatternError::Count)?);
    }
    number.ok_or(PatternError::Count)
}

/// Why a text is not a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatternError {
    /// The pattern is empty.
    Empty,
    /// The pattern is too long.
    TooLong,
    /// A character that is special in regular expressions, in a place where it means nothing here;
    /// `\` makes it literal.
    Unescaped {
        /// The character.
        character: char,
    },
    /// A class that is empty, not closed, has a range in descending order, or contains characters
    /// that are not ASCII.
    Class,
    /// A count that is not `{n}` or `{least,most}` with at most 1,024, or a length limit that is
    /// not a number.
    Count,
    /// A repetition of varying length is followed by something that its own class contains.
    Ambiguous,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a pattern has at least one character"),
            Self::TooLong => write!(f, "a pattern has at most {PATTERN_BYTES_MAX} bytes"),
            Self::Unescaped { character } => {
                write!(
                    f,
                    "`{character}` has no meaning here; write `\\{character}` for the character"
                )
            }
            Self::Class => {
                f.write_str("a class is ASCII characters and ranges in brackets, as in `[0-9A-Z]`")
            }
            Self::Count => f.write_str(
                "a count is `{11}` or `{1,14}`, at most 1024; a bound at the end is `<=77`",
            ),
            Self::Ambiguous => f.write_str(
                "a count that varies must be followed by a character or class it does not contain",
            ),
        }
    }
}

impl std::error::Error for PatternError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_what_has_them() {
        for (pattern, fitting, others) in [
            (
                "[0-9]{3}",
                &["123"][..],
                &["", "12", "1234", "12a", "１２３"][..],
            ),
            (
                "[^@]{1,3}@x",
                &["a@x", "ééé@x", "a b@x"],
                &["@x", "éééé@x", "a@", "a@@x"],
            ),
            (r"\+[1-9]{0,2}", &["+", "+1", "+12"], &["1", "+123", "++"]),
            ("[a-z-]{1,9}<=3", &["a-b", "---"], &["abcd", "A"]),
            (r"[\]\-x]{2}", &["]-", "xx"], &["a]", "\\-"]),
            ("ab", &["ab"], &["a", "abc", "ba"]),
        ] {
            let pattern =
                Pattern::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            for text in fitting {
                assert!(
                    pattern.matches(text),
                    "{} should fit {text}",
                    pattern.as_str()
                );
            }
            for text in others {
                assert!(
                    !pattern.matches(text),
                    "{} should not fit {text}",
                    pattern.as_str()
                );
            }
        }
    }

    #[test]
    fn a_text_that_is_not_a_pattern_is_refused_with_the_reason() {
        for (text, error) in [
            ("", PatternError::Empty),
            ("[0-9", PatternError::Class),
            ("[]", PatternError::Class),
            ("[9-0]", PatternError::Class),
            ("[é]", PatternError::Class),
            ("é", PatternError::Class),
            ("a{2", PatternError::Count),
            ("a{3,2}", PatternError::Count),
            ("a{0}", PatternError::Count),
            ("a{9999}", PatternError::Count),
            ("a{99999999999}", PatternError::Count),
            ("a<=b", PatternError::Count),
            ("a{1,2}a", PatternError::Ambiguous),
            ("a{1,2}b{0,1}a", PatternError::Ambiguous),
            ("a+", PatternError::Unescaped { character: '+' }),
            ("^a", PatternError::Unescaped { character: '^' }),
            ("(a)", PatternError::Unescaped { character: '(' }),
        ] {
            assert_eq!(Pattern::new(text).unwrap_err(), error, "{text}");
        }
        assert_eq!(Pattern::new(&"a".repeat(257)), Err(PatternError::TooLong));
    }
}
