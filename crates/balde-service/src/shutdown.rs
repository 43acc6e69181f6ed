//! The signal that everything ends.

use tokio::sync::watch;

/// Waits until shutdown has begun.
pub(crate) async fn begun(shutdown: &mut watch::Receiver<bool>) {
    // A sender that is gone has ended everything, too.
    let _either_way = shutdown.wait_for(|is_over| *is_over).await.map(drop);
}
