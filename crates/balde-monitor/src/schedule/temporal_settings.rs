//! The settings of the Temporal scheduler.

/// The address of a Temporal server, and the names to use there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemporalSettings {
    /// The address of the frontend, such as `http://127.0.0.1:7233`.
    pub address: String,
    /// The namespace.
    pub namespace: String,
    /// The task queue.
    pub task_queue: String,
    /// The id of the workflow.
    pub workflow_id: String,
    /// The cron expression of the workflow.
    pub cron: String,
}
