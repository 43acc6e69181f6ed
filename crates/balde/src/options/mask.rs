//! Lines are shown where something is wrong with them, but not what is secret in them.

/// The text with every secret painted over: values of keys that speak of passwords, secrets, tokens
/// or salts, and what stands before the `@` of an address. Every byte keeps its place.
pub(super) fn masked(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut open = None;
    for line in text.split_inclusive('\n') {
        if let Some(quotes) = open {
            shown += &stars(line);
            if line.contains(quotes) {
                open = None;
            }
            continue;
        }
        let from = value_of_secret(line).unwrap_or(line.len());
        let (plain, secret) = line.split_at(from);
        shown += &without_credentials(plain);
        shown += &stars(secret);
        let opens = |quotes: &&str| secret.matches(*quotes).count() == 1;
        open = ["\"\"\"", "'''"].into_iter().find(opens);
    }
    shown
}

/// Where the value of the first secret key on the line begins. All that follows is painted over.
fn value_of_secret(line: &str) -> Option<usize> {
    let lower = line.to_ascii_lowercase();
    let words = ["password", "passwd", "secret", "token", "salt"];
    let starts = words.iter().flat_map(|word| lower.match_indices(word));
    let values = starts.filter_map(|(at, word)| {
        let rest = &lower[at + word.len()..];
        let is_name_of_one = rest.starts_with("_env");
        // The strategy is called so, and is no secret.
        let is_strategy = rest.starts_with("_bucket");
        let equals = rest.find('=')?;
        (!is_name_of_one && !is_strategy).then_some(at + word.len() + equals + 1)
    });
    values.min()
}

fn without_credentials(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown += before;
        let end = after
            .find(['"', '\'', ' ', '/', ','])
            .unwrap_or(after.len());
        let credentials = after[..end].rfind('@').unwrap_or(0);
        shown += &stars(&after[..credentials]);
        rest = &after[credentials..];
    }
    shown + rest
}

fn stars(text: &str) -> String {
    let star = |character: char| match character {
        '\n' | '\r' | ' ' | '\t' => character.to_string(),
        _ => "*".repeat(character.len_utf8()),
    };
    text.chars().map(star).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_painted_over_and_everything_keeps_its_place() {
        for (text, expected) in [
            ("addr = \"h:1\"\n", "addr = \"h:1\"\n"),
            ("password = \"pä\"\n", "password = *****\n"),
            ("PassWord='x' # y\nz = 1", "PassWord=*** * *\nz = 1"),
            ("password_env = \"X\"", "password_env = \"X\""),
            ("strategy = \"token_bucket\"", "strategy = \"token_bucket\""),
            ("a = { password = \"x\" }", "a = { password = *** *"),
            (
                "password = \"\"\"\na\nb\"\"\"\nc = 1",
                "password = ***\n*\n****\nc = 1",
            ),
            (
                "addr = \"redis://u:p@h:1/0\"",
                "addr = \"redis://***@h:1/0\"",
            ),
            (
                "a = \"redis://:p@h, redis://h\"",
                "a = \"redis://**@h, redis://h\"",
            ),
        ] {
            let shown = masked(text);
            assert_eq!(shown, expected);
            assert_eq!(shown.len(), text.len());
        }
    }
}
