//! Tasks that serve a client and have to end although the client gives them nothing to do.
//!
//! hyper does not poll the body of a response while the client takes nothing, so a body cannot end
//! itself. The task that hyper runs in can: it is marked here and woken, and ends when it is polled.
//! A dropped stream is reset, and a dropped connection is closed.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::task::{Id, try_id};

/// The ids of tasks are unique within the process, so one list serves all gateways of a process.
static MARKED: Mutex<Vec<Id>> = Mutex::new(Vec::new());
static MARKED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Marks a task. Whoever calls this wakes the task afterwards.
pub(crate) fn mark(id: Id) {
    let mut marked = MARKED.lock();
    if !marked.contains(&id) {
        marked.push(id);
        MARKED_COUNT.store(marked.len(), Ordering::Release);
    }
}

/// Removes the mark of a task that ended what it was marked for.
pub(crate) fn unmark(id: Id) {
    let mut marked = MARKED.lock();
    marked.retain(|other| *other != id);
    MARKED_COUNT.store(marked.len(), Ordering::Release);
}

/// Returns whether the current task is marked. Costs one load while none is.
pub(crate) fn is_marked() -> bool {
    if MARKED_COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    try_id().is_some_and(|id| MARKED.lock().contains(&id))
}

/// Spawns the tasks of HTTP/2 streams, which end when they are marked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamExecutor;

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, future: F) {
        tokio::spawn(async move {
            let mut future = pin!(future);
            poll_fn(|cx| {
                if is_marked() {
                    return Poll::Ready(());
                }
                future.as_mut().poll(cx).map(drop)
            })
            .await;
        });
    }
}
