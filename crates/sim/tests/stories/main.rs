//! The agent's decisions in a simulated world, one file a theme.

mod chaos;
mod crashes;
mod delivery;
mod handover;
mod removal;
