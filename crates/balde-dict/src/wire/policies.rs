//! The states of buckets, as GET /policies/ and GET /policies/{policy} answer them.

use std::fmt;

use super::element::{Element, Position, XmlError};
use super::envelope::{Envelope, Head};
use super::time::Moment;
use super::writer::Writer;

/// One bucket's state. The numbers are whatever DICT says: negative tokens are a debt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketState {
    /// The policy, known or not.
    pub name: String,
    /// Tokens now; negative is debt.
    pub available_tokens: i64,
    /// The most it holds.
    pub capacity: i64,
    /// Tokens that come back in a period.
    pub refill_tokens: i64,
    /// That period.
    pub refill_period_sec: i64,
}

/// What listBucketStates or getBucketState answered.
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
    /// When DICT answered.
    pub response_time: Option<Moment>,
    /// The id under which support finds the answer.
    pub correlation_id: Option<String>,
    /// The buckets, in DICT's order.
    pub policies: Vec<BucketState>,
}

impl BucketStates {
    /// Reads either answer, in any order and with anything unknown in it.
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
            // A moment that cannot be read is worth no failure: the states are what was asked for.
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

    fn write(&self, xml: &mut Writer) {
        xml.open("Policy")
            .element("AvailableTokens", &self.available_tokens.to_string())
            .element("Capacity", &self.capacity.to_string())
            .element("RefillTokens", &self.refill_tokens.to_string())
            .element("RefillPeriodSec", &self.refill_period_sec.to_string())
            .element("Name", &self.name)
            .close("Policy");
    }
}

/// The answer to listBucketStates.
pub(crate) fn list_policies(head: &Head, category: &str, states: &[BucketState]) -> String {
    let mut envelope =
        Envelope::correlation_first("ListPoliciesResponse", head, 400 + 220 * states.len());
    envelope.xml().element("Category", category);
    envelope.xml().within("Policies", |xml| {
        for state in states {
            state.write(xml);
        }
    });
    envelope.finish()
}

/// The answer to getBucketState.
pub(crate) fn get_policy(head: &Head, category: &str, state: &BucketState) -> String {
    let mut envelope = Envelope::correlation_first("GetPolicyResponse", head, 600);
    envelope.xml().element("Category", category);
    state.write(envelope.xml());
    envelope.finish()
}

/// Why an answer about buckets cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadStatesError {
    /// It is no XML, or beyond the limits.
    Xml(XmlError),
    /// It is another document.
    OtherDocument {
        /// Where its root is.
        position: Position,
    },
    /// A field of a policy is missing or no whole number.
    Field {
        /// Which.
        field: &'static str,
        /// Where it is, or where the policy is that lacks it.
        position: Position,
    },
}

impl fmt::Display for ReadStatesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xml(error) => error.fmt(f),
            Self::OtherDocument { position } => write!(
                f,
                "line {}, column {}: neither a ListPoliciesResponse nor a GetPolicyResponse",
                position.line, position.column
            ),
            Self::Field { field, position } => write!(
                f,
                "line {}, column {}: a Policy's {field} is missing or not what it should be",
                position.line, position.column
            ),
        }
    }
}

impl std::error::Error for ReadStatesError {}

impl From<XmlError> for ReadStatesError {
    fn from(error: XmlError) -> Self {
        Self::Xml(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_written_as_published_and_reads_back() {
        let head = Head::new(Moment::from_ms(1_662_124_765_833), [7; 16]);
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
        assert_eq!(read.response_time, Some(Moment::from_ms(1_662_124_765_833)));
        let one = get_policy(&head, "A", &states[0]);
        assert_eq!(
            BucketStates::read(one.as_bytes()).unwrap().policies,
            states[..1]
        );
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_place() {
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
