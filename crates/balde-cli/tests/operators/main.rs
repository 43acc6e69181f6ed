//! What operators see and may do: real processes of a simulated DICT, gateways and monitors.

mod access;
mod pager_duty;
mod processes;
mod scanning_payer;
mod source;
