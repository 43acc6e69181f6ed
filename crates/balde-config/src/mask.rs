//! Masks secrets, so that lines of a file can be shown in messages.

/// Replaces secrets by asterisks: the values of keys whose names contain a word such as `pass` or
/// `token` or end in `_env`, and the credentials before the `@` of a URL. Every other byte stays where
/// it is.
pub(crate) fn masked(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut open = None;
    for line in text.split_inclusive('\n') {
        if let Some(quotes) = open {
            masked += &stars(line);
            if line.contains(quotes) {
                open = None;
            }
            continue;
        }
        let from = value_of_secret(line).unwrap_or(line.len());
        let (plain, secret) = line.split_at(from);
        masked += &without_credentials(plain);
        masked += &stars(secret);
        let opens = |quotes: &&str| secret.matches(*quotes).count() == 1;
        open = ["\"\"\"", "'''"].into_iter().find(opens);
    }
    masked
}

/// Where the value of the first secret key on the line begins. The rest of the line is masked.
fn value_of_secret(line: &str) -> Option<usize> {
    const WORDS: [&str; 6] = ["pass", "pwd", "secret", "token", "salt", "auth"];
    let is_key_char = |c: char| c.is_alphanumeric() || "_-.\"'\\".contains(c);
    let equals = line.match_indices('=').map(|(at, _)| at);
    let mut secret = equals.filter(|at| {
        let before = line[..*at].trim_end();
        let key = before.rsplit(|c| !is_key_char(c)).next().unwrap_or(before);
        let key = key.to_lowercase();
        // Keys such as `url_env` hold the name of a variable, or by mistake the secret itself.
        let key = key.trim_matches(['"', '\'']);
        WORDS.iter().any(|word| key.contains(word)) || key.ends_with("_env")
    });
    secret.next().map(|at| at + 1)
}

fn without_credentials(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        masked += before;
        let end = after
            .find(['"', '\'', ' ', '/', ','])
            .unwrap_or(after.len());
        let credentials = after[..end].rfind('@').unwrap_or(0);
        masked += &stars(&after[..credentials]);
        rest = &after[credentials..];
    }
    masked + rest
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
    fn secrets_are_masked_and_every_other_byte_stays_where_it_is() {
        for (text, expected) in [
            ("addr = \"h:1\"\n", "addr = \"h:1\"\n"),
            ("password = \"pä\"\n", "password = *****\n"),
            ("PassWord='x' # y\nz = 1", "PassWord=*** * *\nz = 1"),
            ("password_env = \"X\"", "password_env = ***"),
            ("url_env = \"https://h/s\"", "url_env = *************"),
            ("\"routing_key_env\" = 'X'", "\"routing_key_env\" = ***"),
            ("redis.pwd= 'x'", "redis.pwd= ***"),
            ("\"Auth\" = 1", "\"Auth\" = *"),
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
