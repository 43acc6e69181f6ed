//! What the monitor remembers: samples, the state of its machines, what it told and what is still
//! to be delivered.

mod records;

pub use records::{
    Backlog, Count, EventFilter, Gap, HistoryError, Incident, Letter, Machines, Point, Resolution,
    Retention, Series, Step, Told, Upkeep,
};
