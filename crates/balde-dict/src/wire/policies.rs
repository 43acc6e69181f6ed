//! Bucket states, as returned by `GET /policies/` and `GET /policies/{policy}`.

use thiserror::Error;

use super::element::{Element, XmlError, XmlPosition};
use super::timestamp::Timestamp;

/// The state of one bucket, as DICT reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketState {
    /// The policy's name. It may be one that no profile knows.
    pub name: String,
    /// The tokens available now. A negative number is debt.
    pub available_tokens: i64,
    /// The most tokens that the bucket holds.
    pub capacity: i64,
    /// The tokens that are added in each refill period.
    pub refill_tokens: i64,
    /// The refill period in seconds.
    pub refill_period_sec: i64,
}

/// The response to listBucketStates or getBucketState.
///
/// ```
/// use balde_dict::wire::BucketStates;
///
/// let states = BucketStates::read(
///     b"<ListPoliciesResponse><Policies><Policy><Name>NEW_POLICY</Name><Capacity>5</Capacity>\
///       <AvailableTokens>-15</AvailableTokens><Unknown/><RefillPeriodSec>60</RefillPeriodSec>\
///       <RefillTokens>2</RefillTokens></Policy></Policies><Category>Z</Category>\
///       </ListPoliciesResponse>",
/// )?;
/// assert_eq!(states.category.as_deref(), Some("Z"));
/// assert_eq!(states.policies[0].available_tokens, -15);
/// # Ok::<(), balde_dict::wire::ReadStatesError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketStates {
    /// The participant's category, usually one letter.
    pub category: Option<String>,
    /// The time of the response.
    pub response_time: Option<Timestamp>,
    /// The id by which DICT's support finds the response.
    pub correlation_id: Option<String>,
    /// The buckets, in DICT's order.
    pub policies: Vec<BucketState>,
}

impl BucketStates {
    /// Parses either response. Elements may be in any order, and unknown ones are ignored.
    pub fn read(document: &[u8]) -> Result<Self, ReadStatesError> {
        let root = Element::read(document)?;
        let policies: Vec<&Element> = match root.name() {
            "ListPoliciesResponse" => root
                .child("Policies")
                .map_or(&[][..], Element::children)
                .iter()
                .filter(|child| child.name() == "Policy")
                .collect(),
            "GetPolicyResponse" => root.child("Policy").into_iter().collect(),
            _ => {
                return Err(ReadStatesError::OtherDocument {
                    position: root.position(),
                });
            }
        };
        let text = |name: &str| root.child(name).map(|child| child.text().to_owned());
        Ok(Self {
            category: text("Category").filter(|category| !category.is_empty()),
            // An unreadable timestamp is ignored: the caller wants the bucket states.
            response_time: text("ResponseTime").and_then(|time| time.parse().ok()),
            correlation_id: text("CorrelationId"),
            policies: policies
                .into_iter()
                .map(BucketState::read)
                .collect::<Result<_, _>>()?,
        })
    }
}

impl BucketState {
    fn read(element: &Element) -> Result<Self, ReadStatesError> {
        let missing = |field| ReadStatesError::Field {
            field,
            position: element.position(),
        };
        let number = |field: &'static str| {
            let child = element.child(field).ok_or(missing(field))?;
            child.text().parse().map_err(|_| ReadStatesError::Field {
                field,
                position: child.position(),
            })
        };
        let name = element.child("Name").map(Element::text);
        Ok(Self {
            name: name
                .filter(|name| !name.is_empty())
                .ok_or(missing("Name"))?
                .to_owned(),
            available_tokens: number("AvailableTokens")?,
            capacity: number("Capacity")?,
            refill_tokens: number("RefillTokens")?,
            refill_period_sec: number("RefillPeriodSec")?,
        })
    }
}

/// Why a response with bucket states cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReadStatesError {
    /// It is not XML, or exceeds a limit of the parser.
    #[error(transparent)]
    Xml(#[from] XmlError),
    /// It is another document.
    #[error(
        "line {}, column {}: neither a ListPoliciesResponse nor a GetPolicyResponse",
        position.line, position.column
    )]
    OtherDocument {
        /// The position of its root element.
        position: XmlPosition,
    },
    /// A field of a policy is missing or invalid.
    #[error(
        "line {}, column {}: a Policy's {field} is missing or invalid",
        position.line, position.column
    )]
    Field {
        /// The name of the field.
        field: &'static str,
        /// The position of the field, or of the policy that lacks it.
        position: XmlPosition,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_their_position() {
        for (document, expected) in [
            ("<problem/>", "neither"),
            (
                "<GetPolicyResponse><Policy/></GetPolicyResponse>",
                "column 20: a Policy's Name",
            ),
            (
                "<GetPolicyResponse><Policy><Name>X</Name><AvailableTokens>many</AvailableTokens>\
                 </Policy></GetPolicyResponse>",
                "AvailableTokens",
            ),
        ] {
            let error = BucketStates::read(document.as_bytes())
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
