//! The wiring: identity, stored state and tasks.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use brokkr_api::agents::AgentStatus;
use brokkr_client::{Client as Broker, Credential, RetryPolicy};
use brokkr_install::start::Hop;
use jiff::SignedDuration;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::mpsc;

use crate::admin::Admin;
use crate::args::RunArguments;
use crate::broker_link::content::ContentSource;
use crate::broker_link::health_rules::RuleFetcher;
use crate::broker_link::holds::HeldStacks;
use crate::broker_link::keys::Keys;
use crate::broker_link::memory::Memory;
use crate::broker_link::poll::BrokerLink;
use crate::broker_link::upgrade_signals::UpgradeSignals;
use crate::broker_link::{identity, report};
use crate::content_cache::ContentCache;
use crate::execute::discovery::Kinds;
use crate::execute::{Cluster, Rights};
use crate::health_rules::HealthRules;
use crate::health_rules::store::RuleStore;
use crate::inventory::Records;
use crate::metrics::Metrics;
use crate::observe::{Scope, Watches};
use crate::reconcile::{Inbox, Outbox, Reconciler, Sweeps, Worker};
use crate::start::Start;
use crate::upgrade::candidate::{Candidate, ensure_may_take_over};
use crate::upgrade::home::Home;
use crate::upgrade::incumbent::Incumbent;
use crate::upgrade::reporter::Reporter;
use crate::upgrade::{Entered, Entry};
use crate::version::VERSION;
use crate::{fence, proxy, record_events};

/// The capacity of the channel for changes: a flood slows the watches down instead of filling the memory.
const CHANGES: usize = 4096;
/// After this time, an earlier run of this agent has finished its writes.
const EARLIER_RUN_ENDS: Duration = Duration::from_secs(90);

pub async fn run(arguments: RunArguments) -> anyhow::Result<()> {
    start_logging(arguments.log_json);
    // Signals are handled from the beginning: the first process of a container gets only signals that it
    // handles, so a waiting start could otherwise only be killed.
    tokio::select! {
        done = Box::pin(work(arguments)) => done,
        signal = stopped() => {
            tracing::info!(signal, "stopping; unfinished work resumes at the next start");
            Ok(())
        }
    }
}

async fn work(arguments: RunArguments) -> anyhow::Result<()> {
    let metrics = Metrics::default();
    let admin = Admin::new(metrics.clone(), arguments.polling_interval);
    if let Some(address) = arguments.admin_listen {
        let listener = Admin::bind(address).await?;
        // Before the first wait, so that /readyz shows what the start waits for.
        tokio::spawn(admin.clone().serve(listener));
    }
    let requests = kube_client(arguments.kubeconfig.as_deref()).await?;
    // A separate client, so that watches never delay writes.
    let watching = kube_client(arguments.kubeconfig.as_deref()).await?;

    let anonymous = broker_client(&arguments, Credential::None)?;
    let start = Start::new(&requests, &arguments.namespace, admin.clone());
    let upgrade_home = Home::new(&requests, &arguments.namespace);
    let entry = Entry {
        client: &requests,
        home: &upgrade_home,
        broker: &anonymous,
        start: &start,
        admin: &admin,
        timeout: arguments.upgrade_timeout,
        return_after: arguments.return_after,
    };
    let Entered { is_candidate, may_upgrade } = Box::pin(entry.enter()).await;
    admin.set_confirmed(!is_candidate);
    let signals = UpgradeSignals::default();
    signals.set_under_way(is_candidate);
    let join_token = arguments.join_token_file.as_deref();
    let found = start
        .retry_until_done(Hop::Token, "join the broker", || {
            identity::identify(&requests, &arguments.namespace, &anonymous, join_token)
        })
        .await;
    let broker = broker_client(&arguments, Credential::Agent(found.identity.clone()))?;
    broker.announce_upgrades(may_upgrade);
    let agent = found.identity.agent_id;
    start
        .retry_until_done(Hop::Fence, "check the admission policy", || {
            fence::ensure_active(&requests, &arguments.namespace, agent)
        })
        .await;

    let records = Records::new(requests.clone(), &arguments.namespace, agent);
    let known =
        start.retry_until_done(Hop::Rights, "read the records", || async { Ok(records.load().await?) }).await;
    let memory = Memory::new(&requests, &arguments.namespace);
    // If the stored state was lost, the records still have the session count.
    let earlier = known.iter().map(|record| record.session).max().unwrap_or_default();
    let remembered = start
        .retry_until_done(Hop::Token, "increment the session count", || async {
            if is_candidate {
                ensure_may_take_over(&upgrade_home).await?;
            }
            memory.start(earlier).await
        })
        .await;
    let session = remembered.session;
    let contents = ContentCache::new(&requests, &arguments.namespace, agent);
    let rule_store = RuleStore::new(&requests, &arguments.namespace, agent);
    let stored_rules = start
        .retry_until_done(Hop::Rights, "read the health rules", || async { Ok(rule_store.load().await?) })
        .await;
    let rules = HealthRules::default();
    for (scope, set) in stored_rules {
        rules.set(scope, Some(set));
    }
    // Including stacks with unreadable records, which are not changed, but still held.
    let stacks = records.stacks();
    start
        .retry_until_done(Hop::Rights, "remove cached content of unknown stacks", || async {
            Ok(contents.evict_unknown_stacks(&stacks).await?)
        })
        .await;
    start.done().await;
    tracing::info!(agent.id = %agent, session = session.count, stacks = known.len(), "agent started");

    let holds = HeldStacks::new(broker.clone(), agent, session, stacks);
    known.iter().for_each(|record| holds.note(record));
    let sweeping = records.clone();
    tokio::spawn(async move {
        if let Err(error) = sweeping.sweep(session.count, EARLIER_RUN_ENDS).await {
            tracing::warn!(%error, "failed to delete orphaned inventory shards; will retry at the next start");
        }
    });
    let (news_in, news) = mpsc::unbounded_channel();
    let (changes_in, changes) = mpsc::channel(CHANGES);
    let (answers_in, answers) = mpsc::unbounded_channel();
    let (reports_in, reports) = mpsc::unbounded_channel();
    let (acknowledged_in, acknowledged) = mpsc::unbounded_channel();
    let (events_in, events) = mpsc::channel(record_events::WAITING);

    let scope = if arguments.namespaces.is_empty() {
        Scope::Cluster
    } else {
        Scope::Namespaces(arguments.namespaces.clone())
    };
    let home: Arc<str> = arguments.namespace.as_str().into();
    let worker = Worker {
        agent,
        home: home.clone(),
        session: session.count,
        cluster: Cluster::new(requests.clone(), arguments.in_flight)
            .counted_by(&metrics)
            .with_health_rules(&rules)
            .with_automatic_objects(&arguments.automatic_objects),
        records,
        rights: Rights::new(scope.clone()),
        content: ContentSource { broker: broker.clone(), contents, kinds: Kinds::default() },
        holds: holds.clone(),
        stable_after: SignedDuration::try_from(arguments.stable_after)?,
    };
    let rule_fetcher = RuleFetcher {
        broker: broker.clone(),
        agent,
        store: rule_store,
        rules: rules.clone(),
        changes: changes_in.clone(),
    };
    let watches = Watches::new(watching, agent, scope, rules, changes_in);
    let sweeps = Sweeps::every(arguments.sweep_interval);
    let outbox = Outbox { answers: answers_in, reports: reports_in, events: events_in };
    let reconciler = Reconciler::new(worker, watches, known, sweeps, metrics.clone(), outbox);
    let asked = admin.running();
    let (namespace, life) = (&arguments.namespace, arguments.key_life);
    let keys = Keys::new(&requests, namespace, broker.clone(), found, life, metrics.clone());
    let reporter = Reporter { broker: broker.clone(), agent };
    let candidate = is_candidate.then(|| Candidate {
        home: upgrade_home.clone(),
        reporter: reporter.clone(),
        admin: admin.clone(),
        signals: signals.clone(),
    });
    let incumbent = Incumbent::new(
        upgrade_home,
        reporter,
        memory.clone(),
        session.count,
        signals.clone(),
        arguments.upgrade_timeout,
        arguments.sweep_interval,
    );
    let upgrading = async move {
        if let Some(candidate) = candidate {
            candidate.confirm().await;
        }
        incumbent.run().await;
    };
    let link = BrokerLink {
        broker: broker.clone(),
        agent,
        home,
        session,
        memory,
        lacks_stored_state: remembered.is_new,
        position: remembered.position,
        may_continue_without_broker: remembered.status == Some(AgentStatus::Active),
        interval: arguments.polling_interval,
        return_after: arguments.return_after,
        news: news_in,
        holds,
        keys,
        upgrade: signals,
        metrics: metrics.clone(),
    };
    tokio::select! {
        () = reconciler.run(Inbox { news, changes, answers, acknowledged, asked }) => {}
        () = link.run() => {}
        () = upgrading => {}
        () = rule_fetcher.run() => {}
        () = report::run(broker, agent, reports, acknowledged_in, metrics) => {}
        () = record_events::run(requests.clone(), agent, events) => {}
    }
    Ok(())
}

fn start_logging(json: bool) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("BROKKR_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,kube=warn"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if json { builder.json().init() } else { builder.init() }
}

/// Returns a client without retries, because callers retry.
pub async fn kube_client(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Client> {
    let mut config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("read {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
        }
        None => kube::Config::infer()
            .await
            .context("find the cluster; use --kubeconfig, or run inside a cluster")?,
    };
    proxy::past_no_proxy(&mut config);
    config.default_retry = false;
    // For the audit log of the API server.
    let name = http::HeaderValue::from_str(&user_agent()).context("name this version")?;
    config.headers.push((http::header::USER_AGENT, name));
    kube::Client::try_from(config).context("create a client for the API server")
}

fn broker_client(arguments: &RunArguments, credential: Credential) -> anyhow::Result<Broker> {
    let mut builder = Broker::builder(arguments.broker_url.clone())
        .credential(credential)
        .user_agent(user_agent())
        .retry(RetryPolicy::default());
    if let Some(path) = &arguments.ca_file {
        builder =
            builder.only_ca_pem(std::fs::read(path).with_context(|| format!("read {}", path.display()))?);
    }
    builder.build().context("create a client for the broker")
}

/// The broker reads the version of the agent from it.
fn user_agent() -> String {
    format!("brokkr-agent/{VERSION}")
}

async fn stopped() -> &'static str {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
