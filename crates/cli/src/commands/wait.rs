//! Waiting until a version has arrived, or a deletion is complete, with progress on stderr. Also `brokkr wait`.

use std::time::Duration;

use brokkr_api::StackId;
use brokkr_api::stacks::Stack;
use brokkr_api::status::StackStatus;
use brokkr_client::Client;
use tokio::time::Instant;

use crate::args::{For, Wait, Waiting};
use crate::commands::{delete, deliver};
use crate::delivery::{Goal, Verdict};
use crate::failure::{About as _, Exit, Failure, Noun, WhileTrying as _};
use crate::printer::{Live, Printer};
use crate::view::progress::{Changes, summary};
use crate::view::whole;

const SHORTEST_PAUSE: Duration = Duration::from_millis(400);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Where no headline can move, the summary is a line, and not more often than this.
const SUMMARY_EVERY: Duration = Duration::from_secs(10);

pub async fn run(args: Wait, client: &Client, printer: Printer) -> Result<(), Failure> {
    let name = &args.stack;
    let stack = client
        .stack(name.as_str())
        .await
        .while_trying(&format!("read the stack {name}"))
        .about(Noun::Stack, name)?;
    let goal = goal(&args, &stack)?;
    let started = std::time::Instant::now();
    let title = format!("waiting for {name}");
    let waited = wait(client, stack.id, goal, &title, args.timeout, printer).await?;
    if !printer.is_for_people() {
        printer.show(&whole(waited.rows.clone()))?;
    }
    match goal {
        Goal::Removed(_) => delete::judge(&stack, goal, waited, args.timeout, client, printer).await,
        goal => {
            let waiting = Waiting { wait: true, timeout: args.timeout };
            deliver::judge(name, goal, waited, &waiting, started, client, printer).await
        }
    }
}

/// A wait is bound to a version from its beginning.
fn goal(args: &Wait, stack: &Stack) -> Result<Goal, Failure> {
    let name = &args.stack;
    if args.goal == For::Deleted {
        let marker = stack.sequence_id.filter(|_| stack.deleted_at.is_some());
        return marker.map(Goal::Removed).ok_or_else(|| {
            Failure::new(Exit::Conflict, format!("{name} is not deleted"))
                .next(format!("brokkr delete stack {name}"))
        });
    }
    if stack.deleted_at.is_some() {
        return Err(Failure::new(Exit::Conflict, format!("{name} is deleted"))
            .next(format!("brokkr wait {name} --for deleted")));
    }
    let sequence = args.sequence.or(stack.sequence_id).ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("nothing was submitted to {name} yet"))
            .next(format!("brokkr apply -f PATH --stack {name}"))
    })?;
    if stack.sequence_id.is_none_or(|newest| newest < sequence) {
        return Err(Failure::new(Exit::NotFound, format!("{name} has no version {sequence}"))
            .next(format!("brokkr history {name}")));
    }
    Ok(match args.goal {
        For::Applied => Goal::Applied(sequence),
        _ => Goal::Delivered(sequence),
    })
}

/// How a wait ended, and what the agents said last.
#[derive(Debug)]
pub struct Waited {
    pub ending: Ending,
    pub rows: Vec<StackStatus>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    Settled(Verdict),
    TimedOut,
}

/// Asks again and again until the goal is decided or the time is up. The stack is given by its id, which stays valid
/// after a deletion, when its name may already be somebody else's.
pub async fn wait(
    client: &Client,
    stack: StackId,
    goal: Goal,
    title: &str,
    timeout: Duration,
    printer: Printer,
) -> Result<Waited, Failure> {
    let deadline = Instant::now() + timeout;
    let live = printer.live(title);
    let mut telling = Telling::new(&live, goal);
    let mut rows = Vec::new();
    loop {
        let asked = Instant::now();
        // However long an answer takes, the promise of --timeout holds.
        match tokio::time::timeout_at(deadline, client.stack_status_all(&stack.to_string())).await {
            Err(_) => return Ok(Waited { ending: Ending::TimedOut, rows }),
            Ok(Ok(answer)) => rows = answer,
            Ok(Err(error)) if error.is_transient() => live.line(&format!("  {error}; still waiting")),
            Ok(Err(error)) => return Err(Failure::of_client("read the status while waiting", error)),
        }
        telling.tell(&rows);
        match goal.verdict(&rows) {
            Verdict::Waiting => {}
            verdict => return Ok(Waited { ending: Ending::Settled(verdict), rows }),
        }
        // A fleet whose status takes long to read is asked less often.
        let pause = (asked.elapsed() * 4).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        if Instant::now() + pause >= deadline {
            tokio::time::sleep_until(deadline).await;
            return Ok(Waited { ending: Ending::TimedOut, rows });
        }
        tokio::time::sleep(pause).await;
    }
}

struct Telling<'a> {
    live: &'a Live,
    goal: Goal,
    changes: Changes,
    last_summary: String,
    told_summary: Instant,
}

impl<'a> Telling<'a> {
    fn new(live: &'a Live, goal: Goal) -> Self {
        Self {
            live,
            goal,
            changes: Changes::default(),
            last_summary: String::new(),
            told_summary: Instant::now(),
        }
    }

    fn tell(&mut self, rows: &[StackStatus]) {
        for line in self.changes.since_last(self.goal, rows) {
            self.live.line(&line);
        }
        let summary = summary(self.goal, rows);
        self.live.headline(&summary);
        let is_due = self.last_summary.is_empty() || self.told_summary.elapsed() >= SUMMARY_EVERY;
        if !self.live.has_headline() && summary != self.last_summary && is_due {
            self.live.line(&format!("  {summary}"));
            self.last_summary = summary;
            self.told_summary = Instant::now();
        }
    }
}
