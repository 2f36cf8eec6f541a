//! One stack of a thousand objects: created, left alone, a tenth of it changed. Every program applies the same manifests under
//! its own names, in turn, to a cluster that is cleared in between.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use brokkr_testkit::audit::Request;
use jiff::Timestamp;

use crate::args::AgentArgs;
use crate::bare::Bare;
use crate::environment::{Environment, Submission};
use crate::peers::{Flux, kubectl_apply};
use crate::results::Results;
use crate::timeline;
use crate::workload::Workload;

/// A service account to which the fence does not apply, with all rights.
const ACCOUNT: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: bench-account}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: plain, namespace: bench-account}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bench-account}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: plain, namespace: bench-account}]
";

/// The programs that apply. Namespaces have the program's name, so that the log distinguishes them.
#[derive(Clone, Copy)]
enum Contestant {
    Bare(Condition),
    Agent,
    /// With this many concurrent requests; the default of its controller is 4.
    Flux(usize),
    Kubectl,
}

/// What the bare client has in common with the agent, each alone and all together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    /// As an administrator, without a watch.
    Plain,
    /// As a service account to which the fence does not apply.
    Account,
    /// As the agent's account, to which the fence applies.
    Fence,
    /// As an administrator, with watches of what is written.
    Watch,
    /// As the agent's account, with the fence and watches.
    All,
}

impl Condition {
    /// Returns the beginning of the keys of its results.
    fn key(self) -> &'static str {
        match self {
            Self::Plain => "bare",
            Self::Account => "bare_account",
            Self::Fence => "bare_fence",
            Self::Watch => "bare_watch",
            Self::All => "bare_all",
        }
    }
}

impl Contestant {
    const ALL: [Self; 12] = [
        Self::Bare(Condition::Plain),
        Self::Agent,
        Self::Bare(Condition::All),
        Self::Flux(1),
        Self::Flux(4),
        Self::Bare(Condition::Account),
        Self::Flux(8),
        Self::Flux(16),
        Self::Bare(Condition::Fence),
        Self::Flux(32),
        Self::Bare(Condition::Watch),
        Self::Kubectl,
    ];

    fn name(self) -> String {
        match self {
            Self::Bare(condition) => condition.key().replace('_', "-"),
            Self::Agent => "agent".to_owned(),
            Self::Flux(concurrency) => format!("flux{concurrency}"),
            Self::Kubectl => "kubectl".to_owned(),
        }
    }
}

/// The bare clients.
struct Bares {
    plain: Bare,
    account: Bare,
    agents: Bare,
}

impl Bares {
    async fn new(args: &AgentArgs, environment: &Environment) -> Result<Self> {
        environment.cluster.apply(ACCOUNT).await?;
        let account = environment.cluster.client_for("bench-account", "plain").await?;
        let agents = environment.cluster.client_for(environment.agent.namespace(), "brokkr-agent").await?;
        let agent = environment.fleet.agent(environment.agent.name()).await?.context("the agent")?;
        let id = agent["id"].as_str().context("the id of the agent")?;
        Ok(Self {
            plain: environment.bare.clone(),
            account: Bare::new(account, args.in_flight),
            agents: Bare::new(agents, args.in_flight).for_agent(id),
        })
    }

    fn under(&self, condition: Condition) -> Bare {
        match condition {
            Condition::Plain => self.plain.clone(),
            Condition::Account => self.account.clone(),
            Condition::Fence => self.agents.clone(),
            Condition::Watch => self.plain.clone().watching(),
            Condition::All => self.agents.clone().watching(),
        }
    }
}

/// One turn of a program.
struct Turn<'a> {
    args: &'a AgentArgs,
    environment: &'a Environment,
    prefix: String,
    is_last_round: bool,
}

pub async fn run(args: &AgentArgs, environment: &Environment, results: &mut Results) -> Result<()> {
    let flux = if args.no_flux { None } else { Some(Flux::locate()?) };
    let bare = Bares::new(args, environment).await?;
    for round in 0..args.rounds {
        let mut order = Contestant::ALL;
        // Each round begins with another program.
        order.rotate_left(round % Contestant::ALL.len());
        for contestant in order {
            let prefix = format!("bench-{}-{round}", contestant.name());
            let turn = Turn { args, environment, prefix, is_last_round: round + 1 == args.rounds };
            match (contestant, &flux) {
                (Contestant::Bare(condition), _) => turn.bare(&bare, condition, results).await?,
                (Contestant::Agent, _) => turn.agent(results).await?,
                (Contestant::Flux(concurrency), Some(flux)) => turn.flux(flux, concurrency, results).await?,
                (Contestant::Kubectl, _) => turn.kubectl(results).await?,
                (Contestant::Flux(_), None) => {}
            }
        }
    }
    results.add_ratio("agent_over_bare", "agent_create_s", &["bare_create_s"]);
    // The agent validates everything before it writes (B2); this is the lower bound for that.
    results.add_ratio("agent_over_bare_both", "agent_create_s", &["bare_dryrun_s", "bare_create_s"]);
    results.add_ratio(
        "agent_over_bare_all_both",
        "agent_create_s",
        &["bare_all_dryrun_s", "bare_all_create_s"],
    );
    for contestant in Contestant::ALL {
        if let Contestant::Flux(_) = contestant {
            let name = contestant.name();
            results.add_ratio(
                &format!("agent_over_{name}"),
                "agent_create_s",
                &[&format!("{name}_create_s")],
            );
        }
    }
    results.add_ratio("agent_over_kubectl", "agent_create_s", &["kubectl_create_s"]);
    results.add_ratio("change_over_flux", "change_s", &["flux4_change_s"]);
    Ok(())
}

impl Turn<'_> {
    fn workload(&self) -> Workload {
        Workload::mix(&self.prefix, self.args.objects)
    }

    fn changed(&self) -> Workload {
        Workload::mix_changed(&self.prefix, self.args.objects)
    }

    async fn bare(&self, bares: &Bares, condition: Condition, results: &mut Results) -> Result<()> {
        let (bare, key) = (bares.under(condition), condition.key());
        let dry_run = format!("{}-dry", self.prefix);
        let workload = Workload::mix(&dry_run, self.args.objects);
        results.add(&format!("{key}_dryrun_s"), bare.dry_run(&workload).await?);
        self.environment.bare.clear(&dry_run).await?;
        results.add(&format!("{key}_create_s"), bare.create(&self.workload()).await?);
        self.environment.bare.clear(&self.prefix).await
    }

    async fn flux(&self, flux: &Flux, concurrency: usize, results: &mut Results) -> Result<()> {
        let (cluster, scratch) = (&self.environment.cluster, &self.environment.scratch);
        let name = Contestant::Flux(concurrency).name();
        let file = scratch.write("flux.yaml", self.workload().yaml())?;
        results.add(&format!("{name}_create_s"), flux.apply(cluster, &file, concurrency).await?);
        let file = scratch.write("flux.yaml", self.changed().yaml())?;
        results.add(&format!("{name}_change_s"), flux.apply(cluster, &file, concurrency).await?);
        self.environment.bare.clear(&self.prefix).await
    }

    async fn kubectl(&self, results: &mut Results) -> Result<()> {
        let file = self.environment.scratch.write("kubectl.yaml", self.workload().yaml())?;
        results.add("kubectl_create_s", kubectl_apply(&self.environment.cluster, &file).await?);
        self.environment.bare.clear(&self.prefix).await
    }

    async fn agent(&self, results: &mut Results) -> Result<()> {
        let (environment, stack) = (self.environment, self.prefix.as_str());
        let (submission, seconds, hops) = environment.deliver(stack, &self.workload()).await?;
        results.add("agent_create_s", seconds);
        if let (Some(fetched), Some(applied)) = (hops.fetched, hops.applied) {
            results.add("agent_fetched_to_applied_s", applied.duration_since(fetched).as_secs_f64());
        }
        timeline::add(results, "create", &submission, &hops, &environment.requests_since(submission.mark)?);
        environment.wait_until_idle().await?;
        if self.is_last_round {
            environment.bare.make_ready(&self.workload()).await?;
            environment.healthy(stack, &submission).await?;
            environment.wait_until_idle().await?;
            self.leave_alone(results).await?;
        }
        self.change(results).await?;
        environment.remove(stack, &self.prefix).await
    }

    /// Counts the agent's requests, without watches, while nothing is submitted. There should be none.
    async fn leave_alone(&self, results: &mut Results) -> Result<()> {
        let mark = self.environment.cluster.audit().mark()?;
        tokio::time::sleep(self.args.quiet).await;
        let requests = self.environment.requests_since(mark)?;
        results.add("noop_requests", requests.len() as f64);
        let what: BTreeSet<String> =
            requests.iter().map(|request| format!("{} {}", request.verb, request.resource)).collect();
        let what: Vec<String> = what.into_iter().collect();
        results.note("noop_requests", format!("in {:?} {}", self.args.quiet, what.join(", ")));
        Ok(())
    }

    async fn change(&self, results: &mut Results) -> Result<()> {
        let changed = self.changed();
        let submission = self.environment.submit(&self.prefix, changed.yaml()).await?;
        let (seconds, hops) = self.environment.applied(&self.prefix, &submission).await?;
        results.add("change_s", seconds);
        let requests = self.environment.requests_since(submission.mark)?;
        if let Some(last) = last_effective(&requests, &changed, &submission) {
            results.add("change_effective_s", last.duration_since(submission.at).as_secs_f64());
        }
        let of_stack = |request: &&Request| {
            request.namespace.starts_with(&self.prefix) || request.name.starts_with(&self.prefix)
        };
        let (writes, dry_runs): (Vec<_>, Vec<_>) = requests
            .iter()
            .filter(of_stack)
            .filter(|request| request.verb == "patch")
            .partition(|request| request.is_write());
        results.add("change_writes", writes.len() as f64 / changed.objects.len() as f64);
        results.note("change_writes", format!("{} of {} objects", writes.len(), changed.objects.len()));
        results.add("change_dryruns", dry_runs.len() as f64);
        timeline::add(results, "change", &submission, &hops, &requests);
        self.environment.wait_until_idle().await
    }
}

/// Returns when the last changed object got its first write after the submission.
fn last_effective(requests: &[Request], workload: &Workload, submission: &Submission) -> Option<Timestamp> {
    let first_write = |namespace: &str, name: &str| {
        requests
            .iter()
            .filter(|request| request.is_write() && request.code < 300 && request.reached > submission.at)
            .filter(|request| request.namespace == namespace && request.name == name)
            .map(|request| request.reached)
            .min()
    };
    let changed = workload.objects.iter().filter(|object| object.changes);
    let times: Option<Vec<Timestamp>> =
        changed.map(|object| first_write(object.namespace.as_deref()?, &object.name)).collect();
    times?.into_iter().max()
}
