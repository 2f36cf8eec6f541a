//! The real `brokkr` against a broker of prepared answers: what it sends, prints and exits with.

mod applying;
mod deleting;
mod fake_broker;
mod logging_in;
mod sample;
