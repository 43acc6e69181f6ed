//! Reading documents: what values become, and how every problem is reported.

use std::ffi::OsString;

use balde_config::{
    ConfigError, DIAGNOSTICS_MAX, Diagnostics, Document, Environment, FILE_BYTES_MAX, Section,
    Source,
};
use proptest::prelude::*;

fn read<T>(
    text: &str,
    read: impl FnOnce(Section<'_>, &mut Diagnostics) -> T,
) -> Result<T, ConfigError> {
    let source = Source::new("test.toml", text);
    Document::read(&source, Diagnostics::new(&source), read)
}

/// Each problem on one line.
fn problems(text: &str, read_root: impl FnOnce(Section<'_>, &mut Diagnostics)) -> Vec<String> {
    let error = read(text, read_root).unwrap_err();
    let lines = error.diagnostics().iter().map(ToString::to_string);
    lines.collect()
}

#[test]
fn values_are_read_with_their_spans() {
    let text = "text = \"é\"\nnumber = 0x10\nfloat = 0.5\nis_on = true\nlist = [\"a\", \"b\"]\n\
                limit = \"10/s burst 20\"\nmode = \"slow\"\n[table.inner]\nx = 1\n[[item]]\n[[item]]\n";
    read(text, |mut root, diagnostics| {
        let string = root.string("text", diagnostics).unwrap();
        assert_eq!(string.value, "é");
        assert_eq!(&text[string.span.start()..string.span.end()], "\"é\"");
        let number = root.integer("number", 0..=16, diagnostics).unwrap();
        assert_eq!(number.value, 16);
        let float = root.get("float").unwrap().decimal(diagnostics).unwrap();
        assert_eq!(float.value, "0.5");
        assert!(root.boolean("is_on", diagnostics).unwrap().value);
        let list = root.strings("list", diagnostics);
        assert_eq!(
            list.iter().map(|item| item.value).collect::<Vec<_>>(),
            ["a", "b"]
        );
        let limit = root.limit("limit", diagnostics).unwrap();
        assert_eq!(limit.value.capacity(), 20);
        let words = [("fast", 1), ("slow", 2)];
        assert_eq!(root.choice("mode", &words, diagnostics).unwrap().value, 2);
        let mut table = root.table("table", diagnostics).unwrap();
        let inner = table.table("inner", diagnostics).unwrap();
        assert_eq!(inner.title(), "[table.inner]");
        assert_eq!(inner.entries()[0].key(), "x");
        let items = root.tables("item", diagnostics);
        assert_eq!(items.len(), 2);
        assert_eq!(items[0].title(), "[[item]]");
        assert!(root.get("absent").is_none());
        root.finish(diagnostics);
    })
    .unwrap();
}

#[test]
fn every_problem_is_reported_in_the_order_of_the_file() {
    let text = "a = 1\nb = \"x\"\nc = [1, \"y\"]\nd = -1\ne = \"10/fortnight\"\nf = \"maybe\"\n\
                g = 1\n[h]\nlimmit = 1\nother = 2\n[[i]]\n";
    let found = problems(text, |mut root, diagnostics| {
        let mut item = root.tables("i", diagnostics).remove(0);
        item.require("name", diagnostics);
        item.finish(diagnostics);
        let mut table = root.table("h", diagnostics).unwrap();
        table.get("limit");
        table.finish(diagnostics);
        root.table("g", diagnostics);
        root.choice("f", &[("yes", 1), ("no", 2), ("both", 3)], diagnostics);
        root.limit("e", diagnostics);
        root.integer("d", 0..=9, diagnostics);
        root.strings("c", diagnostics);
        root.integer("b", 0..=9, diagnostics);
        root.string("a", diagnostics);
        root.string("a", diagnostics);
        root.require("z", diagnostics);
        diagnostics.in_variable("HOME", "too far away");
        root.finish(diagnostics);
    });
    assert_eq!(
        found,
        [
            "test.toml: missing key `z`",
            "test.toml:1:5: `a` must be a string, not an integer",
            "test.toml:2:5: `b` must be an integer, not a string",
            "test.toml:3:6: an item of `c` must be a string, not an integer",
            "test.toml:4:5: `d` must be between 0 and 9",
            "test.toml:5:9: unknown unit `fortnight`; use us, ms, s, min, h, day or week",
            "test.toml:6:5: `f` must be \"yes\", \"no\" or \"both\"",
            "test.toml:7:5: `g` must be a table, not an integer",
            "test.toml:9:1: unknown key `limmit` in [h]; did you mean `limit`?",
            "test.toml:10:1: unknown key `other` in [h]; expected one of limit",
            "test.toml:11:1: missing key `name` in [[i]]",
            "environment variable HOME: too far away",
        ]
    );
}

#[test]
fn a_source_that_is_not_toml_has_only_syntax_errors() {
    let found = problems("a = = 1\n[b\nc = 1\n", |_, _| panic!("nothing is read"));
    assert!(
        found.iter().any(|line| line.starts_with("test.toml:1:")),
        "{found:?}"
    );
    assert!(
        found.iter().any(|line| line.starts_with("test.toml:2:")),
        "{found:?}"
    );
}

#[test]
fn secrets_are_masked_in_what_is_shown_and_in_debug() {
    let text = "password = \"hunter2\"\nurl = \"redis://u:hunter2@h\"\n";
    let source = Source::new("test.toml", text);
    let error = Document::read(&source, Diagnostics::new(&source), |root, diagnostics| {
        assert!(!format!("{root:?} {:?}", root.entries()).contains("hunter2"));
        root.finish(diagnostics);
    })
    .unwrap_err();
    let shown = format!("{error} {error:?} {source:?}");
    assert_eq!(error.diagnostics().len(), 2);
    assert!(
        shown.contains("password = *") && !shown.contains("hunter2"),
        "{shown}"
    );
}

#[test]
fn a_position_has_file_line_column_and_bytes() {
    let error = read("# é\n é = 1\n", |root, diagnostics| {
        root.finish(diagnostics);
    })
    .unwrap_err();
    // A bare key is ASCII, so this is a syntax error at the letter.
    let position = error.diagnostics()[0].position();
    assert_eq!(position.file(), Some("test.toml"));
    assert_eq!((position.line(), position.column()), (Some(2), Some(2)));
    assert_eq!(position.span().unwrap().start(), 6);
    assert_eq!(position.variable(), None);
    assert_eq!(position.to_string(), "test.toml:2:2");
}

#[test]
fn of_many_problems_the_first_are_shown_and_the_rest_counted() {
    let text = (0..20_000)
        .map(|n| format!("key{n:05} = 1"))
        .collect::<Vec<_>>()
        .join("\n");
    let error = read(&text, |root, diagnostics| {
        root.finish(diagnostics);
    })
    .unwrap_err();
    assert_eq!(error.diagnostics().len(), DIAGNOSTICS_MAX);
    assert_eq!(error.diagnostics().len() + error.omitted(), 20_000);
    let last = format!("error: {} more problems are not shown", error.omitted());
    assert!(error.to_string().ends_with(&last));
    assert_eq!(error.diagnostics()[99].position().line(), Some(100));
}

#[test]
fn a_file_is_bounded_utf8_and_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    let reported = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Source::read(&path).map(|source| source.text().len())
    };
    assert_eq!(reported(b"a = 1\n").unwrap(), 6);
    assert_eq!(
        reported(&vec![b'#'; FILE_BYTES_MAX]).unwrap(),
        FILE_BYTES_MAX
    );
    let error = reported(&vec![b'#'; FILE_BYTES_MAX + 1]).unwrap_err();
    assert!(
        error.to_string().ends_with("has more than 1048576 bytes"),
        "{error}"
    );
    for (bytes, at) in [(b"\xff".as_slice(), "1:1"), (b"a = 1\n# \xff\n", "2:3")] {
        let error = reported(bytes).unwrap_err();
        let line = error.diagnostics()[0].to_string();
        assert!(
            line.ends_with(&format!("a.toml:{at}: the file is not UTF-8 from here on")),
            "{line}"
        );
        assert!(error.to_string().contains(at), "{error}");
    }
    let missing = Source::read(folder.path().join("b.toml")).unwrap_err();
    assert!(
        missing
            .to_string()
            .contains("b.toml: cannot read the file: "),
        "{missing}"
    );
    let long = Source::new("long.toml", "#".repeat(FILE_BYTES_MAX + 1));
    assert!(Document::read(&long, Diagnostics::new(&long), |_, _| ()).is_err());
}

#[test]
fn variables_are_bounded_unicode_and_unset_when_empty() {
    let lookup = |name: &str| match name {
        "SET" => Some(OsString::from("value")),
        "BLANK" => Some(OsString::from(" ")),
        "LONG" => Some(OsString::from("x".repeat(5_000))),
        _ => None,
    };
    let environment = Environment::new(&lookup);
    let text = "a = \"SET\"\nb = \"BLANK\"\nc = \"LONG\"\n";
    let found = problems(text, |mut root, diagnostics| {
        let mut named = |key| {
            let name = root.string(key, diagnostics).unwrap();
            environment.read_named(&name, diagnostics)
        };
        assert_eq!(named("a").as_deref(), Some("value"));
        assert_eq!((named("b"), named("c")), (None, None));
        assert_eq!(environment.read("LONG", diagnostics), None);
        assert_eq!(environment.read("BLANK", diagnostics), None);
    });
    assert_eq!(
        found,
        [
            "test.toml:2:5: the environment variable that is named here is not set, or empty; write the \
             name of a variable, not its value, and set the variable",
            "test.toml:3:5: the environment variable that is named here: the value has more than 4096 bytes",
            "environment variable LONG: the value has more than 4096 bytes",
        ]
    );
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_with_positions_inside_it(text in "[\\PC\n]{0,120}") {
        let shown = read(&text, |root, diagnostics| {
        root.finish(diagnostics);
    });
        if let Err(error) = shown {
            for diagnostic in error.diagnostics() {
                let position = diagnostic.position();
                let line = position.line().unwrap_or(1);
                prop_assert!(line <= text.lines().count() + 1);
                prop_assert!(!diagnostic.render().is_empty());
            }
        }
    }
}
