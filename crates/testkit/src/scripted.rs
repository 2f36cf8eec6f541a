//! A broker that gives wrong answers when a test wants them.
//!
//! It implements the broker's protocol for agents, correctly by default, so that a real agent joins and works. Then a test
//! scripts wrong answers that happen in production: proxies, captive portals, replicas that lag, another broker. It counts its
//! answers, so that a test can wait for "was sent three times" instead of sleeping.
//!
//! ```no_run
//! # async fn test() -> anyhow::Result<()> {
//! use brokkr_testkit::Cluster;
//! use brokkr_testkit::scripted::{Lie, ScriptedBroker};
//!
//! let broker = ScriptedBroker::start().await?;
//! let agent = broker.launch("shop-1", &*Cluster::shared().await?).await?;
//! let first = broker.offer("web", "apiVersion: v1\nkind: ConfigMap …")?;
//! broker.wait_until_healthy(first).await?;
//! broker.answer_with(Lie::EmptyEnvelope);
//! broker.wait_until_sent(Lie::EmptyEnvelope, 3).await?;
//! broker.answer_truthfully();
//! broker.wait_until_in_sync().await?;
//! # Ok(()) }
//! ```
//!
//! ```text
//! scripted/truth.rs      the state of this broker, and the envelope derived from it
//! scripted/lie.rs        wrong answers to polls, wrong contents of objects
//! scripted/routes.rs     the agent's endpoints
//! scripted/listener.rs   TLS
//! ```

mod lie;
pub mod listener;
mod routes;
mod truth;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use brokkr_api::agents::AgentStatus;
use brokkr_api::envelope::TargetStack;
use brokkr_api::report::{Report, Transition};
use brokkr_api::{AgentId, SequenceId, StackId};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::agent::{Agent, AgentOptions};
use crate::cluster::Cluster;
use crate::process::ShowLog;
use crate::scratch::Scratch;
use crate::tls::Authority;
pub use lie::{ContentLie, Lie};
use truth::Truth;

/// The longest time that a test waits for the agent.
const AGENT_TIMEOUT: Duration = Duration::from_secs(60);

/// The state of the endpoints. The watch channel around it is both lock and notification.
#[derive(Debug)]
struct Script {
    truth: Truth,
    lie: Option<Lie>,
    content_lies: HashMap<SequenceId, ContentLie>,
    /// How often each wrong answer was sent.
    sent: HashMap<Lie, usize>,
    /// How often each content was sent, right or wrong.
    handed_out: HashMap<SequenceId, usize>,
    /// How many polls got a correct answer.
    truths: usize,
    /// The tag in the last poll, and the number of correct answers before it.
    asked: Option<(String, usize)>,
    reports: Vec<Report>,
}

/// The broker of one agent, in the process of the test.
#[derive(Debug)]
pub struct ScriptedBroker {
    script: Arc<watch::Sender<Script>>,
    url: String,
    server: JoinHandle<()>,
    scratch: Scratch,
}

impl Drop for ScriptedBroker {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl ScriptedBroker {
    pub async fn start() -> Result<Self> {
        let scratch = Scratch::new("scripted-broker")?;
        let authority = Authority::new("brokkr-test-scripted")?;
        scratch.write("ca.crt", authority.pem())?;
        let identity = authority.server(&scratch, "scripted-broker", &[])?;
        let (script, _) = watch::channel(Script {
            truth: Truth::new(),
            lie: None,
            content_lies: HashMap::new(),
            sent: HashMap::new(),
            handed_out: HashMap::new(),
            truths: 0,
            asked: None,
            reports: Vec::new(),
        });
        let script = Arc::new(script);
        let (address, server) = listener::serve(&identity, routes::router(script.clone())).await?;
        Ok(Self { script, url: format!("https://{address}"), server, scratch })
    }

    /// Installs an agent into the cluster, starts it, and waits until it polls here.
    pub async fn launch(&self, name: &str, cluster: &Cluster) -> Result<Agent> {
        self.launch_with(name, cluster, &AgentOptions::default()).await
    }

    pub async fn launch_with(&self, name: &str, cluster: &Cluster, options: &AgentOptions) -> Result<Agent> {
        let token = self.script.borrow().truth.join_token.clone();
        let authority = self.scratch.join("ca.crt");
        let agent =
            Agent::start_new(name, cluster, &self.url, &authority, &token, options, ShowLog::Always).await?;
        self.wait_until_in_sync()
            .await
            .with_context(|| format!("the agent did not join; its log:\n{}", agent.process().log_tail(40)))?;
        Ok(agent)
    }

    pub fn agent_id(&self) -> AgentId {
        self.script.borrow().truth.agent
    }

    // ── correct state ──

    /// Publishes the next object of a stack, which is created if necessary.
    pub fn offer(&self, stack: &str, yaml: &str) -> Result<SequenceId> {
        self.change(|script| script.truth.publish(stack, yaml))
    }

    /// Deletes a stack as the real broker does: the envelope has a removal while the agent holds the stack.
    pub fn delete(&self, stack: &str) -> Result<SequenceId> {
        self.change(|script| script.truth.delete(stack))
    }

    /// Changes the newest version of a stack: a grant, an approval, the kind of its removal.
    pub fn amend(&self, stack: &str, change: impl FnOnce(&mut TargetStack)) -> Result<()> {
        self.change(|script| script.truth.amend(stack, change))
    }

    pub fn set_status(&self, status: AgentStatus) {
        self.change(|script| script.truth.set_status(status));
    }

    /// Returns the stacks that the agent holds, according to its last report of holds.
    pub fn holds(&self) -> Vec<StackId> {
        self.script.borrow().truth.holds.iter().flatten().copied().collect()
    }

    // ── wrong answers ──

    /// Answers every poll wrongly from now on, and the waiting one at once.
    pub fn answer_with(&self, lie: Lie) {
        self.change(|script| script.lie = Some(lie));
    }

    pub fn answer_truthfully(&self) {
        self.change(|script| script.lie = None);
    }

    /// Sends wrong contents of an object. The envelope stays correct.
    pub fn hand_out(&self, sequence: SequenceId, lie: ContentLie) {
        self.change(|script| script.content_lies.insert(sequence, lie));
    }

    pub fn hand_out_truthfully(&self) {
        self.change(|script| script.content_lies.clear());
    }

    // ── observation ──

    /// Returns how often a wrong answer was sent.
    pub fn count(&self, lie: Lie) -> usize {
        self.script.borrow().sent.get(&lie).copied().unwrap_or_default()
    }

    /// Returns how many polls got a correct answer, including 304.
    pub fn truths(&self) -> usize {
        self.script.borrow().truths
    }

    /// Waits until a wrong answer was sent this often since the start of the test.
    pub async fn wait_until_sent(&self, lie: Lie, times: usize) -> Result<()> {
        let what = format!("{lie:?} to be sent {times} times");
        self.wait(&what, |script| script.sent.get(&lie).is_some_and(|&sent| sent >= times)).await
    }

    /// Waits until the content of an object was sent this often.
    pub async fn handed_out(&self, sequence: SequenceId, times: usize) -> Result<()> {
        let what = format!("the content of {sequence} to be handed out {times} times");
        self.wait(&what, |script| script.handed_out.get(&sequence).is_some_and(|&count| count >= times)).await
    }

    /// Waits until the agent has received a correct answer and polled again with its tag, which means that it
    /// has processed that answer.
    pub async fn wait_until_in_sync(&self) -> Result<()> {
        self.polls(1).await
    }

    /// Waits for this many correct answers, and until the agent has polled again with the tag of the last one.
    pub async fn polls(&self, times: usize) -> Result<()> {
        let enough = self.truths() + times;
        self.wait("the agent to poll again after a correct answer", |script| {
            let present = script.truth.envelope().tag();
            script.asked.as_ref().is_some_and(|(tag, truths)| *tag == present && *truths >= enough)
        })
        .await
    }

    /// Returns everything that the agent has reported, without duplicates, in the order of arrival.
    pub fn reports(&self) -> Vec<Report> {
        self.script.borrow().reports.clone()
    }

    /// Waits until the agent has reported this transition of an object.
    pub async fn reported(&self, sequence: SequenceId, transition: Transition) -> Result<Report> {
        let fits = |report: &&Report| report.sequence_id == sequence && report.transition == transition;
        let what = format!("{sequence} to be reported as {transition}");
        self.wait(&what, |script| script.reports.iter().any(|report| fits(&report))).await?;
        self.reports().iter().find(fits).cloned().context("the report is missing")
    }

    /// Waits until the agent has reported an object as healthy.
    pub async fn wait_until_healthy(&self, sequence: SequenceId) -> Result<Report> {
        self.reported(sequence, Transition::Healthy).await
    }

    // ── internals ──

    fn change<T>(&self, change: impl FnOnce(&mut Script) -> T) -> T {
        let mut result = None;
        self.script.send_modify(|script| result = Some(change(script)));
        result.expect("the change was made just above")
    }

    async fn wait(&self, what: &str, mut until: impl FnMut(&Script) -> bool) -> Result<()> {
        let mut watched = self.script.subscribe();
        let found = tokio::time::timeout(AGENT_TIMEOUT, watched.wait_for(|script| until(script))).await;
        if found.is_err() {
            let script = self.script.borrow();
            anyhow::bail!(
                "timed out after {AGENT_TIMEOUT:?} waiting for: {what}\nsent: {:?}, correct: {}, last tag: {:?}, handed out: {:?}, \
                 reports: {:#?}",
                script.sent,
                script.truths,
                script.asked,
                script.handed_out,
                script.reports
            );
        }
        Ok(())
    }
}
