//! Counters of what all agents did, and gauges of connected and waiting agents.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A snapshot of the counters.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub $name: AtomicU64,)* }

        impl Counters {
            pub fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl std::ops::Add for Counts {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self { $($name: self.$name + other.$name,)* }
            }
        }

        impl std::ops::Sub for Counts {
            type Output = Self;
            fn sub(self, before: Self) -> Self {
                Self { $($name: self.$name.saturating_sub(before.$name),)* }
            }
        }
    };
}

counts! {
    /// Agents that are connected now.
    connected,
    /// Agents that now have a waiting poll.
    waiting,
    connects,
    sessions,
    polls,
    not_modified,
    /// Answers to polls that were new to the agent.
    changed,
    holds,
    contents,
    content_bytes,
    /// Updates that agents have begun: versions of a stack of which they had begun an earlier one.
    updates,
    /// Stacks whose content was fetched and checked, including those that are then counted as failed.
    delivered,
    failed,
    removed,
    reports_accepted,
    reports_duplicate,
    reports_refused,
    lost_answers,
    silences,
    /// Broken connections, invalid answers and refusals: everything after which an agent had to start over.
    troubles,
    /// Of these, answers with 429 or 503.
    pushed_back,
}

impl Counters {
    pub fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    pub fn one(counter: &AtomicU64) {
        Self::add(counter, 1);
    }
}

/// Increments a gauge for as long as it exists.
pub struct Present<'a>(&'a AtomicU64);

impl<'a> Present<'a> {
    pub fn enter(counter: &'a AtomicU64) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// When something last happened to each agent, in microseconds since the swarm began; zero for never.
#[derive(Debug)]
pub(crate) struct Times {
    begun: Instant,
    of: Vec<AtomicU64>,
}

impl Times {
    pub fn new(begun: Instant, agents: usize) -> Self {
        Self { begun, of: (0..agents).map(|_| AtomicU64::new(0)).collect() }
    }

    pub fn note(&self, number: usize) {
        let micros = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.of[number].store(micros.max(1), Ordering::Relaxed);
    }

    /// Returns the seconds from this moment to each agent's time, if it is later.
    pub fn since(&self, moment: Instant) -> Vec<f64> {
        let from = moment.duration_since(self.begun).as_micros() as f64;
        let times = self.of.iter().map(|time| time.load(Ordering::Relaxed) as f64);
        times.filter(|&time| time > from).map(|time| (time - from) / 1e6).collect()
    }
}
