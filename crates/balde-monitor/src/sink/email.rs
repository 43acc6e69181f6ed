//! E-mail, through a mail server (SMTP).

use std::fmt;
use std::time::Duration;

use lettre::message::header::{self, ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, MessageBuilder};
use lettre::transport::smtp;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor};
use reqwest::Url;
use tokio::time::timeout;

use super::config_error::SinkError;
use super::error::{RESPONSE_CHARS_MAX, SendError, SendErrorKind};
use super::http::{TIMEOUT_DEFAULT, checked_timeout};
use super::secret::Secret;
use super::shorten::{cut, fingerprint};
use super::text::{Wording, current_severity, fields};
use crate::alert::Event;
use crate::alert::OutboxMessage;
use crate::http_client::root_cause;
use crate::severity::Severity;

/// The most recipients of a message.
pub const RECIPIENTS_MAX: usize = 50;

/// The most characters of a subject.
const SUBJECT_MAX: usize = 250;

/// The settings of a mail server.
#[derive(Clone)]
#[must_use = "settings do nothing until a sink is made with them"]
pub struct EmailSettings {
    url: String,
    from: String,
    to: Vec<String>,
    credentials: Option<(String, Secret)>,
    is_plain_allowed: bool,
    ca_pem: Option<Vec<u8>>,
    timeout: Duration,
}

impl EmailSettings {
    /// A mail server and who writes to whom. `smtps://host:465` is TLS from the first byte;
    /// `smtp://host:587` begins in plain text and requires STARTTLS before anything is said.
    pub fn new(url: impl Into<String>, from: impl Into<String>, to: Vec<String>) -> Self {
        Self {
            url: url.into(),
            from: from.into(),
            to,
            credentials: None,
            is_plain_allowed: false,
            ca_pem: None,
            timeout: TIMEOUT_DEFAULT,
        }
    }

    /// Signs in with a name and a password. By default there is no authentication.
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<Secret>) -> Self {
        self.credentials = Some((user.into(), password.into()));
        self
    }

    /// Sends in plain text to a `smtp://` server, such as a relay on the same machine, instead of
    /// requiring STARTTLS. Not possible with credentials.
    pub fn without_tls(mut self) -> Self {
        self.is_plain_allowed = true;
        self
    }

    /// Trusts only these CA certificates (PEM). By default those of the system are trusted.
    pub fn ca_pem(mut self, pem: &[u8]) -> Self {
        self.ca_pem = Some(pem.to_vec());
        self
    }

    /// Sets the timeout of one attempt as a whole, including the connection. By default 10 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl fmt::Debug for EmailSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmailSettings")
            .field("url", &self.url)
            .field("from", &self.from)
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}

/// Writes e-mails.
///
/// ```
/// use balde_monitor::sink::{Email, EmailSettings, Sink};
///
/// let to = vec!["on-call@bank.example".to_owned()];
/// let settings = EmailSettings::new("smtp://mail.bank.example:587", "balde@bank.example", to)
///     .credentials("balde", "hunter2");
/// let sink = Sink::Email(Email::new(settings.clone())?);
/// assert!(!format!("{sink:?}").contains("hunter2"));
/// assert!(Email::new(settings.without_tls()).is_err(), "a password in plain text");
/// # Ok::<(), balde_monitor::sink::SinkError>(())
/// ```
pub struct Email {
    server: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    to: Vec<Mailbox>,
    timeout: Duration,
    host: String,
    password: Option<Secret>,
}

impl Email {
    /// Checks the settings. Each message is sent over a connection of its own.
    pub fn new(settings: EmailSettings) -> Result<Self, SinkError> {
        const ADVICE: &str = "the URL must be smtps://host:465 (TLS) or smtp://host:587 (STARTTLS)";
        let url = Url::parse(&settings.url).map_err(|_| SinkError::Url { advice: ADVICE })?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let is_bare = matches!(url.path(), "" | "/") && url.query().is_none();
        if host.is_empty() || !is_bare || !url.username().is_empty() || url.password().is_some() {
            return Err(SinkError::Url { advice: ADVICE });
        }
        let tls = tls(&url, &host, &settings)?;
        let port = url.port().unwrap_or(match &tls {
            Tls::Wrapper(_) => smtp::SUBMISSIONS_PORT,
            Tls::None => smtp::SMTP_PORT,
            _ => smtp::SUBMISSION_PORT,
        });
        let (from, to) = mailboxes(&settings)?;
        let timeout = checked_timeout(settings.timeout)?;
        let mut server = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&host)
            .port(port)
            .tls(tls)
            .timeout(Some(timeout));
        let mut kept = None;
        if let Some((user, password)) = settings.credentials {
            if user.is_empty() || password.reveal().is_empty() {
                let advice = "`user` and the password of the mail server must not be empty";
                return Err(SinkError::Secret { advice });
            }
            server = server.credentials(Credentials::new(user, password.reveal().to_owned()));
            kept = Some(password);
        }
        Ok(Self {
            server: server.build(),
            from,
            to,
            timeout,
            host,
            password: kept,
        })
    }

    pub(super) async fn deliver(
        &self,
        message: &OutboxMessage,
        wording: &Wording,
    ) -> Result<(), SendError> {
        let mail = self.message(&message.event, wording).map_err(|error| {
            let reason = error.to_string();
            SendError::new(SendErrorKind::Rejected { reason })
        })?;
        let sending = Box::pin(self.server.send(mail));
        match timeout(self.timeout, sending).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.send_error(&error)),
            Err(_) => Err(SendError::new(SendErrorKind::Timeout)),
        }
    }

    /// Makes the message. Its id is made from the event's key, so that mail servers and programs that
    /// discard duplicates discard one that is sent twice. It answers the first message of its episode.
    fn message(&self, event: &Event, wording: &Wording) -> Result<Message, lettre::error::Error> {
        let thread = format!("<{}@balde>", fingerprint(&event.episode));
        let mut builder: MessageBuilder = Message::builder()
            .from(self.from.clone())
            .subject(subject(&wording.title(event)))
            .message_id(Some(format!("<{}@balde>", fingerprint(&event.key))))
            .in_reply_to(thread.clone())
            .references(thread)
            .header(ContentType::TEXT_PLAIN);
        for to in &self.to {
            builder = builder.to(to.clone());
        }
        let mut message = builder.body(email_text(event, wording))?;
        let importance = match current_severity(event) {
            Severity::Normal | Severity::Warning => "normal",
            Severity::Critical | Severity::Exhausted => "high",
        };
        let headers = message.headers_mut();
        let raw = |name: &'static str, value: &str| {
            HeaderValue::new(HeaderName::new_from_ascii_str(name), value.to_owned())
        };
        // Out-of-office replies are not sent to messages with this header (RFC 3834).
        headers.insert_raw(raw("Auto-Submitted", "auto-generated"));
        headers.insert_raw(raw("Importance", importance));
        headers.insert_raw(raw("X-Balde-Key", &event.key));
        headers.remove::<header::UserAgent>();
        Ok(message)
    }

    fn send_error(&self, error: &smtp::Error) -> SendError {
        if error.is_timeout() {
            return SendError::new(SendErrorKind::Timeout);
        }
        let code = error.status().map(|code| format!("{code} "));
        let mut reason = format!("{}{}", code.unwrap_or_default(), root_cause(error));
        if let Some(password) = &self.password {
            reason = reason.replace(password.reveal(), "***");
        }
        let words: Vec<&str> = reason.split_whitespace().collect();
        let reason: String = words.join(" ").chars().take(RESPONSE_CHARS_MAX).collect();
        SendError::new(if error.is_permanent() {
            SendErrorKind::Rejected { reason }
        } else if error.is_transient() {
            SendErrorKind::Deferred { reason }
        } else {
            SendErrorKind::Unreachable { reason }
        })
    }
}

impl fmt::Debug for Email {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Email")
            .field("host", &self.host)
            .field("from", &self.from)
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}

/// Returns the text of a message: the description, the fields, the runbook and the key.
pub fn email_text(event: &Event, wording: &Wording) -> String {
    let fields = fields(event, wording);
    let fields = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\n"));
    let dashboard = wording.dashboard(event);
    let dashboard = dashboard.map(|link| format!("{}: {link}\n", wording.dashboard_word()));
    format!(
        "{}\n\n{}\nRunbook: {}\n{}{}\n",
        wording.description(event),
        fields.collect::<String>(),
        wording.runbook(event),
        dashboard.unwrap_or_default(),
        event.key
    )
}

fn tls(url: &Url, host: &str, settings: &EmailSettings) -> Result<Tls, SinkError> {
    if url.scheme() == "smtp" && settings.is_plain_allowed {
        if settings.credentials.is_some() {
            let advice = "a password is not sent without TLS; remove `starttls = false`, or `user` \
                          and the password";
            return Err(SinkError::Setting { advice });
        }
        return Ok(Tls::None);
    }
    let mut parameters = TlsParameters::builder(host.to_owned());
    if let Some(pem) = &settings.ca_pem {
        let invalid = || SinkError::Tls {
            reason: "the CA certificates are not valid PEM".to_owned(),
        };
        parameters = parameters.certificate_store(CertificateStore::None);
        let certificate = Certificate::from_pem(pem).map_err(|_| invalid())?;
        super::http::certificates(pem)?;
        parameters = parameters.add_root_certificate(certificate);
    }
    let parameters = parameters.build().map_err(|error| SinkError::Tls {
        reason: root_cause(&error),
    })?;
    match url.scheme() {
        "smtps" => Ok(Tls::Wrapper(parameters)),
        "smtp" => Ok(Tls::Required(parameters)),
        _ => Err(SinkError::Url {
            advice: "the URL of a mail server must begin with smtps:// or smtp://",
        }),
    }
}

fn mailboxes(settings: &EmailSettings) -> Result<(Mailbox, Vec<Mailbox>), SinkError> {
    let advice = "`from` and `to` must be addresses such as balde@bank.example or Balde \
                  <balde@bank.example>";
    let mailbox = |text: &String| text.parse().map_err(|_| SinkError::Setting { advice });
    let to: Result<Vec<Mailbox>, SinkError> = settings.to.iter().map(mailbox).collect();
    let to = to?;
    if to.is_empty() || to.len() > RECIPIENTS_MAX {
        let advice = "`to` must have 1 to 50 addresses";
        return Err(SinkError::Setting { advice });
    }
    Ok((mailbox(&settings.from)?, to))
}

/// A line break in a name must not become one of the header.
fn subject(title: &str) -> String {
    let words: Vec<&str> = title
        .split(|c: char| c.is_whitespace() || c.is_control())
        .collect();
    cut(&words.join(" "), SUBJECT_MAX)
}
