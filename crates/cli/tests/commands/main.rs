//! The real `brokkr` against a broker of prepared answers: what it sends, prints and exits with.

mod applying;
mod asking_why;
mod comparing;
mod deleting;
mod fake_broker;
mod formats;
mod logging_in;
mod rolling_back;
mod sample;
mod suggesting;
mod waiting;
mod watching;
