//! One stack of a thousand objects: created, left alone, a tenth of it changed. Every program applies the same manifests under
//! its own names, in turn, to a cluster that is cleared in between.

use std::collections::BTreeSet;

use anyhow::Result;
use brokkr_testkit::audit::Request;
use jiff::Timestamp;

use crate::args::AgentArgs;
use crate::environment::{Environment, Submission};
use crate::peers::{Flux, kubectl_apply};
use crate::results::Results;
use crate::timeline;
use crate::workload::Workload;

/// The programs that apply. Namespaces have the program's name, so that the log distinguishes them.
#[derive(Clone, Copy)]
enum Contestant {
    Bare,
    Agent,
    Flux,
    Flux8,
    Kubectl,
}

impl Contestant {
    const ALL: [Self; 5] = [Self::Bare, Self::Agent, Self::Flux, Self::Flux8, Self::Kubectl];

    fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Agent => "agent",
            Self::Flux => "flux",
            Self::Flux8 => "flux8",
            Self::Kubectl => "kubectl",
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
    for round in 0..args.rounds {
        let mut order = Contestant::ALL;
        // Each round begins with another program.
        order.rotate_left(round % Contestant::ALL.len());
        for contestant in order {
            let prefix = format!("bench-{}-{round}", contestant.name());
            let turn = Turn { args, environment, prefix, is_last_round: round + 1 == args.rounds };
            match (contestant, &flux) {
                (Contestant::Bare, _) => turn.bare(results).await?,
                (Contestant::Agent, _) => turn.agent(results).await?,
                (Contestant::Flux, Some(flux)) => turn.flux(flux, "flux", 1, results).await?,
                (Contestant::Flux8, Some(flux)) => turn.flux(flux, "flux8", 8, results).await?,
                (Contestant::Kubectl, _) => turn.kubectl(results).await?,
                (Contestant::Flux | Contestant::Flux8, None) => {}
            }
        }
    }
    results.add_ratio("agent_over_bare", "agent_create_s", &["bare_create_s"]);
    // The agent validates everything before it writes (B2); this is the lower bound for that.
    results.add_ratio("agent_over_bare_both", "agent_create_s", &["bare_dryrun_s", "bare_create_s"]);
    results.add_ratio("agent_over_flux", "agent_create_s", &["flux_create_s"]);
    results.add_ratio("agent_over_flux8", "agent_create_s", &["flux8_create_s"]);
    results.add_ratio("agent_over_kubectl", "agent_create_s", &["kubectl_create_s"]);
    results.add_ratio("change_over_flux", "change_s", &["flux_change_s"]);
    Ok(())
}

impl Turn<'_> {
    fn workload(&self) -> Workload {
        Workload::mix(&self.prefix, self.args.objects)
    }

    fn changed(&self) -> Workload {
        Workload::mix_changed(&self.prefix, self.args.objects)
    }

    async fn bare(&self, results: &mut Results) -> Result<()> {
        let dry_run = format!("{}-dry", self.prefix);
        let workload = Workload::mix(&dry_run, self.args.objects);
        results.add("bare_dryrun_s", self.environment.bare.dry_run(&workload).await?);
        self.environment.bare.clear(&dry_run).await?;
        results.add("bare_create_s", self.environment.bare.create(&self.workload()).await?);
        self.environment.bare.clear(&self.prefix).await
    }

    async fn flux(&self, flux: &Flux, name: &str, concurrency: usize, results: &mut Results) -> Result<()> {
        let (cluster, scratch) = (&self.environment.cluster, &self.environment.scratch);
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
