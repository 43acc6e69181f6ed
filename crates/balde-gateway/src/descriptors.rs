//! How many connections the limit on file descriptors allows.

use balde::http::descriptor_limits;

use crate::config::Config;

/// Descriptors for the state endpoint, Redis, reconciliation, listeners and files, where the limit is
/// not small.
const RESERVE: usize = 192;

/// The most connections of clients, and the most connections to each upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    pub(crate) clients: usize,
    /// In the order of the file.
    pub(crate) upstreams: Vec<usize>,
}

impl ConnectionLimits {
    /// As the file has them, or fewer if the process may not open so many descriptors.
    pub(crate) fn new(config: &Config) -> Self {
        let wanted = Self {
            clients: config.server.connections_max,
            upstreams: config
                .upstreams
                .iter()
                .map(|it| it.connections_max)
                .collect(),
        };
        let Some(limits) = descriptor_limits() else {
            return wanted;
        };
        let descriptors = usize::try_from(limits.soft).unwrap_or(usize::MAX);
        let allowed = wanted.within(descriptors);
        if allowed != wanted {
            tracing::warn!(
                event_type = "connections_lowered",
                descriptors,
                clients = allowed.clients,
                clients_configured = wanted.clients,
                upstreams = allowed.upstreams.iter().sum::<usize>(),
                upstreams_configured = wanted.upstreams.iter().sum::<usize>(),
                "the limit of {descriptors} file descriptors is too low for the configured \
                 connections; raise it (`ulimit -n`, LimitNOFILE) or lower `connections_max`"
            );
        }
        allowed
    }

    fn within(&self, descriptors: usize) -> Self {
        let available = descriptors - RESERVE.min(descriptors / 4);
        let upstreams: usize = self.upstreams.iter().sum();
        if self.clients.saturating_add(upstreams) <= available {
            return self.clone();
        }
        // Half for either side; what one of them does not need is the other's.
        let half = available / 2;
        let of_upstreams = upstreams.min(half.max(available.saturating_sub(self.clients)));
        let clients = self.clients.min(available - of_upstreams);
        let share = |own: &usize| (own * of_upstreams / upstreams.max(1)).max(1);
        Self {
            clients: clients.max(1),
            upstreams: self.upstreams.iter().map(share).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(clients: usize, upstreams: &[usize]) -> ConnectionLimits {
        ConnectionLimits {
            clients,
            upstreams: upstreams.to_vec(),
        }
    }

    #[test]
    fn what_fits_is_not_lowered() {
        let wanted = limits(20_000, &[1_024, 1_024]);
        assert_eq!(wanted.within(1_000_000), wanted);
        assert_eq!(limits(10, &[5]).within(64), limits(10, &[5]));
    }

    #[test]
    fn clients_and_upstreams_share_what_there_is() {
        let wanted = limits(20_000, &[1_024]);
        assert_eq!(wanted.within(256), limits(96, &[96]));
        assert_eq!(wanted.within(20_000), limits(18_784, &[1_024]));
        assert_eq!(
            limits(20_000, &[300, 100]).within(256),
            limits(96, &[72, 24])
        );
        assert_eq!(limits(10, &[1_024]).within(256), limits(10, &[182]));
    }
}
