//! The expressions of Limitador that have an equivalent in a rule.
//!
//! Limitador's expressions are CEL. What configurations use most are comparisons of an entry of a
//! descriptor with a text, joined by `&&`: `descriptors[0]['req.method'] == 'POST'`. Everything else is
//! not imported: a condition that is left out would make a limit stricter or looser than it was.

/// An entry of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    /// The descriptor's position; `None` for the notation of Limitador 1, which has none.
    pub(super) index: Option<usize>,
    pub(super) key: String,
}

/// A comparison of an entry with a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) operand: Operand,
    pub(super) test: Test,
    pub(super) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Is,
    IsNot,
    StartsWith,
}

/// Parses comparisons joined by `&&`; `None` if the expression is anything else.
pub(super) fn comparisons(source: &str) -> Option<Vec<Comparison>> {
    let mut cursor = Cursor(source.trim());
    let mut all = Vec::new();
    loop {
        all.push(cursor.comparison()?);
        if cursor.is_at_end() {
            return Some(all);
        }
        cursor.take("&&")?;
    }
}

/// Parses an entry of a descriptor; `None` if the expression is anything else.
pub(super) fn operand(source: &str) -> Option<Operand> {
    let mut cursor = Cursor(source.trim());
    let operand = cursor.operand()?;
    cursor.is_at_end().then_some(operand)
}

/// What is left of an expression.
struct Cursor<'s>(&'s str);

impl Cursor<'_> {
    fn is_at_end(&self) -> bool {
        self.0.trim().is_empty()
    }

    fn take(&mut self, token: &str) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(token)?;
        Some(())
    }

    /// `OPERAND == 'text'`, `'text' == OPERAND`, the same with `!=`, or `OPERAND.startsWith('text')`.
    fn comparison(&mut self) -> Option<Comparison> {
        if let Some(text) = self.literal() {
            let test = self.equality()?;
            let operand = self.operand()?;
            return Some(Comparison {
                operand,
                test,
                text,
            });
        }
        let operand = self.operand()?;
        let (test, text) = match self.take(".startsWith(") {
            Some(()) => {
                let text = self.literal()?;
                self.take(")")?;
                (Test::StartsWith, text)
            }
            None => (self.equality()?, self.literal()?),
        };
        Some(Comparison {
            operand,
            test,
            text,
        })
    }

    fn equality(&mut self) -> Option<Test> {
        match self.take("==") {
            Some(()) => Some(Test::Is),
            None => self.take("!=").map(|()| Test::IsNot),
        }
    }

    /// `descriptors[0]['key']`, `descriptors[0].key`, or the bare `key` of Limitador 1.
    fn operand(&mut self) -> Option<Operand> {
        let name = self.identifier()?;
        if name != "descriptors" {
            // What follows a dot or a bracket is a value of another type.
            let is_bare = !self.0.starts_with(['[', '.', '(']);
            return is_bare.then_some(Operand {
                index: None,
                key: name,
            });
        }
        self.take("[")?;
        let digits = self.0.trim_start();
        let end = digits.find(|letter: char| !letter.is_ascii_digit())?;
        let index = digits[..end].parse().ok()?;
        self.0 = &digits[end..];
        self.take("]")?;
        let key = if self.take("[").is_some() {
            let key = self.literal()?;
            self.take("]")?;
            key
        } else {
            self.take(".")?;
            self.identifier()?
        };
        Some(Operand {
            index: Some(index),
            key,
        })
    }

    fn identifier(&mut self) -> Option<String> {
        let rest = self.0.trim_start();
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let name = &rest[..end];
        let is_name = !name.is_empty() && !name.starts_with(|letter: char| letter.is_ascii_digit());
        if !is_name || matches!(name, "true" | "false" | "null") {
            return None;
        }
        self.0 = &rest[end..];
        Some(name.to_owned())
    }

    /// A text in single or double quotes, with the escapes `\\`, `\'` and `\"`.
    fn literal(&mut self) -> Option<String> {
        let rest = self.0.trim_start();
        let quote = rest
            .chars()
            .next()
            .filter(|first| matches!(first, '\'' | '"'))?;
        let mut text = String::new();
        let mut letters = rest.char_indices().skip(1);
        while let Some((place, letter)) = letters.next() {
            match letter {
                '\\' => match letters.next()?.1 {
                    escaped @ ('\\' | '\'' | '"') => text.push(escaped),
                    _ => return None,
                },
                letter if letter == quote => {
                    self.0 = &rest[place + 1..];
                    return Some(text);
                }
                letter => text.push(letter),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &str) -> Option<String> {
        let all = comparisons(source)?.into_iter().map(|comparison| {
            let Operand { index, key } = comparison.operand;
            let index = index.map_or(String::new(), |index| index.to_string());
            format!("{index}:{key} {:?} {}", comparison.test, comparison.text)
        });
        Some(all.collect::<Vec<_>>().join(" & "))
    }

    #[test]
    fn comparisons_of_entries_are_read_and_nothing_else() {
        for (source, expected) in [
            (
                "descriptors[0]['req.method'] == 'POST'",
                "0:req.method Is POST",
            ),
            ("descriptors[1].path != \"/\"", "1:path IsNot /"),
            ("'a' == descriptors[0].b", "0:b Is a"),
            ("req_method=='GET'", ":req_method Is GET"),
            ("descriptors[0]['p'].startsWith('/a')", "0:p StartsWith /a"),
            (
                "descriptors[0].a == 'x&&y' && descriptors[0][\"b\"] != 'it\\'s'",
                "0:a Is x&&y & 0:b IsNot it's",
            ),
        ] {
            assert_eq!(read(source).as_deref(), Some(expected), "{source}");
        }
        for source in [
            "",
            "true",
            "descriptors[0].a",
            "descriptors[0].a == 'x' || descriptors[0].b == 'y'",
            "!(descriptors[0].a == 'x')",
            "descriptors[0].a == 1",
            "descriptors[0].a.size() == 'x'",
            "descriptors[0].a.matches('x')",
            "limit.name == 'x'",
            "descriptors[0].a == 'x",
            "descriptors.exists(d, d.a == 'x')",
        ] {
            assert_eq!(read(source), None, "{source}");
        }
        assert!(operand("descriptors[0].user").is_some());
        assert_eq!(operand("descriptors[0].user + 'x'"), None);
    }
}
