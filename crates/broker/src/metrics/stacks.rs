//! Figures about the stacks that the operator lists, so that their owners can be paged. Cached, as those about the fleet.

use std::str::FromStr;
use std::time::{Duration, Instant};

use brokkr_api::report::Transition;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use sqlx::PgPool;
use tokio::sync::Mutex;

use crate::store::status_counts::{StackFigure, status_counts_of_stacks};

/// Each has a series for every state.
pub const MOST: usize = 100;
/// The minimum time that figures are cached.
const CACHED_FOR: Duration = Duration::from_secs(5);
/// Collectors usually wait for ten seconds.
const COUNT_TIMEOUT: Duration = Duration::from_secs(3);

/// A stack with metrics of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedStack {
    pub project: String,
    pub stack: String,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} does not have the form PROJECT/STACK")]
pub struct BadStackName(String);

impl FromStr for ListedStack {
    type Err = BadStackName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((project, stack)) if !project.is_empty() && !stack.is_empty() && !stack.contains('/') => {
                Ok(Self { project: project.to_owned(), stack: stack.to_owned() })
            }
            _ => Err(BadStackName(text.to_owned())),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StackState {
    project: String,
    stack: String,
    team: String,
    state: String,
}

/// The cached figures.
#[derive(Debug)]
pub struct StackCount {
    listed: Vec<ListedStack>,
    last: Mutex<(Vec<StackFigure>, Option<Instant>)>,
}

impl StackCount {
    /// Counts the first [`MOST`] of these stacks.
    #[must_use]
    pub fn of(mut listed: Vec<ListedStack>) -> Self {
        if listed.len() > MOST {
            tracing::warn!(
                listed = listed.len(),
                most = MOST,
                "too many stacks with metrics; the others have none"
            );
            listed.truncate(MOST);
        }
        Self { listed, last: Mutex::default() }
    }

    /// Registers the figures; counts only if the database is `reachable`.
    pub async fn register(&self, registry: &mut Registry, pool: &PgPool, reachable: bool) {
        if self.listed.is_empty() {
            return;
        }
        let mut last = self.last.lock().await;
        let (figures, counted) = &mut *last;
        if reachable && counted.is_none_or(|counted| counted.elapsed() >= CACHED_FOR) {
            let projects: Vec<&str> = self.listed.iter().map(|listed| listed.project.as_str()).collect();
            let names: Vec<&str> = self.listed.iter().map(|listed| listed.stack.as_str()).collect();
            let counting = status_counts_of_stacks(pool, &projects, &names);
            // The store counts a failed statement. The figures stay as they are, also after a timeout.
            if let Ok(Ok(found)) = tokio::time::timeout(COUNT_TIMEOUT, counting).await {
                *figures = found;
            }
            *counted = Some(Instant::now());
        }
        registry.register("stack_agents", "Agents of a listed stack, by last report", family(figures));
    }
}

fn family(figures: &[StackFigure]) -> Family<StackState, Gauge> {
    let family = Family::<StackState, Gauge>::default();
    let series = |figure: &StackFigure, state: &Transition| StackState {
        project: figure.project.clone(),
        stack: figure.stack.clone(),
        team: figure.team.clone(),
        state: state.to_string(),
    };
    for figure in figures {
        // States without agents are zero, so that an increase is visible.
        for state in
            Transition::KNOWN.iter().filter(|state| state.is_state() && **state != Transition::Removed)
        {
            let _ = family.get_or_create(&series(figure, state));
        }
    }
    for figure in figures.iter().filter(|figure| Transition::KNOWN.contains(&figure.transition)) {
        let agents = i64::try_from(figure.agents).unwrap_or(i64::MAX);
        family.get_or_create(&series(figure, &figure.transition)).set(agents);
    }
    family
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_stack_has_a_project_and_a_name() {
        let listed = ListedStack { project: "shop".to_owned(), stack: "web".to_owned() };
        assert_eq!("shop/web".parse(), Ok(listed));
        for bad in ["web", "/web", "shop/", "a/b/c", ""] {
            assert!(bad.parse::<ListedStack>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_number_of_series_is_bounded_by_the_list() {
        let figure = |stack: &str, transition: Transition| StackFigure {
            project: "shop".to_owned(),
            stack: stack.to_owned(),
            team: "payments".to_owned(),
            transition,
            agents: 3,
        };
        let figures = [
            figure("web", Transition::Failed),
            figure("web", Transition::Other("new".to_owned())),
            figure("api", Transition::Healthy),
        ];
        let mut registry = Registry::default();
        registry.register("stack_agents", "Agents", family(&figures));
        let text = brokkr_metrics::text(&registry);
        let series: Vec<&str> = text.lines().filter(|line| line.starts_with("stack_agents{")).collect();
        assert_eq!(series.len(), 2 * 5, "{text}");
        assert!(
            text.contains(r#"stack_agents{project="shop",stack="web",team="payments",state="failed"} 3"#),
            "{text}"
        );
        let many = vec![ListedStack { project: "a".into(), stack: "b".into() }; MOST + 1];
        assert_eq!(StackCount::of(many).listed.len(), MOST);
    }
}
