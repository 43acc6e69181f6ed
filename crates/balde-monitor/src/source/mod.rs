//! Sources of bucket states: DICT itself, or a balde gateway.

mod certificate;
mod error;
mod gateway;
mod gateway_report;

use balde_dict::client::Client;
use balde_dict::wire::BucketStates;

use crate::sample::{BucketId, Poll, ReportedLimit, Sample, SampleError};

pub use certificate::certificate_expiry_us;
pub use error::SourceError;
pub use gateway::{GatewayClient, GatewayClientError};
pub use gateway_report::{GatewayReport, LookupCounts, PolicyRefusals, WorstPayer};

/// Where the bucket states of a participant are fetched from.
#[derive(Clone, Debug)]
pub enum Source {
    /// DICT, by its operations listBucketStates and getBucketState.
    Dict(Client),
    /// The state endpoint of a balde gateway.
    Gateway(GatewayClient),
}

impl Source {
    /// Fetches the state of one bucket of a participant. From DICT this is one getBucketState call;
    /// a gateway is asked for all buckets, because its endpoint has no other operation.
    pub async fn fetch_policy(
        &self,
        participant: &str,
        policy: &str,
        now_us: impl Fn() -> u64,
    ) -> Result<Poll, SourceError> {
        let poll = match self {
            Self::Dict(client) => {
                let states = client.get_bucket_state(policy).await;
                let states = states.map_err(SourceError::Dict)?;
                poll_of(participant, &states, now_us()).map_err(SourceError::InvalidSample)?
            }
            Self::Gateway(_) => self.fetch(participant, now_us).await?,
        };
        single(&poll, policy)
    }

    /// The gateway, if this is one.
    pub fn gateway(&self) -> Option<&GatewayClient> {
        match self {
            Self::Dict(_) => None,
            Self::Gateway(gateway) => Some(gateway),
        }
    }

    /// Fetches the bucket states of a participant once. The samples are timestamped with `now_us` at
    /// the moment the response has arrived. A response with any invalid value is rejected as a whole.
    pub async fn fetch(
        &self,
        participant: &str,
        now_us: impl Fn() -> u64,
    ) -> Result<Poll, SourceError> {
        match self {
            Self::Dict(client) => {
                let states = client.list_bucket_states().await;
                let states = states.map_err(SourceError::Dict)?;
                poll_of(participant, &states, now_us()).map_err(SourceError::InvalidSample)
            }
            Self::Gateway(gateway) => {
                let (states, report) = gateway.fetch(participant).await?;
                let taken_us = now_us();
                let poll = states.poll(participant, taken_us);
                let poll = poll.map_err(SourceError::InvalidSample)?;
                gateway.record(report, taken_us);
                Ok(poll)
            }
        }
    }
}

/// Keeps one policy of a poll, as a sample that was read by itself.
fn single(poll: &Poll, policy: &str) -> Result<Poll, SourceError> {
    let sample = poll.sample(policy).cloned().map(Sample::read_singly);
    let samples = sample.into_iter().collect();
    Poll::new(samples).map_err(SourceError::InvalidSample)
}

fn poll_of(participant: &str, states: &BucketStates, taken_us: u64) -> Result<Poll, SampleError> {
    let sample = |state: &balde_dict::wire::BucketState| {
        let limit = ReportedLimit::per_seconds(
            state.capacity,
            state.refill_tokens,
            state.refill_period_sec,
        )?;
        let bucket = BucketId::new(participant, &state.name)?;
        let mut sample = Sample::new(bucket, limit, state.available_tokens, taken_us)?;
        if let Some(category) = &states.category {
            sample = sample.with_category(category)?;
        }
        match states.response_time {
            Some(moment) => sample.answered_at(moment.ms().saturating_mul(1_000)),
            None => Ok(sample),
        }
    };
    let samples: Result<Vec<Sample>, SampleError> = states.policies.iter().map(sample).collect();
    Poll::new(samples?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESPONSE: &str = "<ListPoliciesResponse><ResponseTime>2026-01-15T10:20:30.123Z</ResponseTime>\
        <Category>F</Category><Policies>\
        <Policy><AvailableTokens>-17</AvailableTokens><Capacity>500</Capacity>\
        <RefillTokens>250</RefillTokens><RefillPeriodSec>60</RefillPeriodSec>\
        <Name>ENTRIES_READ_PARTICIPANT_ANTISCAN</Name></Policy>\
        </Policies></ListPoliciesResponse>";

    #[test]
    fn a_response_becomes_samples_with_debt_category_and_the_servers_time() {
        let states = BucketStates::read(RESPONSE.as_bytes()).unwrap();
        let poll = poll_of("12345678", &states, 42).unwrap();
        let sample = &poll.samples()[0];
        assert_eq!((sample.level(), sample.taken_us()), (-17, 42));
        assert_eq!(sample.category(), Some("F"));
        assert_eq!(sample.answered_us(), Some(1_768_472_430_123_000));
        assert_eq!(sample.limit().period_us(), 60_000_000);
    }

    #[test]
    fn one_impossible_bucket_invalidates_the_response() {
        let bad = RESPONSE.replace("<Capacity>500", "<Capacity>-500");
        let states = BucketStates::read(bad.as_bytes()).unwrap();
        assert!(poll_of("12345678", &states, 42).is_err());
    }
}
