//! All of them: start, wait for something, stop.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use crate::agent::Agent;
use crate::config::Config;
use crate::counts::{Counters, Counts, Times};
use crate::wire::{Dialer, Trouble};

const LOOK: Duration = Duration::from_millis(5);

/// What all agents stand on.
pub(crate) struct Ground {
    pub config: Config,
    pub dialer: Dialer,
    pub counters: Counters,
    pub answered: Times,
    pub fetched: Times,
    last_trouble: Mutex<Option<String>>,
}

impl Ground {
    pub fn remember(&self, number: usize, trouble: &Trouble) {
        let mut last = self.last_trouble.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(format!("agent {number}: {trouble}"));
    }
}

/// Which of an agent's moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moments {
    /// It heard something new.
    Answered,
    /// It had fetched and checked the content.
    Fetched,
}

/// What was waited for did not happen in time.
#[derive(Debug, thiserror::Error)]
#[error("waited {waited:?} for {what}; counted {counts:?}; last trouble: {trouble}")]
pub struct Late {
    what: String,
    waited: Duration,
    counts: Counts,
    trouble: String,
}

/// Agents at work. They stop when it is dropped.
pub struct Swarm {
    ground: Arc<Ground>,
    agents: JoinSet<()>,
}

impl Swarm {
    /// Starts every agent of the configuration; see [`Swarm::until`] for when they are there.
    pub fn start(config: Config) -> Result<Self> {
        ensure!(!config.brokers.is_empty(), "a swarm needs a broker");
        let (count, begun) = (config.agents.len(), Instant::now());
        let mut config = config;
        let identities = std::mem::take(&mut config.agents);
        let ground = Arc::new(Ground {
            dialer: Dialer::new(&config.authorities, config.transport, count, config.handshakes)?,
            counters: Counters::default(),
            answered: Times::new(begun, count),
            fetched: Times::new(begun, count),
            last_trouble: Mutex::default(),
            config,
        });
        let mut agents = JoinSet::new();
        for (number, identity) in identities.into_iter().enumerate() {
            agents.spawn(Agent::new(number, identity, Arc::clone(&ground)).run());
        }
        Ok(Self { ground, agents })
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        self.ground.counters.read()
    }

    #[must_use]
    pub fn last_trouble(&self) -> Option<String> {
        self.ground.last_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Seconds from a moment until this last happened to each agent, of those to whom it happened since.
    #[must_use]
    pub fn since(&self, moment: Instant, which: Moments) -> Vec<f64> {
        match which {
            Moments::Answered => self.ground.answered.since(moment),
            Moments::Fetched => self.ground.fetched.since(moment),
        }
    }

    /// Stops them all, and waits until their connections are closed.
    pub async fn stop(mut self) {
        self.agents.shutdown().await;
    }
}
