//! The section `[dict]`: a gateway in front of DICT.

use std::time::Duration;

use balde_config::{Diagnostics, Located, Section, Span};
use balde_dict::wire::formats::canonical_ispb;
use balde_dict::wire::is_ispb;
use balde_dict::{Category, certificate_ispb};
use balde_policy::Profile;

use super::routes::fingerprint;
use super::upstreams::UpstreamConfig;
use balde_net::tls;

const PARTICIPANTS_MAX: usize = 1_000;

/// A payer with fewer lookups is not reported by default.
const WORST_PAYER_LOOKUPS: u64 = 20;

/// What is kept for reconciliations by default, in percent: 5 of the 20 tokens of `POLICIES_LIST`, for
/// at most 6 reconciliations a minute.
const RECONCILE_RESERVE_PERCENT: u64 = 25;

/// What a gateway in front of DICT needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DictConfig {
    /// The name of the upstream that is DICT.
    pub upstream: String,
    /// The base path of DICT's API, with a slash at its end.
    pub base_path: String,
    /// The participants whose requests pass through, by ISPB.
    pub participants: Vec<String>,
    /// The SHA-256 of the client certificates whose callers may speak for a participant.
    pub certificates: Vec<(String, Vec<[u8; 32]>)>,
    /// The participant that DICT charges for requests that name none: that of the certificate which the
    /// gateway presents to DICT. `None` if that is not known.
    pub charged: Option<String>,
    /// The category of participants until DICT states it.
    pub category: Category,
    /// How DICT refills its buckets.
    pub refill: Refill,
    /// How often bucket states are compared with DICT's; `None` for never.
    pub reconcile: Option<Duration>,
    /// The share of the buckets of `POLICIES_LIST` and `POLICIES_READ` that is kept for these
    /// comparisons, in percent of the capacity.
    pub reconcile_reserve_percent: u64,
    /// The difference to DICT that is logged as a warning, in percent of the capacity.
    pub drift_percent: u64,
    /// The level of buckets that DICT does not list, when the gateway starts without Redis.
    pub user_start: UserStart,
    /// A payer is in the report on scanning payers from so many lookups on, refused ones included.
    pub worst_payer_lookups: u64,
}

/// How DICT refills its buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refill {
    /// As the profile says.
    Profile,
    /// Evenly or in steps, at unknown moments. A token counts only when it is certainly there.
    Unknown,
}

/// The level of a bucket that was never used, as a share of its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserStart {
    /// The capacity.
    Full,
    /// Zero.
    Empty,
    /// A share of the capacity, in percent.
    Percent(u64),
}

pub(super) fn read(
    root: &mut Section<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Located<DictConfig>> {
    let mut section = root.table("dict", diagnostics)?;
    let span = section.span()?;
    let upstream = section.require("upstream", diagnostics);
    let upstream = upstream.and_then(|upstream| upstream.string(diagnostics));
    let base_path = section.string("base_path", diagnostics);
    let mut participants = Vec::new();
    let problems = diagnostics.len();
    for text in section.strings("participants", diagnostics) {
        if is_ispb(text.value) && participants.len() < PARTICIPANTS_MAX {
            participants.push(canonical_ispb(text.value).into_owned());
        } else {
            let message = "a participant must be an ISPB: 8 digits and capital letters";
            diagnostics.at(text.span, message);
            diagnostics.failed("participant", None);
        }
    }
    if participants.is_empty() && diagnostics.len() == problems {
        let message = "`participants` must list at least one ISPB";
        diagnostics.at(span, message);
    }
    let certificates = certificates(&mut section, &participants, diagnostics);
    let charged = section.string("check_keys_as", diagnostics);
    let charged = charged.and_then(|text| {
        let is_known = participants.iter().any(|own| own == text.value);
        if !is_known {
            let message = "`check_keys_as` must be one of `participants`";
            diagnostics.unknown("participant", text.value, text.span, message);
        }
        is_known.then(|| text.value.to_owned())
    });
    let category = section.string("category", diagnostics);
    let category = category.and_then(|text| {
        let mut letters = text.value.chars();
        let category = letters.next().and_then(Category::new);
        let category = category.filter(|_| letters.next().is_none());
        if category.is_none() {
            diagnostics.at(text.span, "`category` must be a letter from A to H");
        }
        category
    });
    let words = [("profile", Refill::Profile), ("unknown", Refill::Unknown)];
    let refill = section.choice("refill", &words, diagnostics);
    let mut reconcile = Duration::from_secs(60);
    let range = Duration::ZERO..=Duration::from_secs(86_400);
    section.set_duration("reconcile_every", range, &mut reconcile, diagnostics);
    let reserve = section.percent("reconcile_reserve", 0..=90, diagnostics);
    let drift = section.percent("drift_max", 0..=100, diagnostics);
    section.renamed(&[
        ("reconcile_seconds", "reconcile_every"),
        ("drift_percent", "drift_max"),
    ]);
    let user_start = user_start(&mut section, diagnostics);
    let lookups = section.integer("worst_payer_lookups", 1..=1_000_000, diagnostics);
    refuse_old_keys(&mut section, diagnostics);
    section.finish(diagnostics);
    let base_path = base_path.map_or("/api/v2/", |path| path.value);
    if !base_path.starts_with('/') || !base_path.ends_with('/') {
        let message = "`base_path` must begin and end with `/`";
        diagnostics.at(span, message);
    }
    Some(Located {
        value: DictConfig {
            upstream: upstream.map_or_else(String::new, |upstream| upstream.value.to_owned()),
            base_path: base_path.to_owned(),
            participants,
            certificates,
            charged,
            category: category.unwrap_or(Category::H),
            refill: refill.map_or(Refill::Unknown, |refill| refill.value),
            reconcile: (!reconcile.is_zero()).then_some(reconcile),
            reconcile_reserve_percent: reserve
                .map_or(RECONCILE_RESERVE_PERCENT, |reserve| reserve.value),
            drift_percent: drift.map_or(5, |drift| drift.value),
            user_start,
            worst_payer_lookups: lookups.map_or(WORST_PAYER_LOOKUPS, |lookups| lookups.value),
        },
        span,
    })
}

/// Keys that are no longer needed, since what each gateway holds is in the buckets.
fn refuse_old_keys(section: &mut Section<'_>, diagnostics: &mut Diagnostics) {
    for key in ["latency_ms", "gateways"] {
        if let Some(number) = section.integer(key, 0..=u64::MAX >> 1, diagnostics) {
            let message = format!(
                "`{key}` is not needed any more: what the calls in flight of each gateway may cost is \
                 held in the bucket; remove the line"
            );
            diagnostics.at(number.span, message);
        }
    }
}

fn user_start(section: &mut Section<'_>, diagnostics: &mut Diagnostics) -> UserStart {
    let Some(text) = section.string("user_start", diagnostics) else {
        return UserStart::Full;
    };
    let percent = text
        .value
        .strip_suffix('%')
        .and_then(|text| text.parse().ok());
    match (text.value, percent) {
        ("full", _) | (_, Some(100)) => UserStart::Full,
        ("empty", _) | (_, Some(0)) => UserStart::Empty,
        (_, Some(percent @ 1..=99)) => UserStart::Percent(percent),
        _ => {
            let message = "`user_start` must be \"full\", \"empty\" or a share such as \"25%\"";
            diagnostics.at(text.span, message);
            UserStart::Full
        }
    }
}

/// `[dict.certificates]`: a participant and the SHA-256 of certificates.
fn certificates(
    section: &mut Section<'_>,
    participants: &[String],
    diagnostics: &mut Diagnostics,
) -> Vec<(String, Vec<[u8; 32]>)> {
    let Some(section) = section.table("certificates", diagnostics) else {
        return Vec::new();
    };
    let mut certificates = Vec::new();
    for entry in section.entries() {
        if !participants.iter().any(|own| own == entry.key()) {
            let message = "certificates must belong to one of `participants`";
            diagnostics.unknown("participant", entry.key(), entry.key_span(), message);
        }
        let digests = entry.strings(diagnostics);
        let digests = digests
            .into_iter()
            .filter_map(|text| fingerprint(text, diagnostics));
        certificates.push((entry.key().to_owned(), digests.collect()));
    }
    certificates
}

/// Finds out whom DICT charges for requests that name no participant.
pub(super) fn set_charged(
    dict: &mut Located<DictConfig>,
    upstreams: &[UpstreamConfig],
    diagnostics: &mut Diagnostics,
) {
    let upstream = upstreams.iter().find(|own| own.name == dict.value.upstream);
    let identity = upstream.and_then(|upstream| upstream.identity.as_ref());
    let in_certificate = identity.and_then(|(chain, _)| {
        let certificate = tls::first_certificate(chain)?;
        certificate_ispb(&certificate)
    });
    let dict_config = &mut dict.value;
    match (&dict_config.charged, in_certificate) {
        (Some(charged), Some(ispb)) if *charged != ispb => {
            let message = format!(
                "`check_keys_as` is {charged}, but the upstream's certificate names {ispb}, which \
                 DICT will charge"
            );
            diagnostics.at(dict.span, message);
        }
        (None, Some(ispb)) => dict_config.charged = Some(ispb),
        (None, None) => {
            if let [only] = dict_config.participants.as_slice() {
                dict_config.charged = Some(only.clone());
            }
        }
        (Some(_), _) => {}
    }
}

/// Checks what depends on other sections.
pub(super) fn check(
    dict: Option<&Located<DictConfig>>,
    upstreams: &[UpstreamConfig],
    profile: Option<&Profile>,
    diagnostics: &mut Diagnostics,
) {
    let Some(Located { value: dict, span }) = dict else {
        return;
    };
    let span: Span = *span;
    if !dict.upstream.is_empty() && !upstreams.iter().any(|known| known.name == dict.upstream) {
        let message = format!("there is no upstream `{}`", dict.upstream.escape_debug());
        diagnostics.unknown("upstream", &dict.upstream, span, message);
    }
    let Some(profile) = profile else {
        return;
    };
    if profile.api() != Some("dict") {
        let message = format!(
            "[dict] needs a profile with api = \"dict\", and {} is none",
            profile.name()
        );
        diagnostics.at(span, message);
        return;
    }
    let variant = profile.variant("category");
    let is_known = |category: &str| {
        variant.is_none_or(|variant| variant.values().any(|value| value == category))
    };
    if !is_known(dict.category.as_str()) && dict.category != Category::H {
        let message = format!(
            "profile {} has no category {}",
            profile.name(),
            dict.category
        );
        diagnostics.at(span, message);
    }
}
