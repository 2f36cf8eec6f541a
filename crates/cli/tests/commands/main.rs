//! Runs the real `brokkr` against a fake broker, and checks its requests, its output and its exit status.

mod administering;
mod applying;
mod asking_why;
mod comparing;
mod completing;
mod contexts;
mod deleting;
mod fake_broker;
mod formats;
mod logging_in;
mod preflight;
mod rendering;
mod rolling_back;
mod rolling_out;
mod sample;
mod suggesting;
mod terminal;
mod testing_health;
mod upgrading_agents;
mod waiting;
mod watching;
