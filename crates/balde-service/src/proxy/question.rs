//! What a proxy asks about: the method, path and query of the request that it has received.

use http::{HeaderMap, Method, StatusCode, Uri};

/// The proxy that asks, which decides where the original request is described and how it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    Nginx,
    ForwardAuth,
    Envoy,
}

/// The original request, as the proxy describes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Question<'r> {
    pub(super) asker: Asker,
    pub(super) method: &'r str,
    pub(super) path: &'r str,
    pub(super) query: &'r str,
}

/// Why there is no question in a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoQuestion {
    pub(super) status: StatusCode,
    pub(super) detail: &'static str,
}

const ENVOY_PREFIX: &str = "/ext-authz";

impl<'r> Question<'r> {
    pub(super) fn read(
        method: &'r Method,
        uri: &'r Uri,
        headers: &'r HeaderMap,
    ) -> Result<Self, NoQuestion> {
        match uri.path() {
            "/nginx" => Self::described(
                Asker::Nginx,
                headers,
                ("x-original-method", "x-original-uri"),
                "nginx must send X-Original-Method and X-Original-URI, each once\n",
            ),
            "/forward-auth" => Self::described(
                Asker::ForwardAuth,
                headers,
                ("x-forwarded-method", "x-forwarded-uri"),
                "the proxy must send X-Forwarded-Method and X-Forwarded-Uri, each once\n",
            ),
            path => {
                let rest = path.strip_prefix(ENVOY_PREFIX);
                let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
                let rest = rest.ok_or(NoQuestion {
                    status: StatusCode::NOT_FOUND,
                    detail: "proxies ask at /nginx, /forward-auth or /ext-authz\n",
                })?;
                Ok(Self {
                    asker: Asker::Envoy,
                    method: method.as_str(),
                    path: if rest.is_empty() { "/" } else { rest },
                    query: uri.query().unwrap_or_default(),
                })
            }
        }
    }

    fn described(
        asker: Asker,
        headers: &'r HeaderMap,
        (method, uri): (&str, &str),
        detail: &'static str,
    ) -> Result<Self, NoQuestion> {
        // Of two values, one may be the client's.
        let single = |name: &str| {
            let mut values = headers.get_all(name).iter();
            let value = values.next().filter(|_| values.next().is_none());
            value.and_then(|value| value.to_str().ok())
        };
        let described = single(method).zip(single(uri));
        let described =
            described.filter(|(method, uri)| !method.is_empty() && uri.starts_with('/'));
        let (method, uri) = described.ok_or(NoQuestion {
            status: StatusCode::BAD_REQUEST,
            detail,
        })?;
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        Ok(Self {
            asker,
            method,
            path,
            query,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(uri: &str, fields: &[(&'static str, &'static str)]) -> Result<String, u16> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        let uri: Uri = uri.parse().unwrap();
        let question = Question::read(&Method::PUT, &uri, &headers);
        question
            .map(|found| format!("{} {} {}", found.method, found.path, found.query))
            .map_err(|wrong| wrong.status.as_u16())
    }

    #[test]
    fn every_proxy_is_understood() {
        let nginx = [
            ("x-original-method", "POST"),
            ("x-original-uri", "/a/b?c=d"),
        ];
        assert_eq!(read("/nginx", &nginx), Ok("POST /a/b c=d".to_owned()));
        let forwarded = [("x-forwarded-method", "GET"), ("x-forwarded-uri", "/")];
        assert_eq!(read("/forward-auth", &forwarded), Ok("GET / ".to_owned()));
        assert_eq!(read("/ext-authz/a?b", &[]), Ok("PUT /a b".to_owned()));
        assert_eq!(read("/ext-authz", &[]), Ok("PUT / ".to_owned()));
    }

    #[test]
    fn what_is_missing_or_said_twice_is_no_question() {
        assert_eq!(read("/", &[]), Err(404));
        assert_eq!(read("/ext-authzed", &[]), Err(404));
        assert_eq!(read("/nginx", &[("x-original-method", "GET")]), Err(400));
        let twice = [
            ("x-original-method", "GET"),
            ("x-original-uri", "/a"),
            ("x-original-uri", "/b"),
        ];
        assert_eq!(read("/nginx", &twice), Err(400));
        let no_path = [
            ("x-forwarded-method", "GET"),
            ("x-forwarded-uri", "http://a/b"),
        ];
        assert_eq!(read("/forward-auth", &no_path), Err(400));
    }
}
