//! The tables of the pages say what the code does. Every table is either held to the code by a test,
//! or known to be prose.

mod defaults;
mod metrics;
mod names;
mod pages;
mod promises;
mod registry;
