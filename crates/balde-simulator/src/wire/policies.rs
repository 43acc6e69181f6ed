//! Writes bucket states, as returned by `GET /policies/` and `GET /policies/{policy}`.

use balde_dict::wire::{BucketState, Writer};

use super::envelope::{Envelope, ResponseHead};

/// Writes the response to listBucketStates.
pub(crate) fn list_policies(head: &ResponseHead, category: &str, states: &[BucketState]) -> String {
    let mut envelope =
        Envelope::correlation_first("ListPoliciesResponse", head, 400 + 220 * states.len());
    envelope.xml().element("Category", category);
    envelope.xml().within("Policies", |xml| {
        for state in states {
            write(state, xml);
        }
    });
    envelope.finish()
}

/// Writes the response to getBucketState.
pub(crate) fn get_policy(head: &ResponseHead, category: &str, state: &BucketState) -> String {
    let mut envelope = Envelope::correlation_first("GetPolicyResponse", head, 600);
    envelope.xml().element("Category", category);
    write(state, envelope.xml());
    envelope.finish()
}

fn write(state: &BucketState, xml: &mut Writer) {
    xml.open("Policy")
        .element("AvailableTokens", &state.available_tokens.to_string())
        .element("Capacity", &state.capacity.to_string())
        .element("RefillTokens", &state.refill_tokens.to_string())
        .element("RefillPeriodSec", &state.refill_period_sec.to_string())
        .element("Name", &state.name)
        .close("Policy");
}

#[cfg(test)]
mod tests {
    use balde_dict::wire::{BucketStates, Timestamp};

    use super::*;

    #[test]
    fn a_list_is_written_as_published_and_reads_back() {
        let head = ResponseHead::new(Timestamp::from_ms(1_662_124_765_833), [7; 16]);
        let states = vec![
            BucketState {
                name: "ENTRIES_WRITE".to_owned(),
                available_tokens: -15,
                capacity: 36_000,
                refill_tokens: 1_200,
                refill_period_sec: 60,
            };
            2
        ];
        let document = list_policies(&head, "A", &states);
        let policy = "<Policy><AvailableTokens>-15</AvailableTokens><Capacity>36000</Capacity>\
                      <RefillTokens>1200</RefillTokens><RefillPeriodSec>60</RefillPeriodSec>\
                      <Name>ENTRIES_WRITE</Name></Policy>";
        assert_eq!(
            document,
            format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\" ?>\n<ListPoliciesResponse>\
                 <Signature></Signature><CorrelationId>{}</CorrelationId>\
                 <ResponseTime>2022-09-02T13:19:25.833Z</ResponseTime><Category>A</Category>\
                 <Policies>{policy}{policy}</Policies></ListPoliciesResponse>",
                "07".repeat(16)
            )
        );
        let read = BucketStates::read(document.as_bytes()).unwrap();
        assert_eq!(read.policies, states);
        assert_eq!(read.correlation_id, Some("07".repeat(16)));
        assert_eq!(
            read.response_time,
            Some(Timestamp::from_ms(1_662_124_765_833))
        );
        let one = get_policy(&head, "A", &states[0]);
        assert_eq!(
            BucketStates::read(one.as_bytes()).unwrap().policies,
            states[..1]
        );
    }
}
