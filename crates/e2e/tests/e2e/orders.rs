//! Parts of the target state other than content: approvals, grants, and the kind of removal. The broker is scripted; agent and
//! cluster are real.

use std::sync::Arc;

use anyhow::Result;
use brokkr_api::envelope::{Approval, Grant, Removal};
use brokkr_api::reason::Reason;
use brokkr_api::report::{Report, Transition};
use brokkr_testkit::scripted::ScriptedBroker;
use brokkr_testkit::{Agent, AgentOptions, Attempt, Cluster, eventually, unique};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use brokkr_testkit::world::{WAIT_TIMEOUT, config_map_yaml};

const STACK: &str = "web";

struct Fixture {
    agent: Agent,
    broker: ScriptedBroker,
    cluster: Arc<Cluster>,
    maps: Api<ConfigMap>,
    space: String,
}

impl Fixture {
    async fn open(options: impl FnOnce(&str) -> AgentOptions) -> Result<Self> {
        let cluster = Cluster::shared().await?;
        let space = unique("space");
        cluster.kubectl(["create", "namespace", &space]).await?.ok()?;
        let broker = ScriptedBroker::start().await?;
        let agent = broker.launch_with("shop-1", &cluster, &options(&space)).await?;
        let maps = Api::namespaced(cluster.admin().await?, &space);
        Ok(Self { agent, broker, cluster, maps, space })
    }

    fn manifest(&self, names: impl IntoIterator<Item = String>, value: &str) -> String {
        names.into_iter().map(|name| config_map_yaml(&self.space, &name, value)).collect()
    }

    async fn names(&self) -> Result<Vec<String>> {
        let all = self.maps.list(&ListParams::default()).await?;
        Ok(all.iter().map(|map| map.name_any()).filter(|name| name != "kube-root-ca.crt").collect())
    }

    async fn count(&self, wanted: usize) -> Result<()> {
        eventually(WAIT_TIMEOUT, &format!("{wanted} ConfigMaps"), async || match self.names().await {
            Ok(names) if names.len() == wanted => Attempt::Done(()),
            other => Attempt::NotYet(format!("{:?}", other.map(|names| names.len()))),
        })
        .await
    }

    async fn wait_for_report(&self, transition: Transition, reason: &str) -> Result<Report> {
        eventually(WAIT_TIMEOUT, &format!("{transition} {reason} to be reported"), async || {
            let reports = self.broker.reports();
            let found = reports
                .iter()
                .find(|report| report.transition == transition && report.reason.code() == reason);
            match found {
                Some(report) => Attempt::Done(report.clone()),
                None => Attempt::NotYet(format!("{reports:?}")),
            }
        })
        .await
    }
}

/// B5: nothing of a mass prune happens before the approval, and all of it after.
#[tokio::test]
async fn b5_a_mass_prune_waits_for_an_approval_in_the_target_state() -> Result<()> {
    let fixture = Fixture::open(|_| AgentOptions::default()).await?;
    let sequence = fixture.broker.offer(STACK, &fixture.manifest((0..80).map(|n| format!("m{n}")), "1"))?;
    fixture.broker.reported(sequence, Transition::Applied).await?;
    let sequence = fixture.broker.offer(STACK, &fixture.manifest((0..20).map(|n| format!("m{n}")), "1"))?;
    let held = fixture.wait_for_report(Transition::Blocked, "PruneNeedsApproval").await?;
    assert_eq!(held.reason, Reason::PruneNeedsApproval { delete: 60, total: 80 });
    fixture.broker.polls(3).await?;
    assert_eq!(fixture.names().await?.len(), 80, "nothing is deleted before the approval");
    fixture.broker.amend(STACK, |target| {
        target.approvals.push(Approval {
            sequence_id: sequence,
            objects: 60,
            approved_by: "approver".into(),
            approved_at: Timestamp::now(),
        });
    })?;
    fixture.count(20).await?;
    fixture.broker.reported(sequence, Transition::Applied).await?;
    Ok(())
}

/// Deleting a stack and keeping its resources removes only the ownership metadata.
#[tokio::test]
async fn e2_a_stack_can_be_deleted_and_its_resources_kept() -> Result<()> {
    let fixture = Fixture::open(|_| AgentOptions::default()).await?;
    let sequence = fixture.broker.offer(STACK, &fixture.manifest(["one".to_owned()], "1"))?;
    fixture.broker.reported(sequence, Transition::Applied).await?;
    let before = fixture.maps.get("one").await?;
    let sequence = fixture.broker.delete(STACK)?;
    fixture.broker.amend(STACK, |target| target.removal = Some(Removal::Released))?;
    fixture.broker.reported(sequence, Transition::Removed).await?;
    let after = fixture.maps.get("one").await?;
    assert_eq!((after.uid(), &after.data), (before.uid(), &before.data));
    let ours = |name: &String| name.starts_with("brokkr.io/");
    assert!(!after.labels().keys().any(ours), "{:?}", after.labels());
    assert!(!after.annotations().keys().any(ours), "{:?}", after.annotations());
    Ok(())
}

fn granted(fixture: &Fixture, account: &str) -> Grant {
    Grant {
        namespaces: vec![fixture.space.clone()],
        kinds: vec!["ConfigMap".into()],
        account: Some(format!("{}/{account}", fixture.space)),
    }
}

/// The agent impersonates the account of the grant; objects outside the grant are not written; a withdrawn grant freezes the
/// stack and deletes nothing.
#[tokio::test]
async fn c5_a_grant_decides_the_account_and_the_kinds_and_its_withdrawal_freezes_the_stack() -> Result<()> {
    let account = "brokkr-team";
    let fixture = Fixture::open(|space| AgentOptions {
        install: vec!["--impersonate".into(), format!("{space}/{account}")],
        ..AgentOptions::default()
    })
    .await?;
    let space = fixture.space.clone();
    let kubectl = async |arguments: &[&str]| fixture.cluster.kubectl(arguments).await?.ok();
    kubectl(&["create", "serviceaccount", account, "-n", &space]).await?;
    kubectl(&[
        "create",
        "role",
        account,
        "-n",
        &space,
        "--verb=get,create,patch,delete",
        "--resource=configmaps",
    ])
    .await?;
    let who = format!("--serviceaccount={space}:{account}");
    kubectl(&["create", "rolebinding", account, "-n", &space, "--role", account, &who]).await?;

    // Without a grant, only the default project is delivered.
    fixture.broker.offer(STACK, &fixture.manifest(["one".to_owned()], "1"))?;
    fixture.broker.amend(STACK, |target| target.project = "team".into())?;
    fixture.wait_for_report(Transition::Blocked, "NoAccount").await?;
    assert!(fixture.names().await?.is_empty());

    let mark = fixture.cluster.audit().mark()?;
    fixture.broker.amend(STACK, |target| target.grant = Some(granted(&fixture, account)))?;
    fixture.count(1).await?;
    // The API server writes its log after its answer.
    let write = eventually(WAIT_TIMEOUT, "the write to be logged", async || {
        let requests = match fixture.agent.requests(mark) {
            Ok(requests) => requests,
            Err(error) => return Attempt::NotYet(format!("{error:#}")),
        };
        let write = requests.into_iter().find(|request| request.is_write() && request.name == "one");
        write.map_or(Attempt::NotYet("not yet".to_owned()), Attempt::Done)
    })
    .await?;
    assert_eq!(
        write.impersonated.as_deref(),
        Some(format!("system:serviceaccount:{space}:{account}").as_str())
    );

    // With a narrower grant the whole stack stays as it is, despite pending changes and prunes.
    fixture.broker.offer(STACK, &fixture.manifest(["two".to_owned()], "2"))?;
    fixture.broker.amend(STACK, |target| {
        target.project = "team".into();
        target.grant = Some(Grant { kinds: vec!["Secret".into()], ..granted(&fixture, account) });
    })?;
    fixture.wait_for_report(Transition::Blocked, "NotCovered").await?;
    fixture.broker.polls(3).await?;
    assert_eq!(fixture.names().await?, ["one"], "frozen: nothing written, nothing deleted");

    fixture.broker.amend(STACK, |target| target.grant = Some(granted(&fixture, account)))?;
    eventually(WAIT_TIMEOUT, "the new content", async || match fixture.names().await {
        Ok(names) if names == ["two"] => Attempt::Done(()),
        other => Attempt::NotYet(format!("{other:?}")),
    })
    .await
}
