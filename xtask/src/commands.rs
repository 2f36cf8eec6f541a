//! One file per command.

pub mod api;
pub mod bench;
pub mod book;
pub mod charts;
pub mod console;
pub mod contract;
pub mod dev;
pub mod docs;
pub mod e2e;
pub mod engines;
pub mod faults;
pub mod fuzz;
pub mod hostile;
pub mod image;
pub mod journeys;
pub mod results;
pub mod sim;
pub mod test;
pub mod versions;
