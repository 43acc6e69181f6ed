//! The names of buckets in Redis.
//!
//! `prefix:name:{key}`, or `prefix:name:{tag}:key` for a limiter with a hash tag. A Cluster hashes
//! the text inside the first pair of braces, so the buckets of one key are in one slot for all
//! limiters. The reply of an operation is stored beside its bucket: `prefix:name!{key}!kind id`.
//!
//! Bytes of callers are stored in clear, except for delimiters: these are written as `%` and two
//! hexadecimal digits, so that no two different triples have the same name.

use crate::hex;

/// Slots of a Redis Cluster.
pub(super) const SLOTS: u16 = 16_384;

/// The names of one limiter's buckets.
#[derive(Debug)]
pub(super) struct Names {
    /// `prefix:name`
    stem: Vec<u8>,
    /// `tag`, escaped.
    tag: Option<Vec<u8>>,
}

impl Names {
    pub(super) fn new(prefix: &str, name: &str, tag: Option<&[u8]>) -> Self {
        let mut stem = Vec::new();
        escape(&mut stem, prefix.as_bytes(), b"%{}:!");
        stem.push(b':');
        escape(&mut stem, name.as_bytes(), b"%{}:!");
        let tag = tag.map(|tag| {
            let mut escaped = Vec::new();
            escape(&mut escaped, tag, b"%}");
            escaped
        });
        Self { stem, tag }
    }

    /// The name of the bucket of `key`.
    pub(super) fn bucket(&self, key: &[u8]) -> Vec<u8> {
        self.write(b':', key, 0)
    }

    /// The name of the reply to an operation on the bucket of `key`, in the same slot.
    pub(super) fn operation(&self, key: &[u8], kind: u8, id: &[u8]) -> Vec<u8> {
        let mut name = self.write(b'!', key, 2 + id.len());
        name.extend([b'!', kind]);
        name.extend(id);
        name
    }

    fn write(&self, separator: u8, key: &[u8], more: usize) -> Vec<u8> {
        let tag_len = self.tag.as_ref().map_or(0, Vec::len);
        let mut name = Vec::with_capacity(self.stem.len() + key.len() + tag_len + more + 4);
        name.extend(&self.stem);
        name.extend([separator, b'{']);
        match &self.tag {
            None => {
                escape(&mut name, key, b"%}!");
                name.push(b'}');
            }
            Some(tag) => {
                name.extend(tag);
                name.extend(b"}:");
                escape(&mut name, key, b"%}!");
            }
        }
        name
    }
}

/// What the name of a bucket says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BucketName {
    pub(super) limiter: String,
    pub(super) hash_tag: Option<Vec<u8>>,
    pub(super) key: Vec<u8>,
}

/// The opposite of [`Names::bucket`]; `None` if no bucket under `prefix` has this name.
pub(super) fn parse(prefix: &str, name: &[u8]) -> Option<BucketName> {
    let mut stem = Vec::new();
    escape(&mut stem, prefix.as_bytes(), b"%{}:!");
    stem.push(b':');
    let rest = name.strip_prefix(stem.as_slice())?;
    let open = rest.windows(2).position(|pair| pair == b":{")?;
    let limiter = String::from_utf8(unescape(&rest[..open])?).ok()?;
    let rest = &rest[open + 2..];
    let close = rest.iter().position(|byte| *byte == b'}')?;
    let (first, rest) = (unescape(&rest[..close])?, &rest[close + 1..]);
    let (hash_tag, key) = match rest.strip_prefix(b":") {
        Some(key) => (Some(first), unescape(key)?),
        None if rest.is_empty() => (None, first),
        None => return None,
    };
    Some(BucketName {
        limiter,
        hash_tag,
        key,
    })
}

/// A pattern for SCAN that all buckets under `prefix` match, or all of one limiter. Names of other
/// keys may match, too.
pub(super) fn pattern(prefix: &str, limiter: Option<&str>) -> Vec<u8> {
    let mut stem = Vec::new();
    escape(&mut stem, prefix.as_bytes(), b"%{}:!");
    stem.push(b':');
    if let Some(limiter) = limiter {
        escape(&mut stem, limiter.as_bytes(), b"%{}:!");
        stem.extend(b":{");
    }
    let mut pattern = Vec::with_capacity(stem.len() + 1);
    for byte in stem {
        if b"*?[]\\^-".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern.push(b'*');
    pattern
}

/// The name of the key that a probe writes, in the slot of the bucket `name`. No bucket has this
/// name, because a colon follows their prefix.
pub(super) fn probe(prefix: &str, name: &[u8]) -> Vec<u8> {
    beside(prefix, b"probe", name)
}

/// The name of the reply to a refund over several limiters, in the slot of the bucket `name`.
pub(super) fn refund(prefix: &str, name: &[u8], id: &[u8]) -> Vec<u8> {
    let mut key = beside(prefix, b"back", name);
    key.extend(id);
    key
}

fn beside(prefix: &str, word: &[u8], name: &[u8]) -> Vec<u8> {
    let mut key = Vec::new();
    escape(&mut key, prefix.as_bytes(), b"%{}:!");
    key.push(b'!');
    key.extend(word);
    key.push(b'{');
    key.extend(tag_of(name));
    key.push(b'}');
    key
}

/// The slot of a name, as Redis Cluster counts: CRC-16/XMODEM of what is in the braces.
pub(super) fn slot(name: &[u8]) -> u16 {
    let mut crc: u16 = 0;
    for byte in tag_of(name) {
        crc = (crc << 8) ^ CRC[usize::from((crc >> 8) ^ u16::from(*byte))];
    }
    crc % SLOTS
}

/// What is between the first `{` and the next `}`, if that is something; else all.
fn tag_of(name: &[u8]) -> &[u8] {
    let position = |bytes: &[u8], wanted| bytes.iter().position(|byte| *byte == wanted);
    let tag = position(name, b'{').and_then(|open| {
        let rest = &name[open + 1..];
        position(rest, b'}').map(|close| &rest[..close])
    });
    match tag {
        Some(tag) if !tag.is_empty() => tag,
        _ => name,
    }
}

/// The opposite of [`escape`]; `None` for an escape that is none.
fn unescape(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let (digits, after) = after.split_at_checked(2)?;
            let digits = std::str::from_utf8(digits).ok()?;
            out.push(u8::from_str_radix(digits, 16).ok()?);
            rest = after;
        } else {
            out.push(*first);
            rest = after;
        }
    }
    Some(out)
}

fn escape(out: &mut Vec<u8>, bytes: &[u8], special: &[u8]) {
    for byte in bytes {
        if special.contains(byte) {
            out.push(b'%');
            out.extend(hex::upper(*byte));
        } else {
            out.push(*byte);
        }
    }
}

const CRC: [u16; 256] = {
    let mut table = [0; 256];
    let mut i: u16 = 0;
    while i < 256 {
        let mut crc = i << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
            bit += 1;
        }
        table[i as usize] = crc;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // As CLUSTER KEYSLOT answers.
        for (name, expected) in [
            ("123456789", 12_739),
            ("foo", 12_182),
            ("a{foo}b", 12_182),
            ("{}foo", 9_500),
        ] {
            assert_eq!(slot(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn a_name_reads_as_it_was_meant() {
        let names = Names::new("balde", "per-user", None);
        assert_eq!(names.bucket(b"alice"), b"balde:per-user:{alice}");
        assert_eq!(
            names.operation(b"alice", b'c', b"42"),
            b"balde:per-user!{alice}!c42"
        );
        let tagged = Names::new("balde", "per-user", Some(b"shop"));
        assert_eq!(tagged.bucket(b"alice"), b"balde:per-user:{shop}:alice");
        assert_eq!(
            slot(&probe("balde", &tagged.bucket(b"alice"))),
            slot(b"shop")
        );
    }

    #[test]
    fn nothing_that_a_caller_sends_makes_two_names_one_or_moves_a_slot() {
        let parts: [&str; 12] = [
            "a", "b", ":", "{", "}", "a}", "{a}", "a:b", "%7D", "%", "!", "a}!cx",
        ];
        let mut names = HashSet::new();
        let mut count = 0;
        let tags = [None, Some("a"), Some("}"), Some("{a")];
        for (prefix, name, tag) in parts
            .iter()
            .flat_map(|prefix| parts.iter().map(move |name| (prefix, name)))
            .flat_map(|(prefix, name)| tags.map(|tag| (*prefix, *name, tag)))
        {
            let all = Names::new(prefix, name, tag.map(str::as_bytes));
            for key in parts {
                let bucket = all.bucket(key.as_bytes());
                for (kind, id) in [(b'c', "x"), (b'c', "}"), (b'd', "!cx")] {
                    let operation = all.operation(key.as_bytes(), kind, id.as_bytes());
                    assert_eq!(slot(&operation), slot(&bucket), "{prefix} {name} {key}");
                    count += usize::from(names.insert(operation));
                }
                let other = Names::new("x", "y", tag.map(str::as_bytes)).bucket(key.as_bytes());
                assert_eq!(slot(&other), slot(&bucket), "{prefix} {name} {key}");
                let parsed = parse(prefix, &bucket).expect("the name of a bucket");
                assert_eq!(parsed.limiter, *name);
                assert_eq!(parsed.hash_tag.as_deref(), tag.map(str::as_bytes));
                assert_eq!(parsed.key, key.as_bytes());
                count += usize::from(names.insert(bucket));
                names.insert(probe(prefix, key.as_bytes()));
            }
        }
        assert_eq!(count, parts.len().pow(3) * tags.len() * 4);
    }
}
