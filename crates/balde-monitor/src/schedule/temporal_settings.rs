//! The settings of the Temporal scheduler.

use std::fmt;

/// Where the Temporal server is, and what runs there.
#[derive(Clone, PartialEq, Eq)]
pub struct TemporalSettings {
    /// The address of its frontend, such as `http://127.0.0.1:7233`; `https://` for TLS.
    pub address: String,
    /// The namespace.
    pub namespace: String,
    /// The task queue of workflow and activities.
    pub task_queue: String,
    /// The id of the workflow.
    pub workflow_id: String,
    /// The cron expression of the workflow.
    pub cron: String,
    /// The client's certificate chain and key, as PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The certificate authorities to trust, as PEM; those of the system by default.
    pub ca: Option<Vec<u8>>,
    /// The name in the server's certificate, if it differs from the address.
    pub server_name: Option<String>,
    /// The API key.
    pub api_key: Option<String>,
}

impl TemporalSettings {
    /// Returns true if a setting makes sense over TLS only.
    pub fn needs_tls(&self) -> bool {
        self.identity.is_some()
            || self.ca.is_some()
            || self.server_name.is_some()
            || self.api_key.is_some()
    }
}

impl fmt::Debug for TemporalSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TemporalSettings")
            .field("address", &self.address)
            .field("namespace", &self.namespace)
            .field("task_queue", &self.task_queue)
            .field("workflow_id", &self.workflow_id)
            .field("cron", &self.cron)
            .finish_non_exhaustive()
    }
}
