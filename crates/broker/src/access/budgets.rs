//! Budgets of reports: rows and bytes, per agent and per project. Each report is stored for weeks, so the limit on requests
//! alone would let one agent fill the disk.
//!
//! Counted in memory, per replica, like rate limits.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use brokkr_api::audit::RefusalReason;
use brokkr_api::{AgentId, ErrorCode};
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use crate::error::ApiError;

/// The largest number of agents and projects in memory.
const CAPACITY: u64 = 200_000;
const EVICTED_AFTER: Duration = Duration::from_secs(3600);

/// An allowed amount: per second in the long run, and at once.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    rows: (u32, u32),
    kilobytes: (u32, u32),
}

/// An agent with ten thousand stacks may report all of them at once, for example after a release.
const AGENT: Allowed = Allowed { rows: (10, 20_000), kilobytes: (16, 64 * 1024) };
/// One agent's budget is a small part of this, so no agent can use up what the others of its project need.
const PROJECT: Allowed = Allowed { rows: (10_000, 1_000_000), kilobytes: (16 * 1024, 2 * 1024 * 1024) };

#[derive(Debug)]
struct Budget {
    rows: DefaultDirectRateLimiter,
    kilobytes: DefaultDirectRateLimiter,
}

impl Budget {
    fn new(allowed: Allowed) -> Arc<Self> {
        let limiter = |(rate, burst): (u32, u32)| {
            let non_zero = |count| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
            RateLimiter::direct(Quota::per_second(non_zero(rate)).allow_burst(non_zero(burst)))
        };
        Arc::new(Self { rows: limiter(allowed.rows), kilobytes: limiter(allowed.kilobytes) })
    }

    fn spend(&self, rows: usize, bytes: usize, of: &str) -> Result<(), ApiError> {
        let amount = |count: usize| NonZeroU32::new(u32::try_from(count).unwrap_or(u32::MAX));
        let kilobytes = bytes.div_ceil(1024);
        for (limiter, count) in [(&self.rows, rows), (&self.kilobytes, kilobytes)] {
            let Some(count) = amount(count) else { continue };
            let wait = match limiter.check_n(count) {
                Ok(Ok(())) => continue,
                Ok(Err(until)) => until.wait_time_from(DefaultClock::default().now()).as_secs() + 1,
                // More than may ever be spent at once.
                Err(_) => 60,
            };
            let detail = format!("the {of} sent more reports than its budget allows");
            return Err(ApiError::new(ErrorCode::BRK1006, detail)
                .refused_for(RefusalReason::OverBudget)
                .retry_after(wait.min(60)));
        }
        Ok(())
    }
}

#[derive(Debug)]
pub struct ReportBudgets {
    enabled: bool,
    agents: moka::future::Cache<AgentId, Arc<Budget>>,
    projects: moka::future::Cache<String, Arc<Budget>>,
}

impl ReportBudgets {
    #[must_use]
    pub fn new(enabled: bool) -> Self {
        Self { enabled, agents: cache(), projects: cache() }
    }

    pub async fn check_agent(&self, agent: AgentId, rows: usize, bytes: usize) -> Result<(), ApiError> {
        if !self.enabled {
            return Ok(());
        }
        let budget = self.agents.get_with(agent, async { Budget::new(AGENT) }).await;
        budget.spend(rows, bytes, "agent")
    }

    pub async fn check_project(&self, project: &str, rows: usize, bytes: usize) -> Result<(), ApiError> {
        if !self.enabled {
            return Ok(());
        }
        let budget = self.projects.get_with(project.to_owned(), async { Budget::new(PROJECT) }).await;
        budget.spend(rows, bytes, "project")
    }
}

fn cache<K: Hash + Eq + Send + Sync + 'static>() -> moka::future::Cache<K, Arc<Budget>> {
    moka::future::Cache::builder().max_capacity(CAPACITY).time_to_idle(EVICTED_AFTER).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_agent_that_floods_is_refused_and_others_of_its_project_are_not() {
        let budgets = ReportBudgets::new(true);
        let (one, other) = (AgentId::generate(), AgentId::generate());
        let mut stored = 0;
        for _ in 0..1000 {
            if budgets.check_agent(one, 500, 1024 * 1024).await.is_ok() {
                budgets.check_project("shop", 500, 1024 * 1024).await.unwrap();
                stored += 1;
            }
        }
        assert!((1..=65).contains(&stored), "{stored} MiB were accepted at once");
        assert!(budgets.check_agent(other, 500, 1024).await.is_ok());
        assert!(budgets.check_project("shop", 500, 1024).await.is_ok());
        let error = budgets.check_agent(one, 500, 1024 * 1024).await.unwrap_err();
        assert_eq!((error.status().as_u16(), error.refusal()), (429, Some(RefusalReason::OverBudget)));
        assert!(ReportBudgets::new(false).check_agent(one, usize::MAX, usize::MAX).await.is_ok());
    }

    #[tokio::test]
    async fn ten_thousand_stacks_may_be_reported_at_once() {
        let budgets = ReportBudgets::new(true);
        let agent = AgentId::generate();
        for _ in 0..20 {
            budgets.check_agent(agent, 500, 300 * 1024).await.unwrap();
        }
    }
}
