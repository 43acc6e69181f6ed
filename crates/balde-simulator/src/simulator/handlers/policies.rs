//! Handlers of bucket states.

use super::RequestContext;
use crate::simulator::Simulator;
use crate::simulator::answer::Answer;
use crate::simulator::buckets::BucketName;
use crate::wire::{BucketState, Problem, error_type_of, get_policy, list_policies};

impl Simulator {
    pub(super) async fn list_bucket_states(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let mut states = Vec::new();
        for policy in 0..self.0.table.profile().policies().len() {
            states.extend(self.bucket_state(context.participant, policy).await?);
        }
        let category = self.0.buckets.category(context.participant);
        let body = list_policies(&context.head, category.as_str(), &states);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn get_bucket_state(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let policy = self.0.table.policy_index(context.segment);
        let state = match policy {
            Some(policy) => self.bucket_state(context.participant, policy).await?,
            None => None,
        };
        let state = state.ok_or_else(|| {
            let status = self.0.table.settings().unknown_policy_status;
            let problem = Problem::new(status, error_type_of(status));
            problem.with_detail("The participant has no such policy")
        })?;
        let category = self.0.buckets.category(context.participant);
        Ok(Answer::xml(
            200,
            get_policy(&context.head, category.as_str(), &state),
        ))
    }

    /// The state of a participant's bucket. DICT does not report payers' buckets.
    async fn bucket_state(
        &self,
        participant: &str,
        policy: usize,
    ) -> Result<Option<BucketState>, Problem> {
        if self.0.buckets.is_per_payer(policy) {
            return Ok(None);
        }
        let bucket = BucketName {
            policy,
            participant: participant.to_owned(),
            payer: None,
        };
        let found = self.0.buckets.state(&bucket).await;
        let found = found.map_err(|error| Problem::unavailable(error.to_string()))?;
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        Ok(found.map(|state| BucketState {
            name: self.0.table.policy(policy).name().to_owned(),
            available_tokens: state.level(),
            capacity: whole(state.limit().capacity()),
            refill_tokens: whole(state.limit().refill_tokens()),
            refill_period_sec: whole(state.limit().period_us() / 1_000_000),
        }))
    }
}
