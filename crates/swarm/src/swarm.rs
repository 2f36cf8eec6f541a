//! All agents: start, wait for a condition, stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::{AbortHandle, JoinSet};

use crate::agent::Agent;
use crate::config::Config;
use crate::counts::{Counters, Counts, Times};
use crate::wire::{Dialer, RequestError};

const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// State that all agents share.
pub(crate) struct Shared {
    pub config: Config,
    pub dialer: Dialer,
    pub counters: Counters,
    pub answered: Times,
    pub begun: Times,
    pub fetched: Times,
    healed: AtomicBool,
    last_trouble: Mutex<Option<String>>,
}

impl Shared {
    /// Returns whether versions no longer fail.
    pub fn is_healed(&self) -> bool {
        self.healed.load(Ordering::Relaxed)
    }

    pub fn remember(&self, number: usize, trouble: &RequestError) {
        let mut last = self.last_trouble.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(format!("agent {number}: {trouble}"));
    }
}

/// An event of an agent with a recorded time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It received a new answer.
    Answered,
    /// It has begun a version, because an answer named it for the first time.
    Begun,
    /// It has fetched and checked the content.
    Fetched,
}

/// A condition was not met in time.
#[derive(Debug, thiserror::Error)]
#[error("timed out after {waited:?} waiting for {what}; counts: {counts:?}; last error: {trouble}")]
pub struct Late {
    what: String,
    waited: Duration,
    counts: Counts,
    trouble: String,
}

/// Running agents. They stop when it is dropped.
pub struct Swarm {
    shared: Arc<Shared>,
    agents: JoinSet<()>,
    /// Of each agent, by its number.
    handles: Vec<AbortHandle>,
}

impl Swarm {
    /// Starts every agent of the configuration; [`Swarm::until`] waits until they are connected.
    pub fn start(config: Config) -> Result<Self> {
        ensure!(!config.brokers.is_empty(), "a swarm needs a broker");
        let (count, begun) = (config.agents.len(), Instant::now());
        let mut config = config;
        let identities = std::mem::take(&mut config.agents);
        let shared = Arc::new(Shared {
            dialer: Dialer::new(&config.authorities, config.transport, count, config.handshakes)?,
            counters: Counters::default(),
            answered: Times::new(begun, count),
            begun: Times::new(begun, count),
            fetched: Times::new(begun, count),
            healed: AtomicBool::new(false),
            last_trouble: Mutex::default(),
            config,
        });
        let mut agents = JoinSet::new();
        let start =
            |(number, identity)| agents.spawn(Agent::new(number, identity, Arc::clone(&shared)).run());
        let handles = identities.into_iter().enumerate().map(start).collect();
        Ok(Self { shared, agents, handles })
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counters.read()
    }

    #[must_use]
    pub fn last_trouble(&self) -> Option<String> {
        self.shared.last_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the counts satisfy a condition.
    pub async fn until(
        &self,
        within: Duration,
        what: &str,
        done: impl Fn(&Counts) -> bool,
    ) -> Result<Counts, Late> {
        let begun = Instant::now();
        loop {
            let counts = self.counts();
            if done(&counts) {
                return Ok(counts);
            }
            if begun.elapsed() > within {
                let trouble = self.last_trouble().unwrap_or_else(|| "none".into());
                return Err(Late { what: what.to_owned(), waited: within, counts, trouble });
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Returns the seconds from a moment to the last such event of each agent, for the agents that had one since.
    #[must_use]
    pub fn since(&self, moment: Instant, which: EventKind) -> Vec<f64> {
        match which {
            EventKind::Answered => self.shared.answered.since(moment),
            EventKind::Begun => self.shared.begun.since(moment),
            EventKind::Fetched => self.shared.fetched.since(moment),
        }
    }

    /// From now on, no version fails.
    pub fn heal(&self) {
        self.shared.healed.store(true, Ordering::Relaxed);
    }

    /// Ends the agents from this number on, as if their clusters were lost: they never poll again.
    pub fn silence_from(&self, number: usize) {
        self.handles[number..].iter().for_each(AbortHandle::abort);
    }

    /// Stops them all, and waits until their connections are closed.
    pub async fn stop(mut self) {
        self.agents.shutdown().await;
    }
}
