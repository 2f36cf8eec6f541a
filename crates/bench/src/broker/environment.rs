//! The environment of the broker's measurements: one PostgreSQL with fsync on; a database and a replica for each part.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brokkr_api::ids::Checksum;
use brokkr_api::objects::Provenance;
use brokkr_api::protocol::holds_digest;
use brokkr_api::stacks::{PutStack, Stack, StackTargets};
use brokkr_api::{InstallationId, Labels, PositionToken, SequenceId};
use brokkr_client::{Client, Credential, IdempotencyKey, RetryPolicy};
use brokkr_swarm::wire::Dialer;
use brokkr_swarm::{Config, Endpoint, Identity, Poll, Transport, enrol};
use brokkr_testkit::postgres::Durability;
use brokkr_testkit::tls::Authority;
use brokkr_testkit::{Attempt, Broker, Database, Postgres, Scratch, ShowLog, broker, eventually};
use futures::{StreamExt as _, TryStreamExt as _};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use super::args::BrokerArgs;
use super::closed_loop::NextRequest;
use super::proc;

/// A bound for every wait, which only a hang reaches.
pub const PATIENCE: Duration = Duration::from_secs(600);

pub struct Engine {
    postgres: Postgres,
    /// Connections to another database, so that their statements are not counted.
    watch: PgPool,
}

impl Engine {
    pub async fn start() -> Result<Self> {
        let settings = ["shared_preload_libraries=pg_stat_statements", "max_wal_size=4GB"];
        let postgres = Postgres::start_with_settings(Durability::Full, &settings).await?;
        let watch = PgPoolOptions::new().max_connections(2).connect(&postgres.url("postgres")).await?;
        sqlx::query("CREATE EXTENSION pg_stat_statements").execute(&watch).await?;
        Ok(Self { postgres, watch })
    }

    /// Returns the bytes of write-ahead log so far.
    pub async fn wal_bytes(&self) -> Result<f64> {
        let bytes: i64 = sqlx::query_scalar("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
            .fetch_one(&self.watch)
            .await?;
        Ok(bytes as f64)
    }

    /// Returns the user and system time of all its processes so far.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let pid = self.postgres.server().and_then(|server| server.process().pid());
        proc::cpu_seconds_of_family(pid.context("PostgreSQL is not running")?)
    }
}

/// Statements that a database has executed.
#[derive(Clone, Copy, Debug)]
pub struct Statements {
    pub presence: i64,
    pub others: i64,
}

pub struct Environment<'a> {
    // Dropped in this order: clients before the servers.
    pub admin: Client,
    pub pool: PgPool,
    pub broker: Broker,
    pub token: String,
    pub installation: InstallationId,
    pub authority: Authority,
    pub scratch: Scratch,
    pub database: Database,
    pub engine: &'a Engine,
    /// Database connections of a replica.
    connections: u32,
    more: Vec<String>,
}

impl<'a> Environment<'a> {
    pub async fn start(args: &BrokerArgs, engine: &'a Engine) -> Result<Self> {
        Self::start_with(args.database_connections, engine, &[]).await
    }

    /// Starts with this many database connections, and these further arguments, for each replica.
    pub async fn start_with(connections: u32, engine: &'a Engine, more: &[&str]) -> Result<Self> {
        let database = engine.postgres.database().await?;
        let url = database.url();
        broker::migrate(&url).await?;
        // Every agent gets a version at once: rollouts have measurements of their own.
        broker::policy_set(&url, &serde_json::json!({ "staged": false })).await?;
        let token = broker::bootstrap(&url).await?;
        let authority = Authority::new("brokkr-bench")?;
        let broker = start_replica(&url, &authority, connections, more).await?;
        let admin = Client::builder(broker.url().parse()?)
            .ca_pem(authority.pem())
            .credential(Credential::Token(token.clone().into()))
            .retry(RetryPolicy::up_to(Duration::from_secs(60)))
            .build()?;
        let pool = PgPoolOptions::new().max_connections(connections).connect(&url).await?;
        let installation = sqlx::query_scalar("SELECT id FROM installation").fetch_one(&pool).await?;
        Ok(Self {
            admin,
            pool,
            broker,
            token,
            installation: InstallationId(installation),
            authority,
            scratch: Scratch::new("bench-broker")?,
            database,
            engine,
            connections,
            more: more.iter().map(|argument| (*argument).to_owned()).collect(),
        })
    }

    /// Starts another replica on the same database.
    pub async fn replica(&self) -> Result<Broker> {
        let more: Vec<&str> = self.more.iter().map(String::as_str).collect();
        start_replica(&self.database.url(), &self.authority, self.connections, &more).await
    }

    pub fn pid(&self) -> Result<u32> {
        self.broker.pid().context("the broker is not running")
    }

    pub fn address(&self) -> Result<brokkr_swarm::Broker> {
        brokkr_swarm::Broker::at(&self.broker.url().parse()?)
    }

    pub fn authorities(&self) -> Vec<u8> {
        self.authority.pem().into_bytes()
    }

    /// Adds agents and waits until the broker knows them. Each has the label `swarm=yes`, the first ten `few=yes`.
    pub async fn enrol(&self, count: usize) -> Result<Vec<Identity>> {
        let agents = enrol::enrol(&self.pool, 1, count, labels).await?;
        let last = agents.last().context("no agents were requested")?;
        // The broker reads the outbox by transactions: when it knows the last agent, it knows all.
        eventually(PATIENCE, "the broker to know all agents", async || match self.first_poll(last).await {
            Ok(_) => Attempt::Done(()),
            Err(error) => Attempt::NotYet(format!("{error:#}")),
        })
        .await?;
        Ok(agents)
    }

    /// Sends the first poll of an agent, and returns a second one, which gets 304 as long as nothing changes.
    pub async fn first_poll(&self, agent: &Identity) -> Result<NextRequest> {
        let broker = self.address()?;
        let dialer = Dialer::new(&self.authorities(), Transport::Own, 1, 1)?;
        let (assertion, _) = agent.read_assertion(self.installation, jiff::Timestamp::now().as_second())?;
        let endpoint = Endpoint {
            broker: &broker,
            transport: Transport::Own,
            agent: agent.agent,
            assertion: &assertion,
        };
        let mut poll = Poll {
            position: PositionToken::default(),
            holds: holds_digest([]),
            session: agent.session,
            etag: None,
            wait_seconds: 0,
        };
        let answer = dialer.connect(&broker, 0).await?.exchange(endpoint.poll(&poll)?).await?;
        ensure!(answer.status.is_success(), "{}: {}", answer.status, String::from_utf8_lossy(&answer.body));
        poll.etag = Some(Checksum::of(&answer.body));
        Ok(endpoint.poll(&poll)?)
    }

    pub fn swarm(&self, agents: Vec<Identity>) -> Result<Config> {
        Ok(Config::new(vec![self.address()?], self.authorities(), self.installation, agents))
    }

    pub async fn stack(&self, name: &str, selector: &str) -> Result<Stack> {
        self.admin.put_stack(name, &PutStack::default()).await?;
        let targets = StackTargets { agents: Vec::new(), selectors: vec![selector.parse()?] };
        Ok(self.admin.put_stack_targets(name, &targets).await?)
    }

    /// Creates many stacks for all agents, without content.
    pub async fn stacks(&self, count: usize) -> Result<Vec<Stack>> {
        let made = futures::stream::iter(0..count)
            .map(async |number| self.stack(&format!("web-{number}"), "swarm=yes").await);
        made.buffered(16).try_collect().await
    }

    pub async fn submit(&self, stack: &str, yaml: String) -> Result<SequenceId> {
        Ok(self
            .admin
            .submit(stack, yaml, &Provenance::default(), &IdempotencyKey::generate())
            .await?
            .sequence_id)
    }

    /// Returns the statements that this database has executed so far.
    pub async fn statements(&self) -> Result<Statements> {
        let (presence, others): (i64, i64) = sqlx::query_as(
            "SELECT coalesce(sum(calls) FILTER (WHERE query ~ 'SET last_seen_at'), 0)::bigint,
                    coalesce(sum(calls) FILTER (WHERE query !~ 'SET last_seen_at'), 0)::bigint
             FROM pg_stat_statements JOIN pg_database d ON d.oid = dbid WHERE d.datname = $1",
        )
        .bind(self.database.name())
        .fetch_one(&self.engine.watch)
        .await?;
        Ok(Statements { presence, others })
    }

    /// Waits for a profiler to be attached.
    pub async fn linger(&self, args: &BrokerArgs) -> Result<()> {
        if let Some(time) = args.linger {
            eprintln!("the broker is process {}; waiting {time:?}", self.pid()?);
            tokio::time::sleep(time).await;
        }
        Ok(())
    }
}

async fn start_replica(
    database_url: &str,
    authority: &Authority,
    connections: u32,
    more: &[&str],
) -> Result<Broker> {
    let connections = connections.to_string();
    let own = ["--database-connections", &connections, "--rate-limits", "false"];
    Broker::start(database_url, authority, ShowLog::OnPanic, &[&own, more].concat()).await
}

fn labels(number: usize) -> Labels {
    let few = if number < 10 { "yes" } else { "no" };
    Labels::from([("swarm".into(), "yes".into()), ("few".into(), few.into())])
}
