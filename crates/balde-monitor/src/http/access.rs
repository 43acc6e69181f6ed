//! Who calls, and what the caller may do.
//!
//! A caller is known by a token, or by the header fields of an authenticating proxy, which count only
//! if the proxy connects from one of its networks. Everybody else is anonymous.

use std::fmt;
use std::net::IpAddr;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;
use serde::Serialize;

/// The longest name of a caller, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 100;

/// What a caller may do. Each role may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Read the pages, the API and the metrics.
    Read,
    /// Acknowledge alerts, silence single buckets for up to a day, and undo both.
    Acknowledge,
    /// Silence anything.
    Admin,
}

impl Role {
    /// The name in files and in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Acknowledge => "acknowledge",
            Self::Admin => "admin",
        }
    }
}

/// Who may do what.
#[derive(Clone)]
pub struct Access {
    anonymous: Option<Role>,
    tokens: Vec<Token>,
    proxy: Option<AuthenticatingProxy>,
}

#[derive(Clone)]
struct Token {
    /// `None` for a token that several people use.
    name: Option<String>,
    role: Role,
    secret: String,
}

/// An authenticating proxy, such as oauth2-proxy, that says who the user is.
#[derive(Clone, Debug)]
pub struct AuthenticatingProxy {
    /// The networks that it connects from. The fields of others are ignored.
    pub networks: Vec<IpNet>,
    /// The field with the name of the user.
    pub user_header: HeaderName,
    /// The field with the user's groups, separated by commas.
    pub groups_header: HeaderName,
    /// The roles of groups; a user has the highest of its groups.
    pub groups: Vec<(String, Role)>,
    /// The role of users in none of these groups; `None` if they may do nothing.
    pub default_role: Option<Role>,
}

/// Somebody who sent a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Caller {
    /// The name under which changes are recorded; `None` if the caller has to say it.
    pub(super) name: Option<String>,
    pub(super) role: Option<Role>,
    /// How the caller is known.
    pub(super) by: KnownBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KnownBy {
    Token,
    Proxy,
    Nothing,
}

impl Access {
    /// Every client that can connect may do everything: for a monitor that listens on a loopback
    /// address only.
    pub fn anyone() -> Self {
        Self::anonymous(Some(Role::Admin))
    }

    /// Every client that can connect may read, and nobody may change anything.
    pub fn read_only() -> Self {
        Self::anonymous(Some(Role::Read))
    }

    /// Clients without a token and without a trusted proxy have this role; `None` if they may not
    /// even read.
    pub fn anonymous(role: Option<Role>) -> Self {
        Self {
            anonymous: role,
            tokens: Vec::new(),
            proxy: None,
        }
    }

    /// Adds a token: `Authorization: Bearer …`. Without a name, several people use it, and a change
    /// names who made it.
    #[must_use]
    pub fn with_token(mut self, name: Option<&str>, role: Role, secret: impl Into<String>) -> Self {
        self.tokens.push(Token {
            name: name.map(str::to_owned),
            role,
            secret: secret.into(),
        });
        self
    }

    /// Believes an authenticating proxy.
    #[must_use]
    pub fn with_proxy(mut self, proxy: AuthenticatingProxy) -> Self {
        self.proxy = Some(proxy);
        self
    }

    /// What a user needs to make changes; the dashboard shows it.
    pub(super) fn needs(&self) -> &'static str {
        let can_write = |role: Role| role >= Role::Acknowledge;
        if self.anonymous.is_some_and(can_write) {
            "anyone"
        } else if self.tokens.iter().any(|token| can_write(token.role)) {
            "token"
        } else if self.proxy.is_some() {
            "proxy"
        } else {
            "denied"
        }
    }

    /// Who sent a request from an address; `None` if the address is not known.
    pub(super) fn caller(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Caller {
        if let Some(token) = self.token(headers) {
            return Caller {
                name: token.name.clone(),
                role: Some(token.role),
                by: KnownBy::Token,
            };
        }
        let proxy = self.proxy.as_ref().zip(peer);
        let user = proxy.and_then(|(proxy, peer)| proxy.user(peer, headers));
        user.unwrap_or(Caller {
            name: None,
            role: self.anonymous,
            by: KnownBy::Nothing,
        })
    }

    fn token(&self, headers: &HeaderMap) -> Option<&Token> {
        let sent = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes)?;
        // The name of a scheme is case-insensitive (RFC 9110, section 11.1).
        let (scheme, sent) = sent.split_at_checked("Bearer ".len())?;
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return None;
        }
        let sent = sent.trim_ascii();
        // All are compared, so that the duration does not tell which one is similar.
        let mut found = None;
        for token in &self.tokens {
            if is_same(sent, token.secret.as_bytes()) {
                found = found.or(Some(token));
            }
        }
        found
    }
}

impl AuthenticatingProxy {
    /// The user that the proxy names; `None` if the peer is not the proxy, or names nobody.
    fn user(&self, peer: IpAddr, headers: &HeaderMap) -> Option<Caller> {
        let peer = peer.to_canonical();
        if !self.networks.iter().any(|network| network.contains(&peer)) {
            return None;
        }
        let name = single(headers, &self.user_header)?.trim();
        let is_name =
            !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
        if !is_name {
            return None;
        }
        let groups = single(headers, &self.groups_header).unwrap_or_default();
        let groups = groups.split(',').map(str::trim);
        let role_of = |group: &str| {
            let mut known = self.groups.iter();
            known.find(|(name, _)| name == group).map(|(_, role)| *role)
        };
        let role = groups.filter_map(role_of).max();
        Some(Caller {
            name: Some(name.to_owned()),
            role: role.max(self.default_role),
            by: KnownBy::Proxy,
        })
    }
}

/// The value of a field that occurs once. If it occurs twice, the client may have sent one of them.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    std::str::from_utf8(value.as_bytes()).ok()
}

/// Compares in constant time: digests of one length, and every byte of them. The duration reveals
/// neither how much of a guess is right nor how long the token is.
pub(super) fn is_same(sent: &[u8], token: &[u8]) -> bool {
    let digest = |bytes: &[u8]| ring::digest::digest(&ring::digest::SHA256, bytes);
    let (sent, token) = (digest(sent), digest(token));
    let bytes = sent.as_ref().iter().zip(token.as_ref());
    let difference = bytes.fold(0, |all, (one, other)| all | (one ^ other));
    std::hint::black_box(difference) == 0
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("anonymous", &self.anonymous)
            .field("tokens", &self.tokens.len())
            .field("proxy", &self.proxy)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_the_whole_token_is_accepted() {
        let access = Access::read_only().with_token(None, Role::Admin, "secret");
        let role = |value: &str| {
            let headers = headers(&[("authorization", value)]);
            access.caller(None, &headers).role
        };
        for right in ["Bearer secret", "bearer secret", "Bearer  secret "] {
            assert_eq!(role(right), Some(Role::Admin), "{right}");
        }
        for wrong in [
            "Bearer ",
            "Bearer",
            "secret",
            "Bearer secre",
            "Bearer secrets",
            "Bearer Secret",
            "Basic secret",
            "Bearer tecret",
        ] {
            assert_eq!(role(wrong), Some(Role::Read), "{wrong}");
        }
        assert_eq!(
            access.caller(None, &HeaderMap::new()).role,
            Some(Role::Read)
        );
    }

    #[test]
    fn a_token_has_a_name_and_a_role() {
        let access = Access::anonymous(None)
            .with_token(Some("grafana"), Role::Read, "one")
            .with_token(Some("ana"), Role::Acknowledge, "two");
        let caller = |token: &str| {
            let value = format!("Bearer {token}");
            access.caller(None, &headers(&[("authorization", &value)]))
        };
        assert_eq!(
            caller("two"),
            Caller {
                name: Some("ana".to_owned()),
                role: Some(Role::Acknowledge),
                by: KnownBy::Token,
            }
        );
        assert_eq!(caller("one").role, Some(Role::Read));
        assert_eq!(caller("three").role, None);
    }

    fn behind_a_proxy() -> Access {
        Access::anonymous(None).with_proxy(AuthenticatingProxy {
            networks: vec!["10.1.0.0/16".parse().unwrap()],
            user_header: HeaderName::from_static("x-forwarded-user"),
            groups_header: HeaderName::from_static("x-forwarded-groups"),
            groups: vec![
                ("oncall".to_owned(), Role::Acknowledge),
                ("sre".to_owned(), Role::Admin),
            ],
            default_role: Some(Role::Read),
        })
    }

    #[test]
    fn a_proxys_user_has_the_highest_role_of_its_groups() {
        let access = behind_a_proxy();
        let peer = Some("10.1.2.3".parse().unwrap());
        for (groups, role) in [
            ("oncall", Role::Acknowledge),
            ("oncall, sre,others", Role::Admin),
            ("others", Role::Read),
            ("", Role::Read),
        ] {
            let headers = headers(&[
                ("x-forwarded-user", "ana@example.com"),
                ("x-forwarded-groups", groups),
            ]);
            let caller = access.caller(peer, &headers);
            assert_eq!(caller.role, Some(role), "{groups}");
            assert_eq!(caller.name.as_deref(), Some("ana@example.com"));
        }
        let mapped = Some("::ffff:10.1.2.3".parse().unwrap());
        let ana = headers(&[("x-forwarded-user", "ana")]);
        assert_eq!(access.caller(mapped, &ana).by, KnownBy::Proxy);
    }

    #[test]
    fn fields_of_others_and_doubtful_fields_are_ignored() {
        let access = behind_a_proxy();
        let peer: Option<IpAddr> = Some("10.1.2.3".parse().unwrap());
        let ana = [("x-forwarded-user", "ana"), ("x-forwarded-groups", "sre")];
        for stranger in ["10.2.0.1", "127.0.0.1", "::1", "2001:db8::1"] {
            let stranger = Some(stranger.parse().unwrap());
            assert_eq!(access.caller(stranger, &headers(&ana)).role, None);
        }
        assert_eq!(access.caller(None, &headers(&ana)).role, None);
        // One of two fields may be the client's.
        let mut twice = ana.to_vec();
        twice.push(("x-forwarded-user", "eva"));
        assert_eq!(access.caller(peer, &headers(&twice)).role, None);
        let mut groups = ana.to_vec();
        groups.push(("x-forwarded-groups", "sre"));
        let caller = access.caller(peer, &headers(&groups));
        assert_eq!(caller.role, Some(Role::Read), "as without groups");
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in ["", " ", long.as_str()] {
            let headers = headers(&[("x-forwarded-user", name)]);
            assert_eq!(access.caller(peer, &headers).role, None, "{name}");
        }
    }
}
