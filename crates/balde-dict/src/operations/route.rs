//! Routing: from a method and a raw path to an operation.

use std::borrow::Cow;

use super::{Operation, RouteError};

/// The longest path that is routed, in bytes. A key has at most 77 characters, which take three
/// times as many bytes when encoded.
pub const PATH_BYTES_MAX: usize = 2_048;

/// An operation, and the raw path below the base path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Route<'r> {
    operation: Operation,
    path: &'r str,
    segment: &'r str,
    slash: Slash,
}

/// How the path differs from the operation's at its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slash {
    AsPublished,
    Missing,
    Added,
}

impl<'r> Route<'r> {
    /// The operation.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The raw path below the base path, as it was received.
    pub fn path(&self) -> &'r str {
        self.path
    }

    /// The path in its published form: with or without a slash at the end, whatever the request
    /// has.
    pub(super) fn canonical_path(&self) -> Cow<'r, str> {
        match self.slash {
            Slash::AsPublished => Cow::Borrowed(self.path),
            Slash::Missing => Cow::Owned(format!("{}/", self.path)),
            Slash::Added => Cow::Borrowed(self.path.strip_suffix('/').unwrap_or(self.path)),
        }
    }

    /// The segment of the path that is a key or an id, as it was received; empty for operations
    /// whose path has none.
    pub fn raw_segment(&self) -> &'r str {
        self.segment
    }
}

impl std::fmt::Debug for Route<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The path may contain a Pix key, which is personal data.
        let name = self.operation.as_str();
        f.debug_tuple("Route").field(&name).finish()
    }
}

pub(super) fn route<'r>(
    method: &str,
    path: &'r str,
    slash_is_optional: bool,
) -> Result<Route<'r>, RouteError> {
    let inner = path.strip_prefix('/').ok_or(RouteError::UnknownPath)?;
    let mut segments = [""; 4];
    let mut count = 0;
    for segment in inner.split('/') {
        *segments.get_mut(count).ok_or(RouteError::UnknownPath)? = segment;
        count += 1;
    }
    let segments = &segments[..count];
    let mut resource = Resource::at(segments);
    let mut slash = Slash::AsPublished;
    if resource.is_none() && slash_is_optional {
        (resource, slash) = match segments {
            [.., last, ""] if !last.is_empty() => {
                (Resource::at(&segments[..count - 1]), Slash::Added)
            }
            [one] => (Resource::at(&[one, ""]), Slash::Missing),
            [one, two] => (Resource::at(&[one, two, ""]), Slash::Missing),
            _ => (None, slash),
        };
    }
    let resource = resource.ok_or(RouteError::UnknownPath)?;
    let segment = match segments {
        ["cids" | "statistics", _, id] | [_, id, ..] if resource.has_segment => id,
        _ => "",
    };
    let found = resource
        .operations
        .iter()
        .find(|one| one.method() == method);
    match found {
        Some(operation) => Ok(Route {
            operation: *operation,
            path,
            segment,
            slash,
        }),
        None => Err(RouteError::MethodNotAllowed {
            allow: resource.allow,
        }),
    }
}

/// A path, and the operations it has by method.
struct Resource {
    operations: &'static [Operation],
    allow: &'static str,
    has_segment: bool,
}

impl Resource {
    fn at(segments: &[&str]) -> Option<Self> {
        use Operation as O;
        let (operations, has_segment): (&'static [Operation], bool) = match segments {
            [_, "", _] | [_, _, ""] if !matches!(segments, ["cids", "files", ""]) => return None,
            ["entries", ""] => (&[O::CreateEntry], false),
            ["entries", _] => (&[O::GetEntry, O::UpdateEntry], true),
            ["entries", _, "delete"] => (&[O::DeleteEntry], true),
            ["entries", _, "statistics"] => (&[O::GetEntryStatistics], true),
            ["entries", _, "initiator"] => (&[O::GetEntryInitiator], true),
            ["statistics", "owner", _] => (&[O::GetOwnerStatistics], true),
            ["persons", _, "statistics"] => (&[O::GetPersonStatistics], true),
            ["keys", "check"] => (&[O::CheckKeys], false),
            ["claims", ""] => (&[O::ListClaims, O::CreateClaim], false),
            ["claims", _] => (&[O::GetClaim], true),
            ["claims", _, "acknowledge"] => (&[O::AcknowledgeClaim], true),
            ["claims", _, "confirm"] => (&[O::ConfirmClaim], true),
            ["claims", _, "cancel"] => (&[O::CancelClaim], true),
            ["claims", _, "complete"] => (&[O::CompleteClaim], true),
            ["sync-verifications", ""] => (&[O::CreateSyncVerification], false),
            ["cids", "files", ""] => (&[O::CreateCidSetFile], false),
            ["cids", "files", _] => (&[O::GetCidSetFile], true),
            ["cids", "events"] => (&[O::ListCidSetEvents], false),
            ["cids", "entries", _] => (&[O::GetEntryByCid], true),
            ["infraction-reports", ""] => (
                &[O::ListInfractionReports, O::CreateInfractionReport],
                false,
            ),
            ["infraction-reports", _] => {
                (&[O::GetInfractionReport, O::UpdateInfractionReport], true)
            }
            ["infraction-reports", _, "acknowledge"] => (&[O::AcknowledgeInfractionReport], true),
            ["infraction-reports", _, "cancel"] => (&[O::CancelInfractionReport], true),
            ["infraction-reports", _, "close"] => (&[O::CloseInfractionReport], true),
            ["funds-recoveries", ""] => (&[O::CreateFundsRecovery], false),
            ["funds-recoveries", _] => (&[O::GetFundsRecovery, O::UpdateFundsRecovery], true),
            ["funds-recoveries", _, "tracking-graph"] => {
                (&[O::GetTrackingGraph, O::CreateTrackingGraph], true)
            }
            ["funds-recoveries", _, "block"] => (&[O::BlockFundsRecovery], true),
            ["funds-recoveries", _, "infraction-reports"] => {
                (&[O::ListFundsRecoveryInfractionReports], true)
            }
            ["funds-recoveries", _, "refund"] => (&[O::RefundFundsRecovery], true),
            ["funds-recoveries", _, "refunds"] => (&[O::ListFundsRecoveryRefunds], true),
            ["funds-recoveries", _, "cancel"] => (&[O::CancelFundsRecovery], true),
            ["fraud-markers", ""] => (&[O::ListFraudMarkers, O::CreateFraudMarker], false),
            ["fraud-markers", _] => (&[O::GetFraudMarker], true),
            ["fraud-markers", _, "cancel"] => (&[O::CancelFraudMarker], true),
            ["refunds", ""] => (&[O::ListRefunds, O::CreateRefund], false),
            ["refunds", _] => (&[O::GetRefund], true),
            ["refunds", _, "cancel"] => (&[O::CancelRefund], true),
            ["refunds", _, "close"] => (&[O::CloseRefund], true),
            ["event-notifications"] => (&[O::ListEventNotifications], false),
            ["policies", ""] => (&[O::ListBucketStates], false),
            ["policies", _] => (&[O::GetBucketState], true),
            _ => return None,
        };
        let allow = match operations {
            [one] => one.method(),
            [one, other] => match (one.method(), other.method()) {
                ("GET", "PUT") => "GET, PUT",
                _ => "GET, POST",
            },
            _ => "",
        };
        Some(Self {
            operations,
            allow,
            has_segment,
        })
    }
}
