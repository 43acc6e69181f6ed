//! The Pix DICT: its policies as data, its operations and messages, a client and a simulator.

pub mod client;
pub mod directory;
mod tls;
pub mod wire;
