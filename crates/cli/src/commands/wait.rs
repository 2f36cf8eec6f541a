//! `brokkr wait`, and waiting in other commands, with progress on stderr.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brokkr_api::rollouts::Rollout;
use brokkr_api::stacks::Stack;
use brokkr_api::status::StackStatus;
use brokkr_api::why::Presence;
use brokkr_api::{AgentId, ErrorCode, Name, SequenceId, StackId};
use brokkr_client::{AgentQuery, Client};
use tokio::time::Instant;

use crate::args::{Wait, WaitGoal, WaitOptions, WaitTerms};
use crate::commands::rollout::newest;
use crate::commands::stack::nothing_submitted;
use crate::commands::{delete, deliver};
use crate::delivery::{AgentOutcome, Goal, Terms, Verdict};
use crate::failure::{About as _, Exit, Failure, Noun, Result, WhileTrying as _};
use crate::printer::{Live, Printer};
use crate::view::progress::{Changes, summary};
use crate::view::rollouts::progress;
use crate::view::whole;

const SHORTEST_PAUSE: Duration = Duration::from_millis(400);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Without a terminal, the summary is printed as a line, at most this often. The list of silent agents is
/// read again after the same time.
const SUMMARY_EVERY: Duration = Duration::from_secs(10);
/// How long Pods may be unable to run, such as in a crash loop, before the wait counts that as a failure.
const STUCK_AFTER: Duration = Duration::from_secs(60);

pub async fn run(args: Wait, client: &Client, printer: Printer) -> Result {
    let name = &args.stack;
    let stack = client
        .stack(name.as_str())
        .await
        .while_trying(&format!("read the stack {name}"))
        .about(Noun::Stack, name)?;
    let deletion = deletion_under_way(name, client).await?;
    let goal = goal(&args, &stack, deletion)?;
    let started = std::time::Instant::now();
    let title = format!("waiting for {name}");
    let waited = wait(client, stack.id, goal, &title, args.timeout, &args.terms, printer).await?;
    if !printer.is_for_people() {
        printer.show(&whole(waited.rows.clone()))?;
    }
    match goal {
        Goal::Removed(_) => delete::judge(&stack, goal, waited, args.timeout, client, printer).await,
        goal => {
            let waiting = WaitOptions::with(args.timeout, &args.terms);
            deliver::judge(name, goal, waited, &waiting, started, client, printer).await
        }
    }
}

/// Returns the deletion marker, if the stack is being deleted in waves.
async fn deletion_under_way(name: &Name, client: &Client) -> Result<Option<SequenceId>> {
    match newest(name, true, client).await {
        Ok(found) => Ok(found.filter(|rollout| rollout.is_deletion).map(|rollout| rollout.sequence_id)),
        // A stack that is deleted has no rollout.
        Err(error) if error.code() == Some(ErrorCode::BRK2001) => Ok(None),
        Err(error) => Err(Failure::of_client(&format!("read the rollout of {name}"), error)),
    }
}

/// Determines the version to wait for. Versions that are submitted later do not change it.
fn goal(args: &Wait, stack: &Stack, deletion: Option<SequenceId>) -> Result<Goal> {
    let name = &args.stack;
    if args.goal == WaitGoal::Deleted {
        let marker = stack.sequence_id.filter(|_| stack.deleted_at.is_some()).or(deletion);
        return marker.map(Goal::Removed).ok_or_else(|| {
            Failure::new(Exit::Conflict, format!("{name} is not deleted"))
                .next(format!("brokkr stack delete {name}"))
        });
    }
    if stack.deleted_at.is_some() || deletion.is_some() {
        return Err(Failure::new(Exit::Conflict, format!("{name} is deleted"))
            .next(format!("brokkr wait {name} --for deleted")));
    }
    let sequence = args.sequence.or(stack.sequence_id).ok_or_else(|| nothing_submitted(name.as_str()))?;
    if stack.sequence_id.is_none_or(|newest| newest < sequence) {
        return Err(Failure::new(Exit::NotFound, format!("{name} has no version {sequence}"))
            .next(format!("brokkr stack history {name}")));
    }
    Ok(match args.goal {
        WaitGoal::Applied => Goal::Applied(sequence),
        _ => Goal::Delivered(sequence),
    })
}

/// The end of a wait, with the last status of the agents.
#[derive(Debug)]
pub struct Waited {
    pub ending: Ending,
    pub rows: Vec<StackStatus>,
    /// The agents on which nothing will change by itself.
    pub stuck: BTreeSet<AgentId>,
    /// The rollout of the version, if it has one.
    pub rollout: Option<Rollout>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    Settled(Verdict),
    TimedOut,
}

/// Polls until the goal is decided or the time is up. The stack is given by id, because after a deletion another stack may
/// have its name.
pub async fn wait(
    client: &Client,
    stack: StackId,
    goal: Goal,
    title: &str,
    timeout: Duration,
    terms: &WaitTerms,
    printer: Printer,
) -> Result<Waited> {
    let deadline = Instant::now() + timeout;
    let live = printer.live(title);
    let mut progress = ProgressLines::new(&live, goal);
    let mut waited =
        Waited { ending: Ending::TimedOut, rows: Vec::new(), stuck: BTreeSet::new(), rollout: None };
    let mut stuck_agents = StuckAgents::default();
    let mut rollout = RolloutOf { goal, is_absent: false };
    let mut silent_agents = SilentAgents { is_ignored: terms.ignore_silent, ..SilentAgents::default() };
    let verdict_terms = Terms { min_healthy: terms.min_healthy, fail_fast: terms.fail_fast };
    loop {
        let requested_at = Instant::now();
        // --timeout applies even if a request takes longer.
        match tokio::time::timeout_at(deadline, client.stack_status_all(&stack.to_string())).await {
            Err(_) => return Ok(waited),
            Ok(Ok(read)) => waited.rows = read,
            Ok(Err(error)) if error.is_transient() => live.line(&format!("  {error}; still waiting")),
            Ok(Err(error)) => return Err(Failure::of_client("read the status while waiting", error)),
        }
        let read = async {
            silent_agents.remove_from(&mut waited.rows, goal, client).await?;
            rollout.read(&mut waited.rollout, client).await
        };
        match tokio::time::timeout_at(deadline, read).await {
            Err(_) => return Ok(waited),
            Ok(read) => read?,
        }
        progress.update(&waited.rows, waited.rollout.as_ref());
        waited.stuck = stuck_agents.update(goal, &waited.rows);
        let verdict = goal.verdict(&waited.rows, verdict_terms, &waited.stuck);
        let verdict = match &waited.rollout {
            Some(rollout) => goal.with_rollout(verdict, verdict_terms, rollout),
            None => verdict,
        };
        if verdict != Verdict::Waiting {
            return Ok(Waited { ending: Ending::Settled(verdict), ..waited });
        }
        // A status that takes long to read is read less often.
        let pause = (requested_at.elapsed() * 4).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        if Instant::now() + pause >= deadline {
            tokio::time::sleep_until(deadline).await;
            return Ok(waited);
        }
        tokio::time::sleep(pause).await;
    }
}

/// Reads the rollout of the version that is waited for.
struct RolloutOf {
    goal: Goal,
    /// Every agent got the version at once.
    is_absent: bool,
}

impl RolloutOf {
    /// Reads it. If that fails for the moment, the last one stays.
    async fn read(&mut self, rollout: &mut Option<Rollout>, client: &Client) -> Result {
        if self.is_absent {
            return Ok(());
        }
        match client.rollout(self.goal.sequence()).await {
            Ok(read) => *rollout = Some(read),
            Err(error) if error.code() == Some(ErrorCode::BRK2001) => self.is_absent = true,
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(Failure::of_client("read the rollout while waiting", error)),
        }
        Ok(())
    }
}

/// Agents with Pods that cannot run, and since when this wait has seen that.
#[derive(Default)]
struct StuckAgents {
    since: BTreeMap<AgentId, Instant>,
}

impl StuckAgents {
    /// Returns the agents that have been stuck for long enough to count as failed.
    fn update(&mut self, goal: Goal, rows: &[StackStatus]) -> BTreeSet<AgentId> {
        let now = Instant::now();
        let stuck: BTreeSet<AgentId> =
            rows.iter().filter(|row| goal.is_stuck(row)).map(|row| row.agent_id).collect();
        self.since.retain(|agent, _| stuck.contains(agent));
        for agent in stuck {
            self.since.entry(agent).or_insert(now);
        }
        let failed = self.since.iter().filter(|(_, since)| now.duration_since(**since) >= STUCK_AFTER);
        failed.map(|(agent, _)| *agent).collect()
    }
}

/// The agents that `--ignore-silent` leaves out: silent ones, and those that never connected.
#[derive(Default)]
struct SilentAgents {
    is_ignored: bool,
    agents: BTreeSet<AgentId>,
    read_at: Option<Instant>,
}

impl SilentAgents {
    /// Removes the rows of silent agents that have not reached the goal.
    async fn remove_from(&mut self, rows: &mut Vec<StackStatus>, goal: Goal, client: &Client) -> Result {
        if !self.is_ignored {
            return Ok(());
        }
        if self.read_at.is_none_or(|read_at| read_at.elapsed() >= SUMMARY_EVERY) {
            let mut agents = BTreeSet::new();
            // An agent that never connected cannot be waited for either.
            for presence in [Presence::Silent, Presence::Never] {
                let query = AgentQuery { presence: Some(presence), ..AgentQuery::default() };
                match client.agents_where(&query, usize::MAX).await {
                    Ok(found) => agents.extend(found.items.iter().map(|agent| agent.id)),
                    // The next round reads them again.
                    Err(error) if error.is_transient() => agents.extend(&self.agents),
                    Err(error) => return Err(Failure::of_client("list silent agents", error)),
                }
            }
            self.agents = agents;
            self.read_at = Some(Instant::now());
        }
        rows.retain(|row| goal.outcome(row) != AgentOutcome::Waiting || !self.agents.contains(&row.agent_id));
        Ok(())
    }
}

struct ProgressLines<'a> {
    live: &'a Live,
    goal: Goal,
    changes: Changes,
    last_summary: String,
    summary_shown_at: Instant,
}

impl<'a> ProgressLines<'a> {
    fn new(live: &'a Live, goal: Goal) -> Self {
        Self {
            live,
            goal,
            changes: Changes::default(),
            last_summary: String::new(),
            summary_shown_at: Instant::now(),
        }
    }

    fn update(&mut self, rows: &[StackStatus], rollout: Option<&Rollout>) {
        for line in self.changes.since_last(self.goal, rows) {
            self.live.line(&line);
        }
        let mut summary = summary(self.goal, rows);
        if let Some(progress) = rollout.and_then(progress) {
            summary = format!("{summary} · {progress}");
        }
        self.live.status(&summary);
        let is_due = self.last_summary.is_empty() || self.summary_shown_at.elapsed() >= SUMMARY_EVERY;
        if !self.live.has_status_line() && summary != self.last_summary && is_due {
            self.live.line(&format!("  {summary}"));
            self.last_summary = summary;
            self.summary_shown_at = Instant::now();
        }
    }
}
