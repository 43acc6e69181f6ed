//! The normal form of paths, compared with a second implementation.

use std::borrow::Cow;
use std::fmt::Write as _;

use balde_policy::{DotSegments, PathError, PathRules, Permission};
use proptest::prelude::*;

fn resolving() -> PathRules {
    PathRules::default().dot_segments(DotSegments::Resolve)
}

#[test]
fn a_plain_path_is_borrowed() {
    for path in [
        "/",
        "/search",
        "/a/b/c/",
        "/users/@me/~x_y-z.json",
        "/a+b=c,d:e!$&'()*",
        "/.well-known/x",
        "/...",
        "*",
        "",
        "/a%20b/%C3%A3",
        "/entries/+5511987654321",
    ] {
        let normal = resolving().normalized(path).unwrap();
        assert!(matches!(normal, Cow::Borrowed(_)), "{path}");
        assert_eq!(normal, path);
    }
}

#[test]
fn the_spellings_of_a_path_have_one_normal_form() {
    for (path, normal) in [
        ("/%73earch", "/search"),
        ("/%73%65%61%72%63%68", "/search"),
        ("//search", "/search"),
        ("///search//", "/search/"),
        ("/./search", "/search"),
        ("/search/.", "/search/"),
        ("/search/x/..", "/search/"),
        ("/a/../search", "/search"),
        ("/a/%2e%2e/search", "/search"),
        ("/a/.%2E/search", "/search"),
        ("/a//../search", "/search"),
        ("/a/b/../../search", "/search"),
        ("/%7euser", "/~user"),
        ("/%c3%a3", "/%C3%A3"),
        ("/ã", "/%C3%A3"),
        ("/users/%40me", "/users/@me"),
        ("/entries/%2B55", "/entries/+55"),
        ("/a%20b", "/a%20b"),
        ("/{x}|\"", "/%7Bx%7D%7C%22"),
        ("/..a/b..", "/..a/b.."),
        ("/100%25", "/100%25"),
        ("/100%25x", "/100%25x"),
    ] {
        assert_eq!(resolving().normalized(path).unwrap(), normal, "{path}");
    }
}

#[test]
fn reserved_characters_go_on_as_they_were_received() {
    for (path, forwarded) in [
        ("/entries/%2B55", "/entries/%2B55"),
        ("/entries/%2b55", "/entries/%2B55"),
        ("/entries/+55", "/entries/+55"),
        ("/a%40b", "/a%40b"),
        ("/%61//b", "/a/b"),
    ] {
        assert_eq!(resolving().forwarded(path).unwrap(), forwarded, "{path}");
    }
    let kept = resolving().parameters(Permission::Keep);
    assert_eq!(kept.forwarded("/a;x=1/%3By").unwrap(), "/a;x=1/%3By");
    assert_eq!(kept.normalized("/a;x=1/b%3By").unwrap(), "/a/b");
}

#[test]
fn what_servers_read_in_different_ways_is_refused() {
    use PathError as E;
    for (path, error) in [
        ("/a%2Fb", E::EscapedSlash),
        ("/a%2fb", E::EscapedSlash),
        ("/a%5Cb", E::EscapedSlash),
        ("/a\\b", E::Backslash),
        ("/..\\search", E::Backslash),
        ("/a%00", E::Control),
        ("/a%0d%0ab", E::Control),
        ("/a%7F", E::Control),
        ("/a b", E::Control),
        ("/a\tb", E::Control),
        ("/a%", E::BrokenEncoding),
        ("/a%2", E::BrokenEncoding),
        ("/a%zz", E::BrokenEncoding),
        ("/%u002e%u002e/search", E::BrokenEncoding),
        ("/%+5", E::BrokenEncoding),
        ("/..", E::AboveRoot),
        ("/../search", E::AboveRoot),
        ("/a/../../search", E::AboveRoot),
        ("/%2e%2e/search", E::AboveRoot),
        ("/a/%252e%252e/search", E::DoubleEncoding),
        ("/a/%25%32%65/search", E::DoubleEncoding),
        ("/%2573earch", E::DoubleEncoding),
        ("/%25252e", E::DoubleEncoding),
        ("/%c0%af", E::NotUtf8),
        ("/%c0%ae%c0%ae/search", E::NotUtf8),
        ("/%e0%80%af", E::NotUtf8),
        ("/%C3a%A3", E::NotUtf8),
        ("/%C3/%A3", E::NotUtf8),
        ("/%ff", E::NotUtf8),
        ("/search;x=1", E::Parameter),
        ("/search%3Bx=1", E::Parameter),
        ("/a/..;/search", E::Parameter),
    ] {
        assert_eq!(resolving().normalized(path), Err(error), "{path}");
        assert_eq!(resolving().forwarded(path), Err(error), "{path}");
    }
    let kept = resolving()
        .parameters(Permission::Keep)
        .escaped_slashes(Permission::Keep)
        .double_encoding(Permission::Keep);
    for path in ["/a/..;/search", "/a/.;x/search", "/a/%2e.%3b/search"] {
        assert_eq!(kept.normalized(path), Err(E::DotSegment), "{path}");
    }
    assert_eq!(kept.normalized("/a%2fb%5c").unwrap(), "/a%2Fb%5C");
    assert_eq!(kept.normalized("/%252e").unwrap(), "/%252e");
    assert_eq!(
        PathRules::default().normalized("/a/./b"),
        Err(E::DotSegment)
    );
    assert_eq!(
        PathRules::default().normalized("/a/%2e%2E/b"),
        Err(E::DotSegment)
    );
}

/// A second implementation, over whole decoded segments: `None` for a path that is refused.
fn decoded(path: &str) -> Option<Vec<Vec<u8>>> {
    let mut segments: Vec<Vec<u8>> = Vec::new();
    let mut ends_with_slash = false;
    for text in path.strip_prefix('/')?.split('/') {
        let mut bytes = text.bytes();
        let mut segment = Vec::new();
        while let Some(byte) = bytes.next() {
            if byte == b'%' {
                let digits = [bytes.next()?, bytes.next()?];
                let digits = str::from_utf8(&digits).ok()?;
                if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return None;
                }
                let byte = u8::from_str_radix(digits, 16).ok()?;
                if byte < 0x20 || matches!(byte, 0x7f | b'/' | b'\\' | b';') {
                    return None;
                }
                segment.push(byte);
            } else if byte <= 0x20 || matches!(byte, 0x7f | b'\\' | b';') {
                return None;
            } else {
                segment.push(byte);
            }
        }
        str::from_utf8(&segment).ok()?;
        for window in segment.windows(3) {
            if window[0] == b'%' && window[1..].iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
        }
        ends_with_slash = matches!(segment.as_slice(), b"" | b"." | b"..");
        match segment.as_slice() {
            b"" | b"." => {}
            b".." => drop(segments.pop()?),
            _ => segments.push(segment),
        }
    }
    if ends_with_slash {
        segments.push(Vec::new());
    }
    Some(segments)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn the_normal_form_means_the_same_and_is_the_only_one(
        path in "/(\\.|\\.\\.|%2[eEfF]|%5c|%25|%[0-9a-fA-F]{2}|[a-c/;%+@ãß\\\\{\" -]|//){0,12}",
    ) {
        let rules = resolving();
        let normal = rules.normalized(&path);
        prop_assert_eq!(normal.as_ref().ok().is_some(), decoded(&path).is_some(), "{}", path);
        prop_assert_eq!(
            rules.forwarded(&path).map(drop), normal.as_ref().map(drop).map_err(|error| *error)
        );
        let Ok(normal) = normal else { return Ok(()) };
        // It names the same segments, and the forwarded form does, too.
        prop_assert_eq!(decoded(&normal), decoded(&path), "{} {}", path, normal);
        let forwarded = rules.forwarded(&path).unwrap();
        prop_assert_eq!(decoded(&forwarded), decoded(&path));
        // It is stable, and nothing ambiguous is left in it.
        prop_assert_eq!(rules.normalized(&normal).unwrap(), normal.clone());
        prop_assert_eq!(rules.normalized(&forwarded).unwrap(), normal.clone());
        prop_assert_eq!(rules.forwarded(&forwarded).unwrap(), forwarded.clone());
        for path in [&normal, &forwarded] {
            prop_assert!(path.starts_with('/') && !path.contains("//") && !path.contains('\\'));
            prop_assert!(path.split('/').all(|segment| segment != "." && segment != ".."));
            prop_assert!(path.is_ascii());
        }
        // Without dot segments to resolve, both rules agree.
        if let Ok(strict) = PathRules::default().normalized(&path) {
            prop_assert_eq!(strict, normal);
        }
    }

    #[test]
    fn equal_segments_have_equal_normal_forms(
        segments in prop::collection::vec("[a-cA-C~ã@+\" ]{1,4}", 1..4),
        seed in any::<u64>(),
    ) {
        let mut random = seed;
        let mut spell = || {
            let mut path = String::new();
            for segment in &segments {
                path.push('/');
                for byte in segment.bytes() {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let is_encoded = random >> 63 == 1 || !byte.is_ascii_graphic();
                    match (is_encoded, random >> 62 & 1) {
                        (false, _) => path.push(char::from(byte)),
                        (true, 0) => write!(path, "%{byte:02x}").unwrap(),
                        (true, _) => write!(path, "%{byte:02X}").unwrap(),
                    }
                }
            }
            path
        };
        let (one, other) = (spell(), spell());
        let rules = PathRules::default();
        prop_assert_eq!(rules.normalized(&one), rules.normalized(&other), "{} {}", one, other);
    }
}
