//! The agent's decisions in a simulated world, one file per topic.

mod chaos;
mod cluster;
mod crashes;
mod delivery;
mod drift;
mod fence;
mod handover;
mod order;
mod removal;
mod suite;
mod suspension;
mod truth;
mod waves;
mod windows;
mod withdrawal;
