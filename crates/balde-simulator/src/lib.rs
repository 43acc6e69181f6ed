//! A DICT simulator for your own machine: the server, its directory of entries, claims, infraction
//! reports, refunds and funds recoveries, and the messages of all 48 operations.
//!
//! It counts as DICT does, by the profiles and operations of `balde-dict`.
//!
//! | Name | What it is |
//! |--|--|
//! | [`Simulator`], [`SimulatorBuilder`], [`run`] | a simulated DICT, its options, its server |
//! | [`Participants`] | who may speak to it, and for whom |
//! | [`directory`] | its records, and the rules by which they change |
//! | [`certify`] | the other side: plays a PSP's conversation with any DICT, and reports what differs |

pub mod certify;
pub mod directory;
mod simulator;
mod tls;
mod wire;

pub use simulator::{
    AssignError, LOOKUPS_MAX, Participants, Simulator, SimulatorBuildError, SimulatorBuilder, run,
};
