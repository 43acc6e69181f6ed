//! The sections `[access]` and `[[token]]`.

use balde_config::{Diagnostics, Located, Resolver, Section};

use crate::access::{Access, Right, Rights};

const TOKENS_MAX: usize = 1_000;

/// The shortest secret, in bytes. Shorter ones can be guessed.
const SECRET_BYTES_MIN: usize = 16;

const RIGHTS: [(&str, Right); 3] = [
    ("check", Right::Check),
    ("settle", Right::Settle),
    ("admin", Right::Admin),
];

/// Reads who may do what. Without tokens, everyone may check and settle, and nobody may administer.
pub(super) fn read(
    root: &mut Section<'_>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Access {
    let sections = root.tables("token", diagnostics);
    let mut anonymous = if sections.is_empty() {
        Rights::NONE.with(Right::Check).with(Right::Settle)
    } else {
        Rights::NONE
    };
    if let Some(mut section) = root.table("access", diagnostics) {
        if section.contains("anonymous") {
            let words = section.strings("anonymous", diagnostics);
            anonymous = rights(&words, diagnostics);
        }
        section.finish(diagnostics);
    }
    let mut access = Access::new(anonymous);
    if sections.len() > TOKENS_MAX {
        diagnostics.at(None, format!("there are more than {TOKENS_MAX} tokens"));
        return access;
    }
    for section in sections {
        token(section, &mut access, resolver, diagnostics);
    }
    access
}

fn token(
    mut section: Section<'_>,
    access: &mut Access,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) {
    let span = section.span();
    let name = section.require("name", diagnostics);
    let name = name.and_then(|name| name.string(diagnostics));
    let words = section.require("rights", diagnostics);
    let words = words.map(|words| words.strings(diagnostics));
    section.renamed(&[("secret_env", "token_env")]);
    let secret = resolver.secret(&mut section, "token_env", diagnostics);
    if !section.contains("token_env") {
        let message = "missing key `token_env` in [[token]]: the variable that holds the secret";
        diagnostics.at(span, message);
    }
    section.finish(diagnostics);
    let rights = rights(&words.unwrap_or_default(), diagnostics);
    let (Some(name), Some(secret)) = (name, secret) else {
        return;
    };
    // Where secrets are assumed, there is nothing to measure.
    if resolver.environment().is_assumed() {
        return;
    }
    if secret.len() < SECRET_BYTES_MIN {
        let message = format!(
            "the secret of this token has fewer than {SECRET_BYTES_MIN} bytes, so it can be guessed; \
             generate one with `openssl rand -hex 32`"
        );
        diagnostics.at(span, message);
    }
    if !access.add(name.value, &secret, rights) {
        diagnostics.at(span, "another token has the same secret");
    }
}

fn rights(words: &[Located<&str>], diagnostics: &mut Diagnostics) -> Rights {
    let mut rights = Rights::NONE;
    for word in words {
        match RIGHTS.iter().find(|(name, _)| *name == word.value) {
            Some((_, right)) => rights = rights.with(*right),
            None => diagnostics.at(
                word.span,
                "a right must be \"check\", \"settle\" or \"admin\"",
            ),
        }
    }
    rights
}
