//! What was told, and how often.

use sqlx::AssertSqlSafe;

use super::History;
use super::database::{Row, Value, values};
use super::states::from_json;
use super::records::{AlertCount, EventFilter, HistoryError};
use crate::alert::Event;
use crate::severity::Severity;

/// The most events that are given back at once.
pub const EVENTS_MAX: usize = 10_000;

impl History {
    /// Events, the newest first.
    pub async fn events(
        &self,
        filter: &EventFilter,
        max: usize,
    ) -> Result<Vec<Event>, HistoryError> {
        let wishes: [(&str, Option<Value>); 5] = [
            (
                "participant =",
                filter.participant.as_deref().map(Value::from),
            ),
            ("policy =", filter.policy.as_deref().map(Value::from)),
            (
                "severity >=",
                filter.severity.map(|severity| Value::from(severity as i64)),
            ),
            ("at_us >=", filter.from_us.map(Value::from)),
            ("at_us <", filter.before_us.map(Value::from)),
        ];
        let mut values = values![max.min(EVENTS_MAX)];
        let mut sql = "SELECT body FROM event WHERE TRUE".to_owned();
        for (wish, value) in wishes {
            if let Some(value) = value {
                values.push(value);
                sql = format!("{sql} AND {wish} ${}", values.len());
            }
        }
        sql.push_str(" ORDER BY at_us DESC, id DESC LIMIT $1");
        let rows = self.database.fetch(AssertSqlSafe(sql), values).await?;
        rows.iter()
            .map(|row| from_json("an event", &row.text(0)?))
            .collect()
    }

    /// How many alerts were raised, predicted, or told because nothing was heard, since the
    /// history began: also those whose events are deleted by now.
    pub async fn alert_counts(&self) -> Result<Vec<AlertCount>, HistoryError> {
        let sql = "SELECT participant, policy, severity, alerts FROM alert_count";
        let rows = self.database.fetch(sql, values![]).await?;
        let count = |row: &Row| {
            Ok(AlertCount {
                participant: row.text(0)?,
                policy: Some(row.text(1)?).filter(|policy| !policy.is_empty()),
                severity: severity(row.int(2)?)?,
                alerts: row.count(3)?,
            })
        };
        let mut counts = rows.iter().map(count).collect::<Result<Vec<AlertCount>, _>>()?;
        counts.sort_by(|one, other| {
            let key = |count: &AlertCount| (count.participant.clone(), count.policy.clone());
            (key(one), one.severity).cmp(&(key(other), other.severity))
        });
        Ok(counts)
    }
}

/// The severity of a number in a column.
pub(super) fn severity(number: i64) -> Result<Severity, HistoryError> {
    let mut all = Severity::ALL.into_iter();
    let found = all.find(|severity| *severity as i64 == number);
    found.ok_or_else(|| HistoryError::Corrupt {
        why: format!("{number} is no severity"),
    })
}
