//! Two replicas that share a PostgreSQL, each through its own proxy, and a load of writers and agents.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brokkr_api::SequenceId;
use brokkr_client::{Client, Credential};
use brokkr_testkit::broker::{bootstrap, migrate, policy_set};
use brokkr_testkit::history::{Outcome, Recorder, Truth, check};
use brokkr_testkit::postgres::{Durability, Server};
use brokkr_testkit::process::run;
use brokkr_testkit::programs::program;
use brokkr_testkit::tls::Authority;
use brokkr_testkit::{Attempt, Broker, Database, Launch, PgProxy, Postgres, ShowLog, eventually};
use sqlx::PgConnection;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::agents::FakeAgent;
use crate::clients::{Caller, ChangeRequest, STACKS, write_until_stopped};
use crate::{RECOVERY_TIMEOUT, WAIT_TIMEOUT};

const WRITERS: usize = 3;
const AGENTS: [(&str, &str); 4] = [("one", "a"), ("two", "b"), ("three", "a"), ("four", "b")];

/// Arguments of every replica. They allow a webhook at an address where nothing listens: only the stored messages
/// matter here.
const COMMON_ARGUMENTS: &[&str] = &[
    "--drain-grace=0s",
    "--secret-key=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
    "--webhook-networks=127.0.0.0/8",
    "--webhook-http",
    "--webhook-any-port",
];

/// Options of a row.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Bytes of one submission.
    pub bytes: usize,
    /// Further arguments of both replicas.
    pub arguments: &'static [&'static str],
}

impl Default for Setup {
    fn default() -> Self {
        Self { bytes: 200, arguments: &[] }
    }
}

pub struct BrokerPair {
    // Dropped in this order: the load, the replicas, their proxies, the database, the server.
    load: JoinSet<Result<()>>,
    pub replicas: [Broker; 2],
    pub proxies: [PgProxy; 2],
    pub agents: Vec<FakeAgent>,
    pub admins: Vec<Client>,
    pub caller: Caller,
    pub authority: Authority,
    pub recorder: Arc<Recorder>,
    pub database: Database,
    pub postgres: Postgres,
    /// What was lost up to this sequence id was settled by an operator.
    pub settled_below: SequenceId,
    stop_writers: CancellationToken,
    stop_agents: CancellationToken,
    setup: Setup,
}

impl BrokerPair {
    pub async fn start() -> Result<Self> {
        Self::start_with(Setup::default(), async |_, _| Ok(())).await
    }

    /// Starts the pair; `prepare` can change the migrated database before the replicas start.
    pub async fn start_with(
        setup: Setup,
        prepare: impl AsyncFnOnce(&Postgres, &Database) -> Result<()>,
    ) -> Result<Self> {
        let postgres = Postgres::start_with(Durability::Full).await?;
        let database = postgres.database().await?;
        migrate(&database.url()).await?;
        // The agents of these tests report nothing.
        policy_set(&database.url(), &serde_json::json!({ "staged": false })).await?;
        let token = bootstrap(&database.url()).await?;
        prepare(&postgres, &database).await?;
        let authority = Authority::new("brokkr-test-broker")?;
        let port = postgres.facts().port;
        let proxies = [PgProxy::in_front_of(port).await?, PgProxy::in_front_of(port).await?];
        let urls = proxies.each_ref().map(|proxy| proxy.url(database.name()));
        let arguments = [COMMON_ARGUMENTS, setup.arguments].concat();
        let start = |url| Broker::start(url, &authority, ShowLog::Always, &arguments);
        let (one, two) = tokio::try_join!(start(&urls[0]), start(&urls[1]))?;
        let replicas = [one, two];
        let recorder = Arc::new(Recorder::default());
        let admins = replicas
            .iter()
            .map(|replica| {
                Client::builder(replica.url().parse()?)
                    .ca_pem(authority.pem())
                    .credential(Credential::Token(token.clone().into()))
                    .build()
                    .context("cannot build a client")
            })
            .collect::<Result<Vec<_>>>()?;
        let caller = Caller {
            http: replicas.iter().map(|replica| replica.http().clone()).collect(),
            base: replicas.iter().map(Broker::url).collect(),
            token,
            recorder: Arc::clone(&recorder),
            written: Arc::default(),
        };
        let hook = serde_json::json!({ "name": "everything", "url": "http://127.0.0.1:9/" });
        let answer = caller.request(0, reqwest::Method::POST, "webhooks").json(&hook).send().await?;
        ensure!(answer.status().is_success(), "cannot create the webhook: {}", answer.text().await?);
        let mut agents = Vec::new();
        for (name, group) in AGENTS {
            agents.push(FakeAgent::join(&admins, name, group, Arc::clone(&recorder)).await?);
        }
        for stack in STACKS {
            caller.put_stack(0, stack).await?;
        }
        for (stack, selector) in STACKS.into_iter().zip(["group=a", "group=b", "group=a", "group=b"]) {
            caller.send_until_known(0, ChangeRequest::target(stack, &[selector])).await;
        }
        Ok(Self {
            load: JoinSet::new(),
            replicas,
            proxies,
            agents,
            admins,
            caller,
            authority,
            recorder,
            database,
            postgres,
            settled_below: SequenceId(0),
            stop_writers: CancellationToken::new(),
            stop_agents: CancellationToken::new(),
            setup,
        })
    }

    /// Starts writers and agents, and waits until both replicas make progress.
    pub async fn start_load(&mut self) -> Result<()> {
        let seed = brokkr_testkit::seed();
        for writer in 0..WRITERS {
            let (caller, stop) = (self.caller.clone(), self.stop_writers.clone());
            self.load.spawn(write_until_stopped(caller, writer, seed, self.setup.bytes, stop));
        }
        for (number, agent) in self.agents.iter().enumerate() {
            self.load.spawn(agent.clone().run(number, self.stop_agents.clone()));
        }
        self.wait_for_progress(3).await
    }

    /// Waits until both replicas have acknowledged `count` more changes each.
    pub async fn wait_for_progress(&self, count: usize) -> Result<()> {
        self.wait_for_progress_within(count, RECOVERY_TIMEOUT).await
    }

    pub async fn wait_for_progress_within(&self, count: usize, deadline: Duration) -> Result<()> {
        let at = || [0, 1].map(|replica| self.recorder.acknowledged_at(replica));
        let before = at();
        eventually(deadline, &format!("both replicas to acknowledge {count} more"), async || {
            let now = at();
            if now.iter().zip(before).all(|(now, before)| *now >= before + count) {
                Attempt::Done(())
            } else {
                Attempt::NotYet(format!("{before:?} became {now:?}"))
            }
        })
        .await
    }

    /// Waits until one replica has acknowledged `count` more changes.
    pub async fn wait_for_progress_at(&self, replica: usize, count: usize) -> Result<()> {
        let before = self.recorder.acknowledged_at(replica);
        eventually(RECOVERY_TIMEOUT, &format!("replica {replica} to acknowledge {count} more"), async || {
            self.recorder.acknowledged_at(replica) >= before + count
        })
        .await
    }

    /// Ends writers and agents at once, whatever they wait for.
    pub async fn abort_load(&mut self) {
        self.load.shutdown().await;
    }

    /// Kills the primary under load, promotes the standby, and connects both replicas to it. With `restart`, the replicas are
    /// killed as well and know nothing of the former primary.
    pub async fn fail_over_to(&mut self, standby: Postgres, restart: bool) -> Result<()> {
        self.server()?.kill9().await?;
        if restart {
            self.replicas.iter().for_each(|replica| replica.kill9());
        }
        standby.server().context("a private server")?.promote().await?;
        for proxy in &self.proxies {
            proxy.redirect(standby.facts().port);
        }
        self.database = self.database.at(&standby);
        self.postgres = standby;
        if restart {
            for replica in &self.replicas {
                replica.start_again().await?;
            }
        }
        Ok(())
    }

    /// Waits until both replicas answer the polls of all agents.
    pub async fn wait_until_served(&self) -> Result<()> {
        eventually(RECOVERY_TIMEOUT, "both replicas to serve again", async || {
            for agent in &self.agents {
                for replica in 0..2 {
                    agent.view(replica).await?;
                }
            }
            anyhow::Ok(())
        })
        .await
    }

    /// Raises the epoch, as an operator does after a restore.
    pub async fn raise_epoch(&self) -> Result<()> {
        let raise = Launch::new("brokkr-broker", program("brokkr-broker")?)
            .args(["epoch", "raise", "--database-url"])
            .arg(self.database.url());
        run(raise, WAIT_TIMEOUT).await?.ok()?;
        Ok(())
    }

    pub fn server(&self) -> Result<&Server> {
        self.postgres.server().context("a private server")
    }

    /// Connects to the database without a proxy.
    pub async fn connect_directly(&self) -> Result<PgConnection> {
        self.database.connect().await
    }

    /// Waits until the replica reports a problem with its database. It stays ready, because polls are answered from memory.
    pub async fn wait_until_degraded(&self, replica: usize) -> Result<()> {
        eventually(RECOVERY_TIMEOUT, &format!("replica {replica} to report its problem"), async || match self
            .caller
            .get(replica, "/readyz")
            .await
        {
            Ok((_, health)) if health["causes"][0]["part"] == "database" => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        })
        .await
    }

    /// Waits until the replica is ready without restrictions.
    pub async fn wait_until_ready(&self, replica: usize, deadline: Duration) -> Result<()> {
        eventually(deadline, &format!("replica {replica} to be ready"), async || {
            match self.caller.get(replica, "/readyz").await {
                Ok((200, health)) if health["whole"] == true => Attempt::Done(()),
                other => Attempt::NotYet(format!("{other:?}")),
            }
        })
        .await
    }

    /// Counts the attempts with an unknown outcome that contains this text.
    pub fn unknown_outcomes(&self, part: &str) -> usize {
        (0..2).map(|replica| self.unknown_outcomes_at(replica, part)).sum()
    }

    pub fn unknown_outcomes_at(&self, replica: usize, part: &str) -> usize {
        let history = self.recorder.snapshot();
        let attempts = history.operations.iter().flat_map(|operation| &operation.attempts);
        let counts = |outcome: &Outcome| matches!(outcome, Outcome::Unknown(why) if why.contains(part));
        attempts.filter(|attempt| attempt.replica == replica && counts(&attempt.outcome)).count()
    }

    /// Ends the row: every client knows its outcome, every replica is consistent, and the history is checked.
    pub async fn finish(mut self) -> Result<()> {
        self.check_history().await
    }

    /// Like [`Self::finish`], for a pair that is used again afterwards.
    pub async fn check_history(&mut self) -> Result<()> {
        for proxy in &self.proxies {
            proxy.heal();
        }
        self.stop_writers.cancel();
        let writers = WRITERS.min(self.load.len());
        for _ in 0..writers {
            let ended = tokio::time::timeout(WAIT_TIMEOUT, self.load.join_next()).await;
            let ended = ended.context("not every client has learned the outcome of its change")?;
            ended.context("a writer is missing")???;
        }
        self.wait_until_consistent().await?;
        self.stop_agents.cancel();
        while let Some(ended) = tokio::time::timeout(WAIT_TIMEOUT, self.load.join_next())
            .await
            .context("an agent did not stop")?
        {
            ended??;
        }
        self.wait_until_audit_chained().await?;
        let mut truth = Truth::read(&mut self.connect_directly().await?).await?;
        for agent in &self.agents {
            for replica in 0..self.replicas.len() {
                truth.views.push(agent.view(replica).await?);
            }
        }
        let history = self.recorder.snapshot();
        let attempts: usize = history.operations.iter().map(|operation| operation.attempts.len()).sum();
        println!(
            "history: {} changes and batches, {} acknowledged, {attempts} attempts; {} objects, {} events",
            history.operations.len(),
            history.acknowledged(),
            truth.objects.len(),
            truth.events.len()
        );
        let violations: Vec<String> = check(&history, &truth).iter().map(ToString::to_string).collect();
        println!("violations: {}", violations.len());
        ensure!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
        (self.stop_writers, self.stop_agents) = (CancellationToken::new(), CancellationToken::new());
        Ok(())
    }

    /// S20: waits until every entry of the audit log is in the chain, and verifies the chain.
    async fn wait_until_audit_chained(&self) -> Result<()> {
        let mut direct = self.connect_directly().await?;
        eventually(WAIT_TIMEOUT, "the whole audit log to be chained", async || {
            let left: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM audit a WHERE NOT EXISTS (SELECT FROM audit_chain c WHERE c.audit_id = a.id)",
            )
            .fetch_one(&mut direct)
            .await?;
            ensure!(left == 0, "{left} entries are not in the chain");
            Ok(())
        })
        .await?;
        let (status, verdict) = self.caller.get(0, "audit/verify").await?;
        ensure!(status == 200 && verdict["broken"].is_null(), "S20: {status} {verdict}");
        Ok(())
    }

    /// Waits until every replica serves every agent the state of the database.
    pub async fn wait_until_consistent(&self) -> Result<()> {
        let mut direct = self.connect_directly().await?;
        eventually(WAIT_TIMEOUT, "every replica to serve every agent its stacks", async || {
            let truth = Truth::read(&mut direct).await?;
            for agent in &self.agents {
                let wanted = truth.wanted(agent.id);
                for replica in 0..self.replicas.len() {
                    let view = agent.view(replica).await.with_context(|| format!("replica {replica}"))?;
                    ensure!(
                        view.stacks == wanted,
                        "L1: replica {replica} serves {} {:?}, not {wanted:?}",
                        agent.name,
                        view.stacks
                    );
                }
            }
            Ok(())
        })
        .await
    }
}
