//! Whom to ask how the buckets stand: DICT itself, or a gateway that knows.

mod error;
mod gateway;

use balde_dict::client::Client;
use balde_dict::wire::BucketStates;

use crate::sample::{BucketId, Poll, ReportedLimit, Sample, SampleError};

pub use error::SourceError;
pub use gateway::{GatewayClient, GatewayClientError, STATES_BYTES_MAX};

/// Where the states of one participant's buckets come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// DICT: one listBucketStates call.
    Dict(Client),
    /// A balde gateway's state endpoint.
    Gateway(GatewayClient),
}

impl Source {
    /// Asks once. The moment of the samples is what `now_us` says when the answer is there. An
    /// answer that is not wholly sound is none: nothing is made up for what is missing.
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
                let states = gateway.fetch(participant).await?;
                states
                    .poll(participant, now_us())
                    .map_err(SourceError::InvalidSample)
            }
        }
    }
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

    const ANSWER: &str = "<ListPoliciesResponse><ResponseTime>2026-01-15T10:20:30.123Z</ResponseTime>\
        <Category>F</Category><Policies>\
        <Policy><AvailableTokens>-17</AvailableTokens><Capacity>500</Capacity>\
        <RefillTokens>250</RefillTokens><RefillPeriodSec>60</RefillPeriodSec>\
        <Name>ENTRIES_READ_PARTICIPANT_ANTISCAN</Name></Policy>\
        </Policies></ListPoliciesResponse>";

    #[test]
    fn an_answer_becomes_samples_with_debt_category_and_the_other_sides_time() {
        let states = BucketStates::read(ANSWER.as_bytes()).unwrap();
        let poll = poll_of("12345678", &states, 42).unwrap();
        let sample = &poll.samples()[0];
        assert_eq!((sample.level(), sample.taken_us()), (-17, 42));
        assert_eq!(sample.category(), Some("F"));
        assert_eq!(sample.answered_us(), Some(1_768_472_430_123_000));
        assert_eq!(sample.limit().period_us(), 60_000_000);
    }

    #[test]
    fn one_bucket_that_cannot_be_spoils_the_answer() {
        let bad = ANSWER.replace("<Capacity>500", "<Capacity>-500");
        let states = BucketStates::read(bad.as_bytes()).unwrap();
        assert!(poll_of("12345678", &states, 42).is_err());
    }
}
