//! Suggestions for misspelt keys.

/// The longest name that a suggestion is computed for: the cost grows with the length.
const NAME_BYTES_MAX: usize = 64;

/// Returns the known name that was probably meant.
pub fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let distances = known.iter().map(|key| (edit_distance(name, key), *key));
    let (distance, key) = distances.min()?;
    if distance <= 2 && distance < key.len() {
        return Some(key);
    }
    None
}

/// The Levenshtein distance: characters to change, add or remove.
fn edit_distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_or_two_edits_are_suggested() {
        let known = ["costs", "scope", "by"];
        for (name, expected) in [
            ("cost", Some("costs")),
            ("cots", Some("costs")),
            ("csots", Some("costs")),
            ("scoping", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, &known), expected, "{name}");
        }
        assert_eq!(nearest(&"a".repeat(65), &known), None);
    }
}
