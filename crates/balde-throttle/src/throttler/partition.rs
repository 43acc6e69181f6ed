//! The handle for one partition.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::{outcome_of, permit, request, try_acquire};
use crate::acquire::Acquire;
use crate::error::{Refusal, RunError};
use crate::inner::{Inner, PartitionRef};
use crate::outcome::Report;
use crate::permit::Permit;
use crate::rate::Pace;
use crate::scheduler::fast_path::SlotOwner;
use crate::scheduler::partition::PartitionStats;

/// A handle for one partition of a [`Throttler`](crate::Throttler), which saves the lookup of its name.
///
/// It does not keep the throttler open: when the last `Throttler` is dropped, requests that wait here
/// are refused with [`Refusal::Closed`].
pub struct Partition {
    inner: Arc<Inner>,
    owner: SlotOwner,
}

impl Partition {
    pub(super) fn open(inner: &Arc<Inner>, name: &str) -> Result<Self, Refusal> {
        let owner = inner.update(|scheduler, now_us| {
            let index = scheduler.find(name, now_us)?;
            scheduler.partition_mut(index).handles += 1;
            Ok(scheduler.prefetch.owner(index))
        })?;
        Ok(Self {
            inner: Arc::clone(inner),
            owner,
        })
    }

    /// [`Throttler::acquire`](crate::Throttler::acquire) in this partition.
    #[inline]
    pub async fn acquire(&self, n: u64) -> Result<(), Refusal> {
        let request = request(self.as_ref(), n, None);
        Acquire::new(&self.inner, request).await.map(drop)
    }

    /// [`Throttler::acquire_within`](crate::Throttler::acquire_within) in this partition.
    pub async fn acquire_within(&self, n: u64, within: Duration) -> Result<(), Refusal> {
        let request = request(self.as_ref(), n, Some(within));
        Acquire::new(&self.inner, request).await.map(drop)
    }

    /// [`Throttler::try_acquire`](crate::Throttler::try_acquire) in this partition.
    #[inline]
    pub fn try_acquire(&self, n: u64) -> Result<(), Refusal> {
        try_acquire(&self.inner, self.as_ref(), n)
    }

    /// [`Throttler::permit`](crate::Throttler::permit) in this partition.
    pub async fn permit(&self, n: u64) -> Result<Permit, Refusal> {
        permit(&self.inner, self.as_ref(), n, None).await
    }

    /// [`Throttler::run`](crate::Throttler::run) in this partition.
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

    /// [`Throttler::report`](crate::Throttler::report) for this partition.
    pub fn report(&self, report: impl Into<Report>) {
        self.inner.report(self.owner.index, None, &report.into());
    }

    /// The state of this partition.
    pub fn stats(&self) -> PartitionStats {
        let index = self.owner.index;
        self.inner.update(|scheduler, now_us| {
            scheduler.reclaim(index, now_us);
            scheduler.partition(index).stats()
        })
    }

    /// The current rate and burst.
    pub fn pace(&self) -> Pace {
        let index = self.owner.index;
        self.inner.read(|scheduler| scheduler.partition(index).pace)
    }

    /// Whole tokens in this partition's bucket. Zero if the bucket is in a shared store.
    pub fn level(&self) -> u64 {
        let index = self.owner.index;
        self.inner.update(|scheduler, now_us| {
            scheduler.reclaim(index, now_us);
            scheduler.level(index, now_us)
        })
    }

    #[inline]
    fn as_ref(&self) -> PartitionRef<'static> {
        PartitionRef::Handle(self.owner)
    }
}

impl Clone for Partition {
    fn clone(&self) -> Self {
        let index = self.owner.index;
        self.inner
            .update(|scheduler, _| scheduler.partition_mut(index).handles += 1);
        Self {
            inner: Arc::clone(&self.inner),
            owner: self.owner,
        }
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        let index = self.owner.index;
        self.inner
            .update(|scheduler, _| scheduler.partition_mut(index).handles -= 1);
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
