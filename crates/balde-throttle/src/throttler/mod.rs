//! The throttler, and handles for its partitions.

mod builder;
mod partition;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

pub use builder::ThrottlerBuilder;
pub use partition::Partition;

use crate::acquire::Acquire;
use crate::error::{Refusal, RunError, SettingsError};
use crate::inner::{Inner, PartitionRef, Request, RequestKind};
use crate::outcome::{Outcome, Report};
use crate::permit::Permit;
use crate::rate::{Pace, Rate};
use crate::scheduler::partition::PartitionStats;

/// Grants tokens to outbound requests, at a global rate and at a rate for each partition. Clones share
/// all state. When the last one is dropped, requests that wait are refused with [`Refusal::Closed`].
///
/// A partition is what the server counts separately: a host, a table, a tenant. It is created when its
/// name is first used, and removed when it is idle and healthy and another needs its place. Partition
/// names appear in logs and metrics, so do not take them from untrusted input.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use balde_throttle::Throttler;
///
/// // 12,000 records a second in all, 2,000 in each partition; the burst is a tenth of that.
/// let throttler = Throttler::new(12_000, 2_000)?;
/// throttler.acquire("orders", 5).await?;
/// let written = throttler
///     .run("orders", 1, async { Ok::<_, std::io::Error>("a record") })
///     .await?;
/// assert_eq!(written, "a record");
/// # Ok(()) }) }
/// ```
#[derive(Clone)]
pub struct Throttler(Arc<CloseOnDrop>);

/// Closes the throttler when its last clone is dropped. Waiters and partition handles hold the inner
/// part only.
struct CloseOnDrop(Arc<Inner>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Throttler {
    /// Creates a throttler with a global rate, a rate for each partition, and the defaults for all other
    /// settings. Bare numbers are tokens per second.
    pub fn new(
        rate: impl Into<Rate>,
        partition_rate: impl Into<Rate>,
    ) -> Result<Self, SettingsError> {
        Self::builder()
            .rate(rate)
            .partition_rate(partition_rate)
            .build()
    }

    /// Returns a builder for all settings.
    pub fn builder() -> ThrottlerBuilder {
        ThrottlerBuilder::new()
    }

    fn from_inner(inner: Arc<Inner>) -> Self {
        Self(Arc::new(CloseOnDrop(inner)))
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0.0
    }

    /// Waits until both buckets have `n` tokens, and takes them. Requests to one partition are served in
    /// the order in which they came. The future can be dropped at any point: tokens it has taken go
    /// back.
    #[inline]
    pub async fn acquire(&self, partition: &str, n: u64) -> Result<(), Refusal> {
        let request = request(PartitionRef::Name(partition), n, None);
        Acquire::new(self.inner(), request).await.map(drop)
    }

    /// [`acquire`](Throttler::acquire) with a time limit: returns [`Refusal::Deadline`] if the tokens
    /// are not available within that time.
    pub async fn acquire_within(
        &self,
        partition: &str,
        n: u64,
        within: Duration,
    ) -> Result<(), Refusal> {
        let request = request(PartitionRef::Name(partition), n, Some(within));
        Acquire::new(self.inner(), request).await.map(drop)
    }

    /// Takes `n` tokens if both buckets have them and no other request waits for them. Does not wait. A
    /// request for more than the burst is always refused, because it has to wait to save up for it.
    #[inline]
    pub fn try_acquire(&self, partition: &str, n: u64) -> Result<(), Refusal> {
        try_acquire(self.inner(), PartitionRef::Name(partition), n)
    }

    /// [`acquire`](Throttler::acquire) for a request whose outcome will be reported.
    pub async fn permit(&self, partition: &str, n: u64) -> Result<Permit, Refusal> {
        permit(self.inner(), PartitionRef::Name(partition), n, None).await
    }

    /// Waits for `n` tokens, runs `work`, and reports its outcome once. `Ok` is a success; `Err`
    /// and a panic are errors; if the future is dropped while `work` runs, the outcome is unknown
    /// and does not count.
    pub async fn run<T, E>(
        &self,
        partition: &str,
        n: u64,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, RunError<E>> {
        self.run_with(partition, n, work, outcome_of).await
    }

    /// [`run`](Throttler::run) with a function that turns the result into the outcome.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use balde_throttle::{Outcome, Throttler};
    ///
    /// let throttler = Throttler::new(100, 10)?;
    /// let found = throttler
    ///     .run_with("users", 1, async { Err::<(), _>("no such user") }, |result| match result {
    ///         Err("no such user") | Ok(()) => Outcome::Success.into(),
    ///         Err(_) => Outcome::Error.into(),
    ///     })
    ///     .await;
    /// assert!(found.is_err());
    /// assert!(!throttler.stats()[0].is_degraded());
    /// # Ok(()) }) }
    /// ```
    pub async fn run_with<T, E>(
        &self,
        partition: &str,
        n: u64,
        work: impl Future<Output = Result<T, E>>,
        outcome: impl FnOnce(&Result<T, E>) -> Report,
    ) -> Result<T, RunError<E>> {
        let permit = self.permit(partition, n).await?;
        let result = work.await;
        permit.report(outcome(&result));
        result.map_err(RunError::Failed)
    }

    /// Reports how a request to `partition` ended whose tokens came from
    /// [`acquire`](Throttler::acquire).
    pub fn report(&self, partition: &str, report: impl Into<Report>) {
        let inner = self.inner();
        let report = report.into();
        let found = inner.update(|scheduler, now_us| scheduler.find(partition, now_us));
        // Where there can be no such partition, there is nothing to update.
        if let Ok(index) = found {
            inner.report(index, None, &report);
        }
    }

    /// Returns a handle for a partition. It saves the lookup of the name.
    pub fn partition(&self, name: &str) -> Result<Partition, Refusal> {
        Partition::open(self.inner(), name)
    }

    /// Changes the global rate, and its burst with it. The bucket keeps its deficit, and no tokens are
    /// added.
    pub fn set_rate(&self, rate: impl Into<Rate>) -> Result<(), SettingsError> {
        let rate = rate.into();
        if !rate.is_valid() {
            return Err(SettingsError::Rate {
                which: "rate",
                tokens: rate.tokens(),
            });
        }
        self.inner().set_rate(rate);
        Ok(())
    }

    /// The global rate and burst.
    pub fn pace(&self) -> Pace {
        self.inner().read(|scheduler| scheduler.global_pace)
    }

    /// The state of all partitions, sorted by name.
    pub fn stats(&self) -> Vec<PartitionStats> {
        self.inner().update(|scheduler, now_us| {
            scheduler.reclaim_all(now_us);
            scheduler.stats()
        })
    }

    /// How many requests wait, in all partitions together.
    pub fn waiters(&self) -> usize {
        self.inner().read(|scheduler| scheduler.waiting)
    }

    /// Closes the throttler: waiting and new requests are refused with [`Refusal::Closed`].
    pub fn close(&self) {
        self.inner().close();
    }
}

impl fmt::Debug for Throttler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttler")
            .field("name", &self.inner().settings.name)
            .field("pace", &format_args!("{}", self.pace()))
            .field("waiters", &self.waiters())
            .finish_non_exhaustive()
    }
}

#[inline]
fn request(partition: PartitionRef<'_>, n: u64, within: Option<Duration>) -> Request<'_> {
    Request {
        partition,
        n,
        kind: RequestKind::Tokens,
        within,
    }
}

#[inline]
fn try_acquire(inner: &Arc<Inner>, partition: PartitionRef<'_>, n: u64) -> Result<(), Refusal> {
    if inner.take_prefetched(partition, n) {
        return Ok(());
    }
    inner.try_enter(request(partition, n, None)).map(drop)
}

pub(crate) async fn permit(
    inner: &Arc<Inner>,
    partition: PartitionRef<'_>,
    n: u64,
    within: Option<Duration>,
) -> Result<Permit, Refusal> {
    let request = Request {
        kind: RequestKind::Permit,
        ..request(partition, n, within)
    };
    let grant = Acquire::new(inner, request).await?;
    let grant = grant.expect("permits do not use prefetched tokens");
    Ok(Permit::new(inner, grant, n))
}

fn outcome_of<T, E>(result: &Result<T, E>) -> Report {
    match result {
        Ok(_) => Outcome::Success.into(),
        Err(_) => Outcome::Error.into(),
    }
}
