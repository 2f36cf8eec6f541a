//! A broker with a rollout under way that has reached half of a large fleet: reading its evidence, and polls meanwhile.
//!
//! One replica at a time is the engine of the rollouts. Polls are measured at a replica that is not, and at one that is: the
//! latter reads the evidence and judges the agents every few seconds, whether or not any agent polls.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::objects::Provenance;
use brokkr_api::rollouts::Share;
use brokkr_api::{AgentId, SequenceId, StackId};
use brokkr_broker::domain::release::{Clause, place};
use brokkr_broker::domain::windows::Lanes;
use brokkr_broker::store::leases::{Lease, lease_release_on_conn, lease_take_on_conn};
use brokkr_broker::store::outbox::{OutboxNotification, outbox_insert_on_conn};
use brokkr_broker::store::rollouts::{
    rollout_contacts_on_conn, rollout_evidence_on_conn, rollout_under_way_on_conn,
};
use brokkr_broker::tasks::rollouts::LEASE;
use brokkr_client::IdempotencyKey;
use brokkr_client::rollouts::RolloutOptions;
use brokkr_swarm::Identity;
use brokkr_testkit::{Attempt, eventually};
use http::HeaderValue;
use http::header::IF_NONE_MATCH;
use sqlx::types::Json;
use sqlx::{Postgres, Transaction};
use uuid::Uuid;

use crate::broker::args::BrokerArgs;
use crate::broker::environment::{Engine, Environment, PATIENCE};
use crate::broker::figures::Figures;
use crate::broker::million::{fill, restart};
use crate::broker::polls::{poll_cost, second_polls, sql_per_poll};

/// In the future, so that the agents stay present for the whole measurement.
const LAST_SEEN: &str = "now() + interval '1 day'";
/// The mark that half of the agents are below.
const HALF: u64 = u64::MAX / 2;
/// Smaller than half, so that the rollout soaks, and changes nothing for the agents meanwhile.
const WAVE: Share = Share::Percent(40);
const SOAK: Duration = Duration::from_secs(24 * 3600);
const LEASE_SECONDS: f64 = 24.0 * 3600.0;
const YAML: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: VERSION\n";

pub async fn run(args: &BrokerArgs, engine: &Engine, figures: &mut Figures) -> Result<()> {
    let environment = Environment::start(args, engine).await?;
    // One less, because the stack that is rolled out counts, too: a project has a quota.
    let filled = BrokerArgs { stacks: args.stacks.saturating_sub(1).max(1), ..args.clone() };
    fill(&filled, &environment, LAST_SEEN).await?;
    restart(&environment).await?;
    let stack = environment.stack("rollout", "*").await?.id;
    environment.submit("rollout", YAML.replace("VERSION", "one")).await?;
    let agents = environment.enrol(args.agents).await?;
    // Otherwise the broker would take the first step on its own.
    let lease = take_lease(&environment).await?;
    let staged = Staged::begin(&environment, stack, &agents).await?;
    staged.measure_evidence(args, figures).await?;
    sql_per_poll(args, &environment, &agents, "rollout_sql_per_poll", figures).await?;
    let polled = &agents[..agents.len().min(args.connections)];
    staged.measure_polls(args, polled, lease, figures).await?;
    environment.linger(args).await
}

/// A version that is being rolled out.
struct Staged<'a> {
    environment: &'a Environment<'a>,
    stack: StackId,
    version: SequenceId,
    /// An agent that gets the version.
    witness: &'a Identity,
}

impl<'a> Staged<'a> {
    /// Begins a rollout, and releases the version to half of the agents, which are healthy with it.
    async fn begin(environment: &'a Environment<'a>, stack: StackId, agents: &'a [Identity]) -> Result<Self> {
        let options = RolloutOptions { waves: vec![WAVE, Share::ALL], soak: Some(SOAK), now: None };
        let (yaml, key) = (YAML.replace("VERSION", "two"), IdempotencyKey::generate());
        let admin = &environment.admin;
        let submitted = admin.submit_as("rollout", yaml, &Provenance::default(), &options, &key).await?;
        let version = submitted.sequence_id;
        let seed: i64 = sqlx::query_scalar("SELECT seed FROM rollouts WHERE sequence_id = $1")
            .bind(version.0)
            .fetch_one(&environment.pool)
            .await
            .context("the version is not rolled out in waves")?;
        let is_reached = |agent: AgentId| place(agent, seed.cast_unsigned()) <= HALF;
        let witness = agents.iter().find(|agent| is_reached(agent.agent));
        let witness = witness.context("the version reaches none of the agents that poll")?;
        let staged = Self { environment, stack, version, witness };
        let everyone: Vec<Uuid> =
            sqlx::query_scalar("SELECT id FROM agents").fetch_all(&environment.pool).await?;
        staged.release(everyone.into_iter().filter(|id| is_reached(AgentId(*id))).collect()).await?;
        Ok(staged)
    }

    /// Raises the mark, and stores the reports of the agents that it reaches.
    async fn release(&self, reached: Vec<Uuid>) -> Result<()> {
        let mut transaction = self.environment.pool.begin().await?;
        sqlx::query(
            "INSERT INTO stack_status (project, stack_id, agent_id, sequence_id, transition, reason, message, objects,
                                       hops, ready, total, at, agent_name)
             SELECT $1, $2, a.id, $3, 'healthy', '', '', '[]', jsonb_build_object('reported', now()), 1, 1, now(), a.name
             FROM unnest($4::uuid[]) AS reached (id) JOIN agents a USING (id)",
        )
        .bind(DEFAULT_PROJECT)
        .bind(self.stack.0)
        .bind(self.version.0)
        .bind(reached)
        .execute(&mut *transaction)
        .await?;
        sqlx::query(
            "INSERT INTO rollout_raises (project, stack_id, sequence_id, number, upto) VALUES ($1, $2, $3, 0, $4::numeric)",
        )
        .bind(DEFAULT_PROJECT)
        .bind(self.stack.0)
        .bind(self.version.0)
        .bind(HALF.to_string())
        .execute(&mut *transaction)
        .await?;
        sqlx::query("UPDATE rollouts SET clauses = $2, revision = revision + 1 WHERE sequence_id = $1")
            .bind(self.version.0)
            .bind(Json([Clause { selector: None, lanes: Lanes::default(), upto: HALF }]))
            .execute(&mut *transaction)
            .await?;
        self.commit(transaction).await?;
        // Now, and not while something is measured.
        sqlx::query("VACUUM (ANALYZE) agents, stack_status").execute(&self.environment.pool).await?;
        Ok(())
    }

    /// Begins the rollout again, or ends it without a trace in the index.
    async fn set_under_way(&self, under_way: bool) -> Result<()> {
        let mut transaction = self.environment.pool.begin().await?;
        sqlx::query("UPDATE stacks SET staged_sequence_id = $3 WHERE project = $1 AND id = $2")
            .bind(DEFAULT_PROJECT)
            .bind(self.stack.0)
            .bind(under_way.then_some(self.version.0))
            .execute(&mut *transaction)
            .await?;
        self.commit(transaction).await
    }

    /// Commits a change of the version that the witness gets, and waits until the broker knows it.
    async fn commit(&self, mut transaction: Transaction<'_, Postgres>) -> Result<()> {
        let before = self.etag().await?;
        let notification = OutboxNotification::Stack(self.stack);
        outbox_insert_on_conn(&mut transaction, DEFAULT_PROJECT, notification).await?;
        transaction.commit().await?;
        eventually(PATIENCE, "the broker to know the change", async || match self.etag().await {
            Ok(now) if now != before => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        })
        .await
    }

    /// Returns the tag of the witness's envelope.
    async fn etag(&self) -> Result<Option<HeaderValue>> {
        let next = self.environment.first_poll(self.witness).await?;
        Ok(next.headers().get(IF_NONE_MATCH).cloned())
    }

    /// Measures what the engine reads before it judges the agents.
    async fn measure_evidence(&self, args: &BrokerArgs, figures: &mut Figures) -> Result<()> {
        let mut connection = self.environment.pool.acquire().await?;
        let (mut contacts_millis, mut evidence_millis, mut found) = (Vec::new(), Vec::new(), (0, 0));
        for _ in 0..args.rounds {
            let begun = Instant::now();
            let contacts = rollout_contacts_on_conn(&mut connection).await?;
            contacts_millis.push(begun.elapsed().as_secs_f64() * 1e3);
            let begun = Instant::now();
            let rollout = rollout_under_way_on_conn(&mut connection, DEFAULT_PROJECT, self.stack).await?;
            let rollout = rollout.context("the rollout has ended")?;
            let evidence = rollout_evidence_on_conn(&mut connection, &rollout, &contacts).await?;
            evidence_millis.push(begun.elapsed().as_secs_f64() * 1e3);
            found = (contacts.absent.len(), evidence.reports.len());
        }
        let (absent, reports) = found;
        figures
            .add_rounds("rollout_contacts_ms", &contacts_millis)
            .note(format!("{absent} absent agents are found, once for all rollouts"));
        figures
            .add_rounds("rollout_evidence_ms", &evidence_millis)
            .note(format!("{reports} reports are read"));
        Ok(())
    }

    /// Measures polls without the rollout, with it, and with it at the replica that is the engine.
    async fn measure_polls(
        &self,
        args: &BrokerArgs,
        agents: &[Identity],
        mut lease: Lease,
        figures: &mut Figures,
    ) -> Result<()> {
        let (mut without, mut with, mut as_engine) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..args.rounds {
            self.set_under_way(false).await?;
            without.push(self.poll_micros(args, agents).await?);
            if round > 0 {
                lease = take_lease(self.environment).await?;
            }
            self.set_under_way(true).await?;
            with.push(self.poll_micros(args, agents).await?);
            let mut connection = self.environment.pool.acquire().await?;
            lease_release_on_conn(&mut connection, lease).await?;
            drop(connection);
            as_engine.push(self.poll_micros(args, agents).await?);
        }
        figures.add_rounds("rollout_poll_cpu_micros", &with).note("with a rollout under way");
        figures.add_rounds("rollout_poll_without_cpu_micros", &without).note("without a rollout");
        figures
            .add_ratios("rollout_poll_cpu_ratio", &with, &without)
            .at_most(1.05)
            .note("of CPU per poll answered at once with 304, at a replica that is not the engine");
        figures
            .add_ratios("rollout_poll_engine_cpu_ratio", &as_engine, &without)
            .note("at the replica that is the engine, with the CPU time of its looks at the agents");
        Ok(())
    }

    async fn poll_micros(&self, args: &BrokerArgs, agents: &[Identity]) -> Result<f64> {
        let environment = self.environment;
        let requests = second_polls(environment, agents).await?;
        let broker = environment.address()?;
        let cost = poll_cost(args, environment, (&broker, environment.pid()?), &requests, false).await?;
        Ok(cost.micros)
    }
}

/// Takes the lease of the engine, so that the broker is not the engine. A broker that was keeps the lease for some seconds
/// after the last rollout.
async fn take_lease(environment: &Environment<'_>) -> Result<Lease> {
    let holder = Uuid::new_v4();
    eventually(PATIENCE, "the lease of the engine to be free", async || {
        match try_lease(environment, holder).await {
            Ok(Some(lease)) => Attempt::Done(lease),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await
}

async fn try_lease(environment: &Environment<'_>, holder: Uuid) -> Result<Option<Lease>> {
    let mut connection = environment.pool.acquire().await?;
    Ok(lease_take_on_conn(&mut connection, LEASE, holder, LEASE_SECONDS).await?)
}
