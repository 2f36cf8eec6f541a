//! A fleet that fails with a few causes, and recovers. A webhook has to get one message for each cause, and one when it is
//! over, although the broker is killed in between.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Json, Router};
use brokkr_api::webhooks::{CreateWebhook, WebhookEvent, WebhookFilter, WebhookFormat};
use brokkr_swarm::{Failures, Swarm, Transport};
use brokkr_testkit::eventually;
use clap::Args;
use serde_json::Value;
use tokio::net::TcpListener;

use super::environment::{Engine, Environment};
use super::figures::Figures;

const STACK: &str = "web";
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const DATABASE_CONNECTIONS: u32 = 20;
/// Agents on one connection.
const SHARED: usize = 40;
/// A bound for every wait, which only a hang reaches.
const LONGEST: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, Args)]
pub struct AlertArgs {
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Run this many agents.
    #[arg(long, default_value_t = 2_000)]
    pub agents: usize,
    /// Let them fail with this many causes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=4))]
    pub causes: u64,
    /// Let a failure last for this long before it counts.
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    pub grace: Duration,
    /// Let an alert wait for this long for further agents.
    #[arg(long, default_value = "20s", value_parser = humantime::parse_duration)]
    pub gather: Duration,
    /// Let at least this long pass between two messages of an alert.
    #[arg(long, default_value = "1h", value_parser = humantime::parse_duration)]
    pub interval: Duration,
    /// Watch for further messages for this long at the end.
    #[arg(long, default_value = "15s", value_parser = humantime::parse_duration)]
    pub watch: Duration,
    /// Also write the JSON object into this folder, named by date and commit.
    #[arg(long)]
    pub store: Option<PathBuf>,
}

/// Lets the fleet fail and recover, and counts the messages.
pub async fn run(args: &AlertArgs) -> Result<Figures> {
    let files = brokkr_swarm::files::raise()?;
    let build = if cfg!(debug_assertions) { "debug build" } else { "optimised build" };
    let mut figures = Figures::begin(files, format!("{args:?}, {build}"));
    let engine = Engine::start().await.context("cannot start PostgreSQL")?;
    Box::pin(measure(args, &engine, &mut figures)).await?;
    figures.end();
    if let Some(folder) = &args.store {
        figures.store(folder, "alerts")?;
    }
    Ok(figures)
}

async fn measure(args: &AlertArgs, engine: &Engine, figures: &mut Figures) -> Result<()> {
    let receiver = Receiver::start().await?;
    let flags = flags(args);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let environment = Box::pin(Environment::start_with(DATABASE_CONNECTIONS, engine, &flags)).await?;
    environment.stack(STACK, "swarm=yes").await?;
    let webhook = CreateWebhook {
        name: "chat".parse()?,
        url: receiver.url.clone(),
        format: WebhookFormat::Standard,
        filter: WebhookFilter {
            events: vec![WebhookEvent::AlertOpened, WebhookEvent::AlertUpdated, WebhookEvent::AlertResolved],
            ..WebhookFilter::default()
        },
    };
    environment.admin.create_webhook(&webhook).await?;
    let agents = environment.enrol(args.agents).await?;
    environment.submit(STACK, yaml("one")).await?;

    let mut config = environment.swarm(agents)?;
    config.transport = Transport::Shared { agents: SHARED };
    config.failures = Failures { apply: 1.0, ..Failures::default() };
    config.causes = args.causes;
    let swarm = Swarm::start(config)?;
    let all = u64::try_from(args.agents)?;
    let begun = Instant::now();
    swarm
        .until(LONGEST, "all agents to have reported a failure", |counts| counts.reports_accepted >= all)
        .await?;
    figures.add("alerts_failures_reported_s", begun.elapsed().as_secs_f64());
    let causes = usize::try_from(args.causes)?;
    receiver.until(causes).await?;
    figures.add("alerts_opened_s", begun.elapsed().as_secs_f64()).note("since the first report");
    // The state is in the database: the message of an open alert is neither repeated nor lost.
    environment.broker.restart().await?;
    swarm.heal();
    let healed = Instant::now();
    environment.submit(STACK, yaml("two")).await?;
    let acknowledged = 3 * all;
    swarm
        .until(LONGEST, "all agents to have recovered", |counts| {
            counts.reports_accepted + counts.reports_duplicate >= acknowledged
        })
        .await?;
    figures.add("alerts_recoveries_reported_s", healed.elapsed().as_secs_f64());
    receiver.until(2 * causes).await?;
    figures.add("alerts_resolved_s", healed.elapsed().as_secs_f64()).note("since the submission");
    tokio::time::sleep(args.watch).await;
    swarm.stop().await;
    add_messages(figures, args, &receiver.seen());
    Ok(())
}

fn add_messages(figures: &mut Figures, args: &AlertArgs, seen: &[Value]) {
    let of_type = |kind: &str| seen.iter().filter(|message| message["type"] == kind).collect::<Vec<_>>();
    let (opened, resolved) = (of_type("alert.opened"), of_type("alert.resolved"));
    let wanted = args.causes as f64;
    for (key, found) in [("alerts_opened", &opened), ("alerts_resolved", &resolved)] {
        figures.add(key, found.len() as f64);
        let wrong = (found.len() as f64 - wanted).abs();
        figures.add(&format!("{key}_too_many_or_few"), wrong).at_most(0.0);
    }
    figures.add("alerts_messages", seen.len() as f64).at_most(2.0 * wanted);
    let agents = |message: &&Value| message["data"]["agents"].as_f64().unwrap_or_default();
    let causes: BTreeSet<String> =
        opened.iter().map(|message| message["data"]["cause"].to_string()).collect();
    figures
        .add("alerts_agents", opened.iter().map(agents).sum())
        .at_least(args.agents as f64)
        .note(format!("in the first messages: {}", causes.into_iter().collect::<Vec<_>>().join(", ")));
    let ids = |messages: &[&Value]| {
        messages.iter().map(|message| message["data"]["alert_id"].to_string()).collect::<BTreeSet<_>>()
    };
    let unmatched = ids(&opened).symmetric_difference(&ids(&resolved)).count();
    figures.add("alerts_not_resolved", unmatched as f64).at_most(0.0);
}

fn flags(args: &AlertArgs) -> Vec<String> {
    let time = |time: Duration| humantime::format_duration(time).to_string().replace(' ', "");
    let mut flags: Vec<String> = ["--webhook-http", "--webhook-any-port"].map(str::to_owned).to_vec();
    for (flag, value) in [
        ("--webhook-networks", "127.0.0.0/8".to_owned()),
        ("--secret-key", KEY.to_owned()),
        ("--webhook-grace", time(args.grace)),
        ("--alert-gather", time(args.gather)),
        ("--alert-interval", time(args.interval)),
    ] {
        flags.extend([flag.to_owned(), value]);
    }
    flags
}

fn yaml(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n")
}

/// By their `webhook-id`: the broker sends a message again if it was killed before it had stored the answer.
type Messages = Arc<Mutex<BTreeMap<String, Value>>>;

/// A receiver of webhooks that keeps all messages.
struct Receiver {
    url: String,
    messages: Messages,
}

impl Receiver {
    async fn start() -> Result<Self> {
        let messages = Messages::default();
        let router = Router::new().fallback(receive).with_state(Arc::clone(&messages));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/alerts", listener.local_addr()?);
        // It ends with the program.
        #[expect(clippy::disallowed_methods, reason = "one peer, the measured broker")]
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { url, messages })
    }

    fn seen(&self) -> Vec<Value> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    async fn until(&self, count: usize) -> Result<()> {
        eventually(LONGEST, "messages to the webhook", async || {
            let seen = self.seen().len();
            ensure!(seen >= count, "{seen} of {count}");
            Ok(())
        })
        .await
    }
}

async fn receive(State(messages): State<Messages>, headers: HeaderMap, Json(message): Json<Value>) {
    let id = headers.get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
    messages.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), message);
}
