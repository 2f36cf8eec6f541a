//! `journeys` types the commands of a user's first hour, and counts commands and seconds. `cargo xtask journeys` builds and
//! runs it.
//!
//! At the start there are three clusters and a PostgreSQL. Pods of the agent are real processes, as if a kubelet ran them. A
//! journey that takes more commands than its target, or does not succeed, fails the run.

mod typist;

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use brokkr_testkit::{Attempt, Cluster, PodRunner, Port, Postgres, Process, eventually};
use clap::Parser;
use futures::future::try_join_all;

use typist::{Journey, Typist};

/// Type the commands of a user's first hour, and count them.
#[derive(Parser)]
struct Args {
    /// Print the result as JSON, without the commands.
    #[arg(long)]
    json: bool,
    /// Release every version to all agents at once, to measure what waves add.
    #[arg(long)]
    at_once: bool,
}

const SHOPS: [&str; 3] = ["shop-1", "shop-2", "shop-3"];
/// The promised time for joining a cluster, in seconds.
const JOINED_WITHIN: f64 = 60.0;
const LOGIN_TIMEOUT: Duration = Duration::from_secs(60);
const HELLO: [(&str, &str); 4] = [
    ("configmap.yaml", include_str!("../../../../../examples/hello/configmap.yaml")),
    ("deployment.yaml", include_str!("../../../../../examples/hello/deployment.yaml")),
    ("namespace.yaml", include_str!("../../../../../examples/hello/namespace.yaml")),
    ("service.yaml", include_str!("../../../../../examples/hello/service.yaml")),
];

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let (postgres, clusters) =
        tokio::try_join!(Postgres::start(), try_join_all(SHOPS.map(|_| Cluster::with_workloads())))?;
    let database = postgres.database().await?;
    let clusters: Vec<(String, Cluster)> = SHOPS.map(ToOwned::to_owned).into_iter().zip(clusters).collect();
    let kubelets = try_join_all(clusters.iter().map(|(_, cluster)| PodRunner::start(cluster))).await?;
    let mut typist = Typist::new(&clusters, args.json)?;
    let walked = walk(&mut typist, &database.url(), args.at_once).await;
    if walked.is_err() {
        for pod in kubelets.iter().flat_map(PodRunner::pods) {
            eprintln!("{}", pod.describe());
        }
    }
    let broker = walked?;
    broker.stop().await?;
    let journeys = typist.journeys();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&journeys)?);
    } else {
        println!("\n{}", table(&journeys));
    }
    judge(&journeys)
}

async fn walk(typist: &mut Typist, database: &str, at_once: bool) -> Result<Process> {
    for (file, contents) in HELLO {
        typist.put(&format!("hello/{file}"), contents)?;
        // This changes an immutable field, which reviewers miss and API servers reject.
        typist.put(&format!("bad/{file}"), &contents.replace("app: hello", "app: hello-2"))?;
    }
    let broker = install(typist, database).await?;
    if at_once {
        typist.put("at-once.yaml", "staged: false\n")?;
        typist.happens("brokkr rollout set-policy --installation -f at-once.yaml").await?.ok()?;
    }
    join(typist).await?;
    deploy(typist).await?;
    why(typist).await?;
    roll_back(typist).await?;
    delete(typist).await?;
    Ok(broker)
}

/// Starts with a running PostgreSQL and ends with a broker and a logged-in command line.
async fn install(typist: &mut Typist, database: &str) -> Result<Process> {
    let port = Port::free()?;
    typist.begin();
    let broker =
        typist.starts(&format!("brokkr-broker up --database-url {database} --listen {}", port.address()))?;
    // The broker prints the next command.
    let login = eventually(LOGIN_TIMEOUT, "the broker to print the login command", async || {
        let log = broker.log();
        let line = log.lines().map(str::trim).find(|line| line.starts_with("brokkr login"));
        line.filter(|_| log.contains("serving"))
            .map(ToOwned::to_owned)
            .map_or(Attempt::NotYet(log.clone()), Attempt::Done)
    })
    .await?;
    typist.types_well(&login).await?;
    typist.end("install: from PostgreSQL to a logged-in command line", 2);
    Ok(broker)
}

async fn join(typist: &mut Typist) -> Result<()> {
    for (number, shop) in (1..).zip(SHOPS) {
        typist.begin();
        let joined = typist
            .types_well(&format!("brokkr agent join {shop} --label env=dev --kube-context {shop}"))
            .await?;
        ensure!(joined.stdout.contains("has joined"), "{joined:?}");
        // Joining each cluster is the same journey; only the first one counts.
        if number == 1 {
            typist.end("join a cluster", 1);
        }
    }
    Ok(())
}

async fn deploy(typist: &mut Typist) -> Result<()> {
    typist.begin();
    let healthy = typist.types_well("brokkr apply hello -f hello --to env=dev --wait=rollout").await?;
    ensure!(healthy.stderr.contains("hello is healthy on 3 agents"), "{healthy:?}");
    typist.end("first deployment, healthy on three clusters", 1);
    Ok(())
}

async fn why(typist: &mut Typist) -> Result<()> {
    let bad = typist.happens("brokkr apply hello -f bad --to env=dev --wait").await?;
    ensure!(!bad.success(), "this must not be delivered: {bad:?}");
    typist.begin();
    let why = typist.types("brokkr why hello").await?;
    typist.end("why it is not in sync", 1);
    let answer = &why.stdout;
    ensure!(answer.contains("Deployment hello/hello") && answer.contains("immutable"), "{why:?}");
    ensure!(answer.contains("next:"), "{why:?}");
    Ok(())
}

async fn roll_back(typist: &mut Typist) -> Result<()> {
    typist.begin();
    let back = typist.types_well("brokkr rollback hello --reason 'selector changed' --wait").await?;
    typist.end("roll back and stay rolled back", 1);
    ensure!(back.stderr.contains("healthy on 3 agents"), "{back:?}");
    let again = typist.happens("brokkr apply hello -f bad --to env=dev").await?;
    ensure!(!again.success() && again.stderr.contains("BRK2011"), "it came back: {again:?}");
    let stays = typist.happens("brokkr wait hello --for healthy --timeout 30s").await?;
    ensure!(stays.success(), "{stays:?}");
    Ok(())
}

/// One of the three clusters is down.
async fn delete(typist: &mut Typist) -> Result<()> {
    let power = |replicas| {
        format!(
            "kubectl --context shop-3 -n brokkr-system scale deployment brokkr-agent --replicas={replicas}"
        )
    };
    typist.happens(&power(0)).await?.ok()?;
    let dark = "kubectl --context shop-3 -n brokkr-system wait pod --all --for=delete --timeout=30s";
    typist.happens(dark).await?.ok()?;
    typist.begin();
    let deleted = typist.types("brokkr stack delete hello --yes --wait --timeout 20s").await?;
    typist.end("delete with receipts, one of three clusters being dead", 1);
    let state = |shop: &str| {
        let row = deleted.stdout.lines().find(|line| line.starts_with(shop)).unwrap_or_default();
        row.split_whitespace().nth(1).unwrap_or_default().to_owned()
    };
    let states = SHOPS.map(state);
    ensure!(states == ["removed", "removed", "pending"], "{states:?}: {deleted:?}");
    typist.happens(&power(1)).await?.ok()?;
    let gone = typist.happens("brokkr wait hello --for deleted --timeout 90s").await?;
    ensure!(gone.success(), "the pending removal is done when the cluster returns: {gone:?}");
    let left = "kubectl --context shop-3 get namespace hello --ignore-not-found";
    let left = typist.happens(left).await?.ok()?;
    ensure!(left.stdout.is_empty(), "{left:?}");
    Ok(())
}

fn table(journeys: &[Journey]) -> String {
    let rows = journeys.iter().map(|journey| {
        format!(
            "{:<56} {:>6} {:>8} {:>7.1} s",
            journey.journey, journey.target, journey.commands, journey.seconds
        )
    });
    let head = format!("{:<56} {:>6} {:>8} {:>9}", "JOURNEY", "TARGET", "COMMANDS", "TIME");
    std::iter::once(head).chain(rows).collect::<Vec<_>>().join("\n")
}

fn judge(journeys: &[Journey]) -> Result<()> {
    for journey in journeys {
        ensure!(journey.commands <= journey.target, "too many commands: {journey:?}");
    }
    let join =
        journeys.iter().find(|journey| journey.journey.starts_with("join")).context("no agent joined")?;
    if join.seconds > JOINED_WITHIN {
        bail!("joining took {} s; the promise is {JOINED_WITHIN} s", join.seconds);
    }
    Ok(())
}
