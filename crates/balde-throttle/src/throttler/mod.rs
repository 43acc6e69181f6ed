//! The throttler and its partitions, as callers see them.

pub(crate) mod builder;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::Acquire;
use crate::error::{Refused, RunError, SettingsError};
use crate::inner::{Request, Shared, Want, Whom};
use crate::permit::Permit;
use crate::rate::{Pace, Rate};
use crate::scheduler::partition::PartitionStats;
use crate::scheduler::prefetch::Owner;
use crate::signal::{Outcome, Report};
use crate::throttler::builder::ThrottlerBuilder;

/// Gives tokens to requests that go out, at a rate for all and a rate for each partition. Clones
/// share everything. When the last one is dropped, whoever still waits is told [`Refused::Closed`].
///
/// Partitions are what the other side counts apart: a host, a table, a tenant. They come into being
/// when they are first named and are forgotten when they are idle and well. Their names are the
/// program's own and appear in logs and metrics.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use balde_throttle::Throttler;
///
/// // 12,000 records a second in all, 2,000 in each partition, bursts of a tenth of that.
/// let throttler = Throttler::new(12_000, 2_000)?;
/// throttler.acquire("orders", 5).await?;
/// let written = throttler
///     .run("orders", 1, async { Ok::<_, std::io::Error>("a record") })
///     .await?;
/// assert_eq!(written, "a record");
/// # Ok(()) }) }
/// ```
#[derive(Clone)]
pub struct Throttler(Arc<Owned>);

/// Closes the throttler when the last of its handles goes. Waiters and partitions hold the inner
/// part only.
struct Owned(Arc<Shared>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Throttler {
    /// A throttler with a global rate, a rate for each partition, and everything else left at its
    /// default. Bare numbers are tokens in a second.
    pub fn new(
        rate: impl Into<Rate>,
        partition_rate: impl Into<Rate>,
    ) -> Result<Self, SettingsError> {
        Self::builder()
            .rate(rate)
            .partition_rate(partition_rate)
            .build()
    }

    /// For everything that [`new`](Throttler::new) leaves at its default.
    pub fn builder() -> ThrottlerBuilder {
        ThrottlerBuilder::new()
    }

    pub(crate) fn of(shared: Arc<Shared>) -> Self {
        Self(Arc::new(Owned(shared)))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// Waits until both buckets give `n` tokens. Whoever comes first to a partition is served first.
    /// The future can be dropped at any point.
    #[inline]
    pub async fn acquire(&self, partition: &str, n: u64) -> Result<(), Refused> {
        let request = request(Whom::Name(partition), n, None);
        Acquire::new(self.shared(), request).await.map(drop)
    }

    /// [`acquire`](Throttler::acquire) that ends with [`Refused::Deadline`] when the tokens have not
    /// come within so long.
    pub async fn acquire_within(
        &self,
        partition: &str,
        n: u64,
        within: Duration,
    ) -> Result<(), Refused> {
        let request = request(Whom::Name(partition), n, Some(within));
        Acquire::new(self.shared(), request).await.map(drop)
    }

    /// Takes `n` tokens if both buckets have them and nobody waits for them. A request for more than
    /// the burst is always refused here: it could only be served in slices, over time.
    #[inline]
    pub fn try_acquire(&self, partition: &str, n: u64) -> Result<(), Refused> {
        try_acquire(self.shared(), Whom::Name(partition), n)
    }

    /// [`acquire`](Throttler::acquire) for a request whose end will be reported.
    pub async fn permit(&self, partition: &str, n: u64) -> Result<Permit, Refused> {
        permit(self.shared(), Whom::Name(partition), n, None).await
    }

    /// Waits for `n` tokens, then runs `work` and reports how it ended, exactly once: an `Err`, or a
    /// panic, is an error; a `work` that is dropped half way is unknown and counts for nothing.
    pub async fn run<T, E>(
        &self,
        partition: &str,
        n: u64,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, RunError<E>> {
        self.run_with(partition, n, work, outcome_of).await
    }

    /// [`run`](Throttler::run) for those who know better what an outcome means.
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

    /// Tells how a request to `partition` ended, for tokens that were had by
    /// [`acquire`](Throttler::acquire).
    pub fn report(&self, partition: &str, report: impl Into<Report>) {
        let shared = self.shared();
        let report = report.into();
        let found = shared.step(|core, now_us| core.find(partition, now_us));
        // A partition that cannot be has nothing to be told.
        if let Ok(index) = found {
            shared.report(index, None, &report);
        }
    }

    /// A handle for a partition, for those who ask often: it saves looking up the name.
    pub fn partition(&self, name: &str) -> Result<Partition, Refused> {
        let shared = self.shared();
        let owner = shared.step(|core, now_us| {
            let index = core.find(name, now_us)?;
            core.part_mut(index).handles += 1;
            Ok(core.ahead.owner(index))
        })?;
        Ok(Partition {
            shared: Arc::clone(shared),
            owner,
        })
    }

    /// Another global rate. The burst changes with it, what the bucket is below full stays, and
    /// nothing is minted.
    pub fn set_rate(&self, rate: impl Into<Rate>) -> Result<(), SettingsError> {
        let rate = rate.into();
        if !rate.is_valid() {
            return Err(SettingsError::Rate {
                which: "rate",
                tokens: rate.tokens(),
            });
        }
        self.shared().set_rate(rate);
        Ok(())
    }

    /// The global rate and burst.
    pub fn pace(&self) -> Pace {
        self.shared().read(|core| core.global_pace)
    }

    /// All partitions as they are now, by name.
    pub fn stats(&self) -> Vec<PartitionStats> {
        self.shared().step(|core, now_us| {
            core.recall_all(now_us);
            core.stats()
        })
    }

    /// How many wait, over all partitions.
    pub fn waiters(&self) -> usize {
        self.shared().read(|core| core.waiting)
    }

    /// Ends it for everybody: whoever waits or asks is told [`Refused::Closed`].
    pub fn close(&self) {
        self.shared().close();
    }
}

impl fmt::Debug for Throttler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttler")
            .field("name", &self.shared().settings.name)
            .field("pace", &format_args!("{}", self.pace()))
            .field("waiters", &self.waiters())
            .finish_non_exhaustive()
    }
}

/// One partition of a throttler. It does not keep the throttler open: when the last [`Throttler`] is
/// dropped, whoever waits here is told [`Refused::Closed`].
pub struct Partition {
    shared: Arc<Shared>,
    owner: Owner,
}

impl Partition {
    /// [`Throttler::acquire`] in this partition.
    #[inline]
    pub async fn acquire(&self, n: u64) -> Result<(), Refused> {
        let request = request(Whom::Owner(self.owner), n, None);
        Acquire::new(&self.shared, request).await.map(drop)
    }

    /// [`Throttler::acquire_within`] in this partition.
    pub async fn acquire_within(&self, n: u64, within: Duration) -> Result<(), Refused> {
        let request = request(Whom::Owner(self.owner), n, Some(within));
        Acquire::new(&self.shared, request).await.map(drop)
    }

    /// [`Throttler::try_acquire`] in this partition.
    #[inline]
    pub fn try_acquire(&self, n: u64) -> Result<(), Refused> {
        try_acquire(&self.shared, Whom::Owner(self.owner), n)
    }

    /// [`Throttler::permit`] in this partition.
    pub async fn permit(&self, n: u64) -> Result<Permit, Refused> {
        permit(&self.shared, Whom::Owner(self.owner), n, None).await
    }

    /// [`Throttler::run`] in this partition.
    pub async fn run<T, E>(
        &self,
        n: u64,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, RunError<E>> {
        let permit = self.permit(n).await?;
        let result = work.await;
        permit.report(outcome_of(&result));
        result.map_err(RunError::Failed)
    }

    /// [`Throttler::report`] for this partition.
    pub fn report(&self, report: impl Into<Report>) {
        self.shared.report(self.owner.index, None, &report.into());
    }

    /// What is known of it now.
    pub fn stats(&self) -> PartitionStats {
        let index = self.owner.index;
        self.shared.step(|core, now_us| {
            core.recall(index, now_us);
            core.part(index).stats()
        })
    }

    /// The rate and burst it has now.
    pub fn pace(&self) -> Pace {
        self.shared.read(|core| core.part(self.owner.index).pace)
    }

    /// Whole tokens in its bucket now. Nothing, where the bucket is in a shared store.
    pub fn level(&self) -> u64 {
        let index = self.owner.index;
        self.shared.step(|core, now_us| {
            core.recall(index, now_us);
            core.level(index, now_us)
        })
    }
}

impl Clone for Partition {
    fn clone(&self) -> Self {
        let index = self.owner.index;
        self.shared
            .step(|core, _| core.part_mut(index).handles += 1);
        Self {
            shared: Arc::clone(&self.shared),
            owner: self.owner,
        }
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        let index = self.owner.index;
        self.shared
            .step(|core, _| core.part_mut(index).handles -= 1);
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.stats();
        f.debug_struct("Partition")
            .field("name", &stats.name())
            .field("pace", &format_args!("{}", stats.pace()))
            .finish_non_exhaustive()
    }
}

#[inline]
fn request(whom: Whom<'_>, n: u64, within: Option<Duration>) -> Request<'_> {
    Request {
        whom,
        n,
        want: Want::Tokens,
        within,
    }
}

#[inline]
fn try_acquire(shared: &Arc<Shared>, whom: Whom<'_>, n: u64) -> Result<(), Refused> {
    if shared.take_ahead(whom, n) {
        return Ok(());
    }
    shared.try_enter(request(whom, n, None)).map(drop)
}

pub(crate) async fn permit(
    shared: &Arc<Shared>,
    whom: Whom<'_>,
    n: u64,
    within: Option<Duration>,
) -> Result<Permit, Refused> {
    let request = Request {
        want: Want::Permit,
        ..request(whom, n, within)
    };
    let given = Acquire::new(shared, request).await?;
    let given = given.expect("a permit never comes from the door");
    Ok(Permit::new(shared, given, n))
}

fn outcome_of<T, E>(result: &Result<T, E>) -> Report {
    match result {
        Ok(_) => Outcome::Success.into(),
        Err(_) => Outcome::Error.into(),
    }
}
