//! The swarm against a real broker: every agent gets its own stacks, and every report exists once.

use std::time::{Duration, Instant};

use anyhow::Result;
use brokkr_api::objects::Provenance;
use brokkr_api::stacks::{PutStack, StackTargets};
use brokkr_api::{InstallationId, Labels};
use brokkr_client::{Client, Credential, IdempotencyKey, RetryPolicy};
use brokkr_swarm::{
    BadUpdates, Broker, Config, EventKind, Failures, Identity, Swarm, Transport, enrol, files, join,
};
use brokkr_testkit::{Fleet, eventually};
use sqlx::PgPool;

const TIMEOUT: Duration = Duration::from_secs(120);
const YAML: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: greeting\n  namespace: default\n";

struct Fixture {
    fleet: Fleet,
    admin: Client,
    pool: PgPool,
}

impl Fixture {
    async fn open() -> Result<Self> {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        files::raise()?;
        // For a moment, the broker does not know the agents that are added to the database. Its rate limits
        // would take their requests for guessed credentials.
        let fleet = Fleet::start_with(&["--rate-limits", "false"]).await?;
        let admin = Client::builder(fleet.broker.url().parse()?)
            .ca_pem(std::fs::read(fleet.broker.authority_file())?)
            .credential(Credential::Token(fleet.admin_token().to_owned().into()))
            .retry(RetryPolicy::up_to(Duration::from_secs(60)))
            .build()?;
        let pool = PgPool::connect(&fleet.database().url()).await?;
        // Some agents fail, which would stop a rollout.
        fleet.roll_out_at_once().await?;
        Ok(Self { fleet, admin, pool })
    }

    fn config(&self, installation: InstallationId, agents: Vec<Identity>) -> Result<Config> {
        let broker = Broker::at(&self.fleet.broker.url().parse()?)?;
        let authorities = std::fs::read(self.fleet.broker.authority_file())?;
        Ok(Config::new(vec![broker], authorities, installation, agents))
    }

    async fn submit(&self, stack: &str, selector: &str, yaml: &str) -> Result<()> {
        self.admin.put_stack(stack, &PutStack::default()).await?;
        let targets = StackTargets { agents: Vec::new(), selectors: vec![selector.parse()?] };
        self.admin.put_stack_targets(stack, &targets).await?;
        self.update(stack, yaml).await
    }

    async fn update(&self, stack: &str, yaml: &str) -> Result<()> {
        self.admin
            .submit(stack, yaml.to_owned(), &Provenance::default(), &IdempotencyKey::generate())
            .await?;
        Ok(())
    }

    /// Returns the number of events, of distinct events, and of agents that sent them.
    async fn events(&self) -> Result<(i64, i64, i64)> {
        Ok(sqlx::query_as(
            "SELECT count(*), count(DISTINCT (agent_id, stack_id, sequence_id, transition)), count(DISTINCT agent_id)
             FROM events",
        )
        .fetch_one(&self.pool)
        .await?)
    }
}

fn labels(number: usize) -> Labels {
    let part = if number.is_multiple_of(20) { "few" } else { "many" };
    Labels::from([("swarm".to_owned(), "yes".to_owned()), ("part".to_owned(), part.to_owned())])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_agents_get_a_submission_and_every_report_exists_once_whatever_goes_wrong() -> Result<()>
{
    let fixture = Fixture::open().await?;
    let (installation, mut agents) = join::join(&fixture.admin, 1, 5, labels).await?;
    agents.extend(enrol::enrol(&fixture.pool, 2, 195, labels).await?);
    let mut config = fixture.config(installation, agents)?;
    config.seed = 7;
    config.applying = Duration::ZERO..Duration::from_secs(1);
    config.silence = Duration::from_millis(100)..Duration::from_secs(2);
    config.failures =
        Failures { apply: 0.1, lost_answer: 0.2, report_twice: 0.2, reconnect: 0.05, silence: 0.02 };
    let swarm = Swarm::start(config)?;
    swarm.until(TIMEOUT, "all agents to have an answer", |counts| counts.changed >= 200).await?;
    fixture.submit("web", "swarm=yes", YAML).await?;
    swarm.until(TIMEOUT, "all agents to have delivered", |counts| counts.delivered >= 200).await?;
    // A report is acknowledged as accepted or, if the first answer was lost, as a duplicate.
    let settled = swarm
        .until(TIMEOUT, "all reports to be acknowledged", |counts| {
            counts.reports_accepted + counts.reports_duplicate >= 2 * counts.delivered - counts.failed
        })
        .await?;
    assert_eq!((settled.delivered, settled.reports_refused), (200, 0), "{settled:?}");
    assert!(settled.lost_answers > 0 && settled.failed > 0 && settled.reports_duplicate > 0, "{settled:?}");
    let all = i64::try_from(2 * settled.delivered - settled.failed)?;
    eventually(TIMEOUT, "every report to exist once", async || {
        let found = fixture.events().await?;
        anyhow::ensure!(found == (all, all, 200), "{found:?}, not {all}: {settled:?}");
        Ok(())
    })
    .await?;
    assert!(settled.reports_accepted <= all.cast_unsigned(), "{settled:?}");
    swarm.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_for_ten_of_two_hundred_wakes_ten_on_shared_connections_too() -> Result<()> {
    let fixture = Fixture::open().await?;
    let agents = enrol::enrol(&fixture.pool, 3, 200, labels).await?;
    let installation = sqlx::query_scalar("SELECT id FROM installation").fetch_one(&fixture.pool).await?;
    let mut config = fixture.config(InstallationId(installation), agents)?;
    config.transport = Transport::Shared { agents: 40 };
    let swarm = Swarm::start(config)?;
    let before = swarm
        .until(TIMEOUT, "all agents to wait", |counts| counts.changed >= 200 && counts.waiting >= 200)
        .await?;
    fixture.submit("few", "part=few", YAML).await?;
    let settled = swarm
        .until(TIMEOUT, "the ten to have reported", |counts| {
            counts.reports_accepted >= 20 && counts.waiting >= 200
        })
        .await?;
    let settled = settled - before;
    assert_eq!((settled.delivered, settled.contents, settled.holds), (10, 10, 10), "{settled:?}");
    // Each is woken by the object and by its own holds, and by nothing else.
    assert!(settled.polls <= 40, "others were woken: {settled:?}");
    assert_eq!(fixture.events().await?, (20, 20, 10));
    swarm.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_fails_on_bad_agents_after_the_first_healthy_ones_and_silent_agents_never_begin_it()
-> Result<()> {
    let fixture = Fixture::open().await?;
    let agents = enrol::enrol(&fixture.pool, 4, 40, labels).await?;
    let installation = sqlx::query_scalar("SELECT id FROM installation").fetch_one(&fixture.pool).await?;
    let mut config = fixture.config(InstallationId(installation), agents)?;
    config.bad_updates = BadUpdates { agents: 10, of: 30, healthy_first: 3 };
    let swarm = Swarm::start(config)?;
    fixture.submit("web", "swarm=yes", YAML).await?;
    swarm.until(TIMEOUT, "the first version everywhere", |counts| counts.reports_accepted >= 80).await?;
    swarm.silence_from(30);
    let submitted = Instant::now();
    fixture.update("web", &YAML.replace("greeting", "farewell")).await?;
    // Each of the thirty reports twice if it is healthy, once if it failed.
    let settled = swarm
        .until(TIMEOUT, "the others to have reported", |counts| {
            counts.reports_accepted + counts.failed >= 140
        })
        .await?;
    assert_eq!((settled.updates, settled.delivered), (30, 70), "{settled:?}");
    assert!((7..=10).contains(&settled.failed), "{settled:?}");
    assert_eq!(swarm.since(submitted, EventKind::Begun).len(), 30);
    swarm.stop().await;
    Ok(())
}
