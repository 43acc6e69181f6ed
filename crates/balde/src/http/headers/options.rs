//! Which header fields are written, and how.

/// The format of `X-RateLimit-Reset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetFormat {
    /// Seconds from now.
    #[default]
    Seconds,
    /// Seconds since 1970-01-01 00:00 UTC, for clients that expect a time of day.
    UnixTime,
}

/// Which rate-limit header fields a response carries.
///
/// ```
/// use balde::RateLimiter;
/// use balde::http::HeaderOptions;
/// use http::HeaderMap;
/// use std::time::SystemTime;
///
/// let limiter = RateLimiter::builder().name("per-user").limit("10/s burst 20").build()?;
/// let decision = limiter.blocking().check("alice");
///
/// let mut headers = HeaderMap::new();
/// let decisions = [("per-user", &decision)];
/// HeaderOptions::default().write(&mut headers, &decisions, SystemTime::now());
/// assert_eq!(headers["x-ratelimit-limit"], "20");
/// assert_eq!(headers["x-ratelimit-remaining"], "19");
/// assert_eq!(headers["ratelimit-policy"], r#""per-user";q=20;w=2"#);
/// assert_eq!(headers["ratelimit"], r#""per-user";r=19;t=1"#);
/// # Ok::<(), balde::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderOptions {
    reset: ResetFormat,
    has_x: bool,
    has_ietf: bool,
}

impl Default for HeaderOptions {
    /// All fields, with `X-RateLimit-Reset` in seconds from now.
    fn default() -> Self {
        Self {
            reset: ResetFormat::Seconds,
            has_x: true,
            has_ietf: true,
        }
    }
}

impl HeaderOptions {
    /// Sets the format of `X-RateLimit-Reset`. The default is [`ResetFormat::Seconds`].
    pub const fn reset(mut self, reset: ResetFormat) -> Self {
        self.reset = reset;
        self
    }

    /// Leaves out `X-RateLimit-*`.
    pub const fn without_x_fields(mut self) -> Self {
        self.has_x = false;
        self
    }

    /// Leaves out `RateLimit-Policy` and `RateLimit`.
    pub const fn without_ietf_fields(mut self) -> Self {
        self.has_ietf = false;
        self
    }

    /// Returns true if no field is written except `Retry-After` on refusals.
    pub(crate) const fn is_empty(self) -> bool {
        !self.has_x && !self.has_ietf
    }

    pub(super) const fn has_x(self) -> bool {
        self.has_x
    }

    pub(super) const fn has_ietf(self) -> bool {
        self.has_ietf
    }

    pub(super) const fn reset_format(self) -> ResetFormat {
        self.reset
    }
}
