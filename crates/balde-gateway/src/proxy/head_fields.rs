//! Which of the header fields that the gateway looks at a request has.

use http::header::{HeaderMap, HeaderName};

use super::{headers, proxy_fields, target};

/// Which kinds of header fields a request has. Most requests have few of those that the gateway looks at,
/// and one pass over the names costs less than a look-up of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeadFields(u8);

impl HeadFields {
    pub(super) const CONTENT_LENGTH: Self = Self(1);
    pub(super) const TRANSFER_ENCODING: Self = Self(1 << 1);
    pub(super) const CONNECTION: Self = Self(1 << 2);
    /// Any field that concerns one connection only.
    pub(super) const HOP_BY_HOP: Self = Self(1 << 3);
    pub(super) const EXPECT: Self = Self(1 << 4);
    /// A field that overrides the method.
    pub(super) const METHOD_OVERRIDE: Self = Self(1 << 5);
    /// A field that only proxies write by convention, or one with an underscore.
    pub(super) const PROXY: Self = Self(1 << 6);
    pub(super) const TRACEPARENT: Self = Self(1 << 7);

    pub(super) fn of(headers: &HeaderMap) -> Self {
        let kinds = headers.keys().map(|name| Self::of_name(name).0);
        Self(kinds.fold(0, |all, kind| all | kind))
    }

    pub(super) const fn has(self, kind: Self) -> bool {
        self.0 & kind.0 != 0
    }

    fn of_name(name: &HeaderName) -> Self {
        let text = name.as_str();
        let mut kinds = match text {
            "content-length" => Self::CONTENT_LENGTH.0,
            "transfer-encoding" => Self::TRANSFER_ENCODING.0 | Self::HOP_BY_HOP.0,
            "connection" => Self::CONNECTION.0 | Self::HOP_BY_HOP.0,
            "expect" => Self::EXPECT.0,
            "traceparent" => Self::TRACEPARENT.0,
            _ if headers::is_hop_by_hop(name) => Self::HOP_BY_HOP.0,
            _ if target::is_override(name) => Self::METHOD_OVERRIDE.0,
            _ => 0,
        };
        if proxy_fields::is_well_known(text) || text.contains('_') {
            kinds |= Self::PROXY.0;
        }
        Self(kinds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_seen() {
        for (name, kind) in [
            ("content-length", HeadFields::CONTENT_LENGTH),
            ("transfer-encoding", HeadFields::TRANSFER_ENCODING),
            ("transfer-encoding", HeadFields::HOP_BY_HOP),
            ("connection", HeadFields::CONNECTION),
            ("connection", HeadFields::HOP_BY_HOP),
            ("te", HeadFields::HOP_BY_HOP),
            ("upgrade", HeadFields::HOP_BY_HOP),
            ("keep-alive", HeadFields::HOP_BY_HOP),
            ("proxy-authorization", HeadFields::HOP_BY_HOP),
            ("http2-settings", HeadFields::HOP_BY_HOP),
            ("expect", HeadFields::EXPECT),
            ("x-http-method-override", HeadFields::METHOD_OVERRIDE),
            ("x-forwarded-for", HeadFields::PROXY),
            ("forwarded", HeadFields::PROXY),
            ("x_user", HeadFields::PROXY),
            ("content_length", HeadFields::PROXY),
            ("traceparent", HeadFields::TRACEPARENT),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert("accept", "*/*".parse().unwrap());
            fields.insert(HeaderName::from_static(name), "1".parse().unwrap());
            assert!(HeadFields::of(&fields).has(kind), "{name}");
            fields.remove(name);
            assert!(!HeadFields::of(&fields).has(kind), "{name}");
        }
    }
}
