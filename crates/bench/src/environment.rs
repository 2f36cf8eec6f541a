//! The environment of the agent's measurements: one API server, one PostgreSQL, one broker, one agent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use brokkr_api::SequenceId;
use brokkr_api::objects::Provenance;
use brokkr_api::report::Hops;
use brokkr_api::stacks::{PutStack, StackTargets};
use brokkr_api::status::{StackStatus, State};
use brokkr_client::{Client as Broker, Credential, IdempotencyKey, PageQuery, RetryPolicy};
use brokkr_testkit::audit::{Mark, Request};
use brokkr_testkit::{Agent, AgentOptions, Attempt, Cluster, Fleet, Postgres, Scratch, ShowLog, eventually};
use jiff::Timestamp;

use crate::args::AgentArgs;
use crate::bare::Bare;
use crate::workload::Workload;

/// A bound for every wait, which only a hang reaches.
pub const PATIENCE: Duration = Duration::from_secs(900);
const AGENT: &str = "bench";
/// An agent that has sent no request to the API server for this long is idle.
const IDLE_AFTER: Duration = Duration::from_secs(3);

pub struct Environment {
    // Dropped in this order: clients before the servers.
    pub agent: Agent,
    pub broker: Broker,
    pub bare: Bare,
    pub admin: kube::Client,
    pub fleet: Fleet,
    pub cluster: Cluster,
    pub scratch: Scratch,
    agent_log: Option<std::path::PathBuf>,
}

/// A submission, and when it began.
#[derive(Clone, Copy, Debug)]
pub struct Submission {
    pub sequence: SequenceId,
    pub at: Timestamp,
    pub started: Instant,
    /// How long the broker took to accept it.
    pub accepted_s: f64,
    pub mark: Mark,
}

impl Environment {
    pub async fn start(args: &AgentArgs) -> Result<Self> {
        let broker = async {
            let postgres = Arc::new(Postgres::start().await?);
            Fleet::start_on(postgres, ShowLog::OnPanic).await
        };
        let (fleet, cluster) = tokio::try_join!(Box::pin(broker), Cluster::api_only())?;
        let environment = match &args.keep_log {
            Some(_) => {
                vec![("BROKKR_LOG".to_owned(), "debug,hyper=info,rustls=info,h2=info,kube=info".into())]
            }
            None => Vec::new(),
        };
        let options = AgentOptions {
            namespace: Some("brokkr-system".into()),
            polling_interval: "30s".into(),
            arguments: args.agent_arguments.clone(),
            environment,
            ..AgentOptions::default()
        };
        let agent = fleet.join_with(AGENT, &[], &cluster, &options).await?;
        let broker = Broker::builder(fleet.broker.url().parse()?)
            .ca_pem(std::fs::read(fleet.broker.authority_file())?)
            .credential(Credential::Token(fleet.admin_token().to_owned().into()))
            .retry(RetryPolicy::up_to(Duration::from_secs(60)))
            .build()?;
        let admin = cluster.admin().await?;
        Ok(Self {
            bare: Bare::new(admin.clone(), args.in_flight),
            agent,
            broker,
            admin,
            fleet,
            cluster,
            scratch: Scratch::new("bench")?,
            agent_log: args.keep_log.clone(),
        })
    }

    /// Creates a stack that targets the agent, without content.
    pub async fn put_stack(&self, stack: &str) -> Result<()> {
        self.put_stack_on(stack, AGENT).await
    }

    pub async fn put_stack_on(&self, stack: &str, agent: &str) -> Result<()> {
        self.broker.put_stack(stack, &PutStack::default()).await?;
        let targets = StackTargets { agents: vec![agent.into()], selectors: Vec::new() };
        self.broker.put_stack_targets(stack, &targets).await?;
        Ok(())
    }

    pub async fn submit(&self, stack: &str, yaml: String) -> Result<Submission> {
        let mark = self.cluster.audit().mark()?;
        let (at, started) = (Timestamp::now(), Instant::now());
        let object =
            self.broker.submit(stack, yaml, &Provenance::default(), &IdempotencyKey::generate()).await?;
        let accepted_s = started.elapsed().as_secs_f64();
        Ok(Submission { sequence: object.sequence_id, at, started, accepted_s, mark })
    }

    /// Waits until the broker shows this sequence id as applied; returns the seconds since the submission.
    pub async fn applied(&self, stack: &str, submission: &Submission) -> Result<(f64, Hops)> {
        self.reached(stack, submission, "applied", |status| status.hops.applied.is_some()).await
    }

    /// Waits until the newest version of the stack is applied.
    pub async fn applied_newest(&self, stack: &str) -> Result<()> {
        eventually(PATIENCE, &format!("{stack} to be applied"), async || match self.status(stack).await {
            Ok(Some(status))
                if status.sequence_id == status.wanted_sequence_id && status.hops.applied.is_some() =>
            {
                Attempt::Done(())
            }
            other => Attempt::NotYet(format!("{other:?}")),
        })
        .await
    }

    /// Waits until the broker shows this sequence id as healthy; returns the seconds since the submission.
    pub async fn healthy(&self, stack: &str, submission: &Submission) -> Result<(f64, Hops)> {
        self.reached(stack, submission, "healthy", |status| status.state == State::Healthy).await
    }

    async fn reached(
        &self,
        stack: &str,
        submission: &Submission,
        what: &str,
        good: impl Fn(&StackStatus) -> bool,
    ) -> Result<(f64, Hops)> {
        let found =
            eventually(PATIENCE, &format!("{stack} to be {what}"), async || match self.status(stack).await {
                Ok(Some(status)) if status.state == State::Failed => Attempt::Done(Err(status)),
                Ok(Some(status)) if status.sequence_id == Some(submission.sequence) && good(&status) => {
                    Attempt::Done(Ok(status))
                }
                other => Attempt::NotYet(format!("{other:?}")),
            })
            .await?;
        let seconds = submission.started.elapsed().as_secs_f64();
        match found {
            Ok(status) => Ok((seconds, status.hops)),
            Err(status) => bail!("{stack} failed: {} {:?}", status.message, status.objects),
        }
    }

    async fn status(&self, stack: &str) -> Result<Option<StackStatus>> {
        Ok(self.broker.stack_status(stack, &PageQuery::default()).await?.items.into_iter().next())
    }

    /// Delivers a workload from nothing and waits until it is applied.
    pub async fn deliver(&self, stack: &str, workload: &Workload) -> Result<(Submission, f64, Hops)> {
        self.put_stack(stack).await?;
        let submission = self.submit(stack, workload.yaml()).await?;
        let (seconds, hops) = self.applied(stack, &submission).await?;
        Ok((submission, seconds, hops))
    }

    /// Deletes a stack with its namespaces, and waits until the agent has confirmed it.
    pub async fn remove(&self, stack: &str, prefix: &str) -> Result<()> {
        self.broker.delete_stack(stack).await?;
        let what = format!("{stack} to be removed");
        let gone = eventually(PATIENCE, &what, async || match self.status(stack).await {
            Ok(Some(status)) if status.state != State::Removed => Attempt::NotYet(format!("{status:?}")),
            Ok(_) => Attempt::Done(()),
            Err(error) => Attempt::NotYet(format!("{error:#}")),
        });
        // No namespace controller runs that would end the deletion.
        tokio::try_join!(gone, self.bare.finalize(prefix))?;
        Ok(())
    }

    /// Waits until the agent is idle.
    pub async fn wait_until_idle(&self) -> Result<()> {
        self.wait_until_idle_of(&self.agent).await
    }

    pub async fn wait_until_idle_of(&self, agent: &Agent) -> Result<()> {
        let mut last = (Instant::now(), self.cluster.audit().mark()?);
        eventually(PATIENCE, "the agent to be idle", async || {
            let requests = requests_of(agent, last.1).unwrap_or_default();
            if requests.is_empty() {
                return if last.0.elapsed() > IDLE_AFTER {
                    Attempt::Done(())
                } else {
                    Attempt::NotYet("idle, but not for long enough".into())
                };
            }
            if let Ok(mark) = self.cluster.audit().mark() {
                last = (Instant::now(), mark);
            }
            Attempt::NotYet(format!("{} requests", requests.len()))
        })
        .await
    }

    /// Returns the agent's requests to the API server since the mark, without watches.
    pub fn requests_since(&self, since: Mark) -> Result<Vec<Request>> {
        requests_of(&self.agent, since)
    }

    /// Copies the agent's log and the API server's audit log to the requested folder.
    pub fn keep_log(&self) -> Result<()> {
        if let Some(folder) = &self.agent_log {
            std::fs::create_dir_all(folder)?;
            std::fs::copy(self.agent.log_path(), folder.join("agent.log"))?;
            std::fs::copy(&self.cluster.facts().audit_log, folder.join("audit.log"))?;
        }
        Ok(())
    }
}

fn requests_of(agent: &Agent, since: Mark) -> Result<Vec<Request>> {
    let mut requests = agent.requests(since)?;
    requests.retain(|request| !request.is_watch());
    Ok(requests)
}

/// Returns the value of a line of an agent's `/proc/PID/status`, converted from KiB to MiB.
pub fn memory_mib(agent: &Agent, line: &str) -> Result<f64> {
    let pid = agent.pid().context("the agent is not running")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let found = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let kib = found.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kib.with_context(|| format!("no {line} in the status of the agent"))? / 1024.0)
}
