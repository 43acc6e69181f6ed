//! The callers in `[http]`: tokens, the authenticating proxy, and the public address.

use axum::http::HeaderName;
use balde_config::{Diagnostics, Section};
use ipnet::IpNet;
use reqwest::Url;

use super::Resolver;
use crate::http::{AuthenticatingProxy, Role};

/// The most tokens, groups and networks.
const TOKENS_MAX: usize = 100;
const LIST_MAX: usize = 1_000;

/// The longest name of a token, in bytes.
const NAME_BYTES_MAX: usize = 100;

/// The shortest token of `[[http.token]]`, in characters. Shorter ones can be guessed.
const TOKEN_CHARS_MIN: usize = 16;

const ROLES: [(&str, Role); 3] = [
    ("read", Role::Read),
    ("acknowledge", Role::Acknowledge),
    ("admin", Role::Admin),
];

/// Who may call.
pub(super) struct Callers {
    pub(super) tokens: Vec<(String, Role, String)>,
    pub(super) sso: Option<AuthenticatingProxy>,
    pub(super) is_read_by_anyone: bool,
    pub(super) public_url: Option<String>,
    pub(super) public_host: Option<String>,
}

impl Default for Callers {
    /// For a file without the section.
    fn default() -> Self {
        Self {
            tokens: Vec::new(),
            sso: None,
            is_read_by_anyone: true,
            public_url: None,
            public_host: None,
        }
    }
}

pub(super) fn read(
    section: &mut Section<'_>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Callers {
    let words = [("anyone", true), ("authenticated", false)];
    let read = section.choice("read", &words, diagnostics);
    let is_read_by_anyone = read.as_ref().is_none_or(|read| read.value);
    let url = section.string("public_url", diagnostics);
    let url = url.and_then(|text| {
        let url = public_url(text.value);
        if url.is_none() {
            let message = "`public_url` must be the http:// or https:// address of the pages, without \
                           `?` and `#`";
            diagnostics.at(text.span, message);
        }
        url
    });
    let (public_url, public_host) = url.unzip();
    let tokens = tokens(section, resolver, diagnostics);
    let sso = section.table("sso", diagnostics);
    let sso = sso.and_then(|section| proxy(section, diagnostics));
    if !is_read_by_anyone && tokens.is_empty() && sso.is_none() && !section.contains("token_env") {
        let message = "with `read = \"authenticated\"` and neither [[http.token]] nor [http.sso], \
                       nobody could read";
        if let Some(read) = read.filter(|_| !section.contains("token_file")) {
            diagnostics.at(read.span, message);
        }
    }
    Callers {
        tokens,
        sso,
        is_read_by_anyone,
        public_url,
        public_host,
    }
}

/// The address without a slash at its end, and its host.
fn public_url(text: &str) -> Option<(String, String)> {
    let url = Url::parse(text).ok()?;
    let is_plain = matches!(url.scheme(), "http" | "https")
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    let host = url.host_str().filter(|_| is_plain)?.to_owned();
    Some((url.as_str().trim_end_matches('/').to_owned(), host))
}

fn tokens(
    section: &mut Section<'_>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<(String, Role, String)> {
    let mut tokens: Vec<(String, Role, String)> = Vec::new();
    section.renamed(&[("tokens", "token")]);
    for mut section in section.tables("token", diagnostics) {
        let name = section.require("name", diagnostics);
        let name = name.and_then(|name| name.string(diagnostics));
        let role = section.require("role", diagnostics);
        let role = role.and_then(|role| role.choice(&ROLES, diagnostics));
        let secret = resolver.secret(&mut section, ("token_env", "token_file"), diagnostics);
        let has_secret = section.contains("token_env") || section.contains("token_file");
        if !has_secret {
            let message = "a token needs `token_env` or `token_file`";
            diagnostics.at(section.span(), message);
        }
        section.finish(diagnostics);
        let (Some(name), Some(role), Some(secret)) = (name, role, secret) else {
            continue;
        };
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.value.trim().len())
            && !name.value.chars().any(char::is_control);
        if !is_name {
            let message = format!("`name` must be 1 to {NAME_BYTES_MAX} bytes of text");
            diagnostics.at(name.span, message);
        }
        if tokens.iter().any(|(known, _, _)| known == name.value) {
            diagnostics.at(name.span, "there is a token of this name already");
        }
        if secret.chars().count() < TOKEN_CHARS_MIN {
            let message = format!(
                "the token has fewer than {TOKEN_CHARS_MIN} characters and could be guessed; \
                 `openssl rand -hex 32` makes one"
            );
            diagnostics.at(name.span, message);
        }
        if tokens.iter().any(|(_, _, known)| *known == secret) {
            diagnostics.at(name.span, "another name has the same token");
        }
        if tokens.len() == TOKENS_MAX {
            diagnostics.at(
                name.span,
                format!("there are more than {TOKENS_MAX} tokens"),
            );
            break;
        }
        tokens.push((name.value.trim().to_owned(), role.value, secret));
    }
    tokens
}

fn proxy(mut section: Section<'_>, diagnostics: &mut Diagnostics) -> Option<AuthenticatingProxy> {
    let networks = networks(&mut section, diagnostics);
    let user_header = header(&mut section, "user_header", "x-forwarded-user", diagnostics);
    let groups_header = header(
        &mut section,
        "groups_header",
        "x-forwarded-groups",
        diagnostics,
    );
    if user_header == groups_header {
        let message = "`user_header` and `groups_header` must be two header fields";
        diagnostics.at(section.span(), message);
    }
    let mut groups = Vec::new();
    for (key, role) in [
        ("read_groups", Role::Read),
        ("acknowledge_groups", Role::Acknowledge),
        ("admin_groups", Role::Admin),
    ] {
        for group in section.strings(key, diagnostics) {
            if group.value.trim().is_empty() || group.value.contains(',') {
                let message = "a group must be a text without commas";
                diagnostics.at(group.span, message);
            } else if groups.len() == LIST_MAX {
                let message = format!("there are more than {LIST_MAX} groups");
                diagnostics.at(group.span, message);
            } else {
                groups.push((group.value.trim().to_owned(), role));
            }
        }
    }
    let words = [
        ("none", None),
        ("read", Some(Role::Read)),
        ("acknowledge", Some(Role::Acknowledge)),
        ("admin", Some(Role::Admin)),
    ];
    let default_role = section.choice("default_role", &words, diagnostics);
    let default_role = default_role.map_or(Some(Role::Read), |role| role.value);
    section.finish(diagnostics);
    Some(AuthenticatingProxy {
        networks,
        user_header: user_header?,
        groups_header: groups_header?,
        groups,
        default_role,
    })
}

/// The networks that the proxy connects from. There is no default: a wrong one would let anybody in.
fn networks(section: &mut Section<'_>, diagnostics: &mut Diagnostics) -> Vec<IpNet> {
    let problems = diagnostics.len();
    let mut networks = Vec::new();
    for text in section.strings("trusted_proxies", diagnostics) {
        let network = match text.value.trim().parse::<std::net::IpAddr>() {
            Ok(address) => Ok(IpNet::from(address.to_canonical())),
            Err(_) => text.value.trim().parse::<IpNet>(),
        };
        match network {
            Ok(network) if network.prefix_len() == 0 => {
                let message = "this trusts all addresses, so any client could choose its user; list \
                               the networks of the proxies";
                diagnostics.at(text.span, message);
            }
            Ok(network) if networks.len() < LIST_MAX => networks.push(network.trunc()),
            Ok(_) => {
                let message = format!("there are more than {LIST_MAX} networks");
                diagnostics.at(text.span, message);
            }
            Err(_) => {
                let message = "this is neither an address nor a network; write 10.1.2.3, 10.0.0.0/8 or \
                               2001:db8::/32";
                diagnostics.at(text.span, message);
            }
        }
    }
    if networks.is_empty() && diagnostics.len() == problems {
        let message = "[http.sso] needs `trusted_proxies`: the networks that the authenticating proxy \
                       connects from";
        diagnostics.at(section.span(), message);
    }
    networks
}

fn header(
    section: &mut Section<'_>,
    key: &'static str,
    default: &'static str,
    diagnostics: &mut Diagnostics,
) -> Option<HeaderName> {
    let Some(text) = section.string(key, diagnostics) else {
        return Some(HeaderName::from_static(default));
    };
    let name = HeaderName::try_from(text.value).ok();
    if name.is_none() {
        diagnostics.at(
            text.span,
            format!("`{key}` must be the name of a header field"),
        );
    }
    name
}
