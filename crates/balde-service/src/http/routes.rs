//! Which request runs which command.

use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;

use super::bodies::{
    BlockBody, BucketBody, HoldBody, LevelBody, ListBody, SettleBody, SeveralBody, TierBody,
    TokensBody, WaitBody, parse,
};
use super::reply::{self, Reply};
use super::{HttpServer, OPENAPI};
use crate::access::{Right, Rights};
use crate::decisions::{Caller, Command, CommandError};
use crate::metrics::RequestResult;

/// The requests with a body.
const POSTS: [&str; 14] = [
    "/v1/check",
    "/v1/check-all",
    "/v1/hold",
    "/v1/settle",
    "/v1/charge",
    "/v1/credit",
    "/v1/peek",
    "/v1/wait",
    "/v1/admin/reset",
    "/v1/admin/set-level",
    "/v1/admin/move-to-tier",
    "/v1/admin/block",
    "/v1/admin/unblock",
    "/v1/admin/buckets",
];

const GETS: [&str; 3] = ["/v1/limits", "/openapi.json", "/healthz"];

impl HttpServer {
    pub(super) async fn respond(&self, request: Request<Incoming>) -> Reply {
        let path = request.uri().path();
        let allowed = if POSTS.contains(&path) {
            Method::POST
        } else if GETS.contains(&path) {
            Method::GET
        } else {
            return self.wrong(
                StatusCode::NOT_FOUND,
                "not_found",
                "there is no such resource",
            );
        };
        if *request.method() != allowed {
            let detail = format!("this resource accepts {allowed} only");
            let mut reply = self.wrong(StatusCode::METHOD_NOT_ALLOWED, "method", &detail);
            let allowed = HeaderValue::from_static(if allowed == Method::GET {
                "GET"
            } else {
                "POST"
            });
            reply.headers_mut().insert(ALLOW, allowed);
            return reply;
        }
        match path {
            "/openapi.json" => {
                let body = Bytes::from_static(OPENAPI.as_bytes());
                return reply::with_type(StatusCode::OK, body, "application/json");
            }
            "/healthz" => return reply::json(StatusCode::OK, &serde_json::json!({"status": "ok"})),
            _ => {}
        }
        let rights = match self.rights(request.headers()) {
            Ok(rights) => rights,
            Err(detail) => return self.wrong(StatusCode::UNAUTHORIZED, "unauthorized", detail),
        };
        let (head, body) = request.into_parts();
        if head.method == Method::GET {
            return self.run(Command::State, &head.headers, rights).await;
        }
        match self.body(&head.headers, body).await {
            Ok(body) => {
                self.post(head.uri.path(), &body, &head.headers, rights)
                    .await
            }
            Err((status, detail)) => self.wrong(status, "body", detail),
        }
    }

    async fn post(&self, path: &str, body: &[u8], headers: &HeaderMap, rights: Rights) -> Reply {
        let replied = match path {
            "/v1/check-all" | "/v1/hold" => self.post_several(path, body, headers, rights).await,
            path if path.starts_with("/v1/admin/") => {
                self.post_admin(path, body, headers, rights).await
            }
            _ => self.post_one(path, body, headers, rights).await,
        };
        replied.unwrap_or_else(|error| {
            self.metrics.count(RequestResult::Invalid);
            reply::error(&error)
        })
    }

    async fn post_one(
        &self,
        path: &str,
        body: &[u8],
        headers: &HeaderMap,
        rights: Rights,
    ) -> Result<Reply, CommandError> {
        Ok(match path {
            "/v1/settle" => {
                let body: SettleBody = parse(body)?;
                let (hold, price) = (body.hold.as_str(), body.tokens);
                self.run(Command::Settle { hold, price }, headers, rights)
                    .await
            }
            "/v1/peek" => {
                let body: BucketBody = parse(body)?;
                self.run(Command::Peek(body.bucket()), headers, rights)
                    .await
            }
            "/v1/wait" => {
                let body: WaitBody = parse(body)?;
                let command = Command::Wait {
                    tokens: body.tokens(),
                    within: body.within(),
                };
                self.run(command, headers, rights).await
            }
            _ => {
                let body: TokensBody = parse(body)?;
                let command = match path {
                    "/v1/charge" => Command::Charge(body.tokens()),
                    "/v1/credit" => Command::Credit(body.tokens()),
                    _ => Command::Check(body.tokens()),
                };
                self.run(command, headers, rights).await
            }
        })
    }

    async fn post_several(
        &self,
        path: &str,
        body: &[u8],
        headers: &HeaderMap,
        rights: Rights,
    ) -> Result<Reply, CommandError> {
        if path == "/v1/check-all" {
            let body: SeveralBody = parse(body)?;
            let tokens = body.tokens();
            return Ok(self.run(Command::CheckAll(&tokens), headers, rights).await);
        }
        let body: HoldBody = parse(body)?;
        let tokens = body.tokens();
        let command = Command::Hold {
            tokens: &tokens,
            ttl: body.ttl(),
            if_expired: body.if_expired(),
        };
        Ok(self.run(command, headers, rights).await)
    }

    async fn post_admin(
        &self,
        path: &str,
        body: &[u8],
        headers: &HeaderMap,
        rights: Rights,
    ) -> Result<Reply, CommandError> {
        // Who may not administer is not told what is wrong with the body.
        if !rights.has(Right::Admin) {
            return Err(CommandError::Forbidden(Right::Admin));
        }
        Ok(match path {
            "/v1/admin/set-level" => {
                let body: LevelBody = parse(body)?;
                let (bucket, level) = (body.bucket(), body.level);
                self.run(Command::SetLevel { bucket, level }, headers, rights)
                    .await
            }
            "/v1/admin/move-to-tier" => {
                let body: TierBody = parse(body)?;
                let (bucket, tier) = (body.bucket(), body.tier.as_deref());
                self.run(Command::MoveToTier { bucket, tier }, headers, rights)
                    .await
            }
            "/v1/admin/block" => {
                let body: BlockBody = parse(body)?;
                let (bucket, time) = (body.bucket(), body.time());
                self.run(Command::Block { bucket, time }, headers, rights)
                    .await
            }
            "/v1/admin/buckets" => {
                let body: ListBody = parse(body)?;
                let command = Command::Buckets {
                    limit: &body.limit,
                    order: body.order(),
                    most: body.most,
                };
                self.run(command, headers, rights).await
            }
            path => {
                let body: BucketBody = parse(body)?;
                let command = match path {
                    "/v1/admin/unblock" => Command::Unblock(body.bucket()),
                    _ => Command::Reset(body.bucket()),
                };
                self.run(command, headers, rights).await
            }
        })
    }

    async fn run(&self, command: Command<'_>, headers: &HeaderMap, rights: Rights) -> Reply {
        let key = headers.get("idempotency-key").map(HeaderValue::to_str);
        let idempotency_key = match key {
            None => None,
            Some(Ok(key)) => Some(unquoted(key)),
            Some(Err(_)) => {
                let detail = "the header Idempotency-Key must be printable ASCII";
                return self.wrong(StatusCode::BAD_REQUEST, "invalid", detail);
            }
        };
        let caller = Caller {
            rights,
            idempotency_key,
            deadline: None,
        };
        let answer = self.decisions.run(command, &caller).await;
        self.metrics.count(RequestResult::new(&answer));
        match answer {
            Ok(answer) => reply::answer(&answer),
            Err(error) => reply::error(&error),
        }
    }

    /// The rights of the caller, by its bearer token.
    fn rights(&self, headers: &HeaderMap) -> Result<Rights, &'static str> {
        let access = self.access.read();
        let Some(given) = headers.get(AUTHORIZATION) else {
            return match access.anonymous() {
                Rights::NONE => Err("a bearer token is required"),
                rights => Ok(rights),
            };
        };
        let given = given.to_str().ok().and_then(|value| value.split_once(' '));
        // RFC 9110: the name of the scheme is case-insensitive.
        let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("Bearer"));
        let rights = given.and_then(|(_, secret)| access.rights_of(secret.trim()));
        rights.ok_or("the bearer token is unknown")
    }

    async fn body(
        &self,
        headers: &HeaderMap,
        body: Incoming,
    ) -> Result<Bytes, (StatusCode, &'static str)> {
        const TOO_LONG: (StatusCode, &str) = (
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is longer than body_size_max in the file",
        );
        let is_json = headers.get(CONTENT_TYPE).is_none_or(|content_type| {
            let text = content_type.to_str().unwrap_or_default();
            let essence = text.split(';').next().unwrap_or_default().trim();
            essence.eq_ignore_ascii_case("application/json")
        });
        if !is_json {
            let detail = "the body must be application/json";
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        let length = headers
            .get(CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok());
        let length: Option<usize> = length.and_then(|length| length.parse().ok());
        if length.is_some_and(|length| length > self.body_bytes_max) {
            return Err(TOO_LONG);
        }
        let mut share = self.input.share();
        if !share.resize(length.unwrap_or(self.body_bytes_max)) {
            let detail = "too many bodies are being received; try again in a moment";
            return Err((StatusCode::SERVICE_UNAVAILABLE, detail));
        }
        let reading = Limited::new(body, self.body_bytes_max).collect();
        match tokio::time::timeout(self.idle_timeout, reading).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(TOO_LONG),
            Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the body broke off")),
            Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body took too long")),
        }
    }

    fn wrong(&self, status: StatusCode, code: &str, detail: &str) -> Reply {
        self.metrics.count(RequestResult::Invalid);
        reply::problem(status, code, detail)
    }
}

/// The draft of the header writes its value in quotes; many clients do not.
fn unquoted(key: &str) -> &str {
    let inner = key.strip_prefix('"').and_then(|key| key.strip_suffix('"'));
    inner.unwrap_or(key)
}
