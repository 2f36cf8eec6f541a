//! A1: every connection goes from the agent to the broker. A5: a change reaches the agent at once. Also: the agent's
//! permissions.

use std::collections::HashSet;
use std::fs;

use anyhow::Result;
use brokkr_testkit::AgentOptions;

use brokkr_testkit::world::World;

/// Returns the inodes of listening sockets.
fn listening() -> Result<HashSet<String>> {
    let mut inodes = HashSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in fs::read_to_string(table)?.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if fields.get(3) == Some(&"0A") {
                inodes.extend(fields.get(9).map(ToString::to_string));
            }
        }
    }
    Ok(inodes)
}

#[tokio::test]
async fn a1_the_agent_opens_no_port_and_pulls_everything() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let sockets: HashSet<String> =
        fs::read_dir(format!("/proc/{}/fd", world.agent.process().pid().expect("running")))?
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()?.to_str().map(ToOwned::to_owned))
            .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect();
    assert!(!sockets.is_empty(), "the agent has no open sockets");
    let open: Vec<_> = sockets.intersection(&listening()?).cloned().collect();
    assert!(open.is_empty(), "the agent listens: {open:?}");
    Ok(())
}

/// A5: the long poll is answered as soon as something changes, without waiting for the interval.
#[tokio::test]
async fn a5_a_change_reaches_the_agent_at_once_and_not_at_the_next_interval() -> Result<()> {
    let options = AgentOptions { polling_interval: "300s".into(), ..AgentOptions::default() };
    let world = World::start_with(&options).await?;
    // Each wait is far shorter than one interval.
    for value in ["1", "2"] {
        world.fleet.try_apply("web", "env=prod", &world.manifest(&[("one", value)]), "60s").await?.ok()?;
        assert_eq!(world.value("one").await?.as_deref(), Some(value));
    }
    world.fleet.brokkr(["stack", "delete", "web", "--yes", "--wait", "--timeout", "60s"]).await?.ok()?;
    assert!(world.config_map("one").await?.is_none());
    Ok(())
}

/// The agent runs under its own account, which may manage the contents of stacks and is not a cluster admin.
#[tokio::test]
async fn the_agent_is_not_a_cluster_admin() -> Result<()> {
    let install = ["--profile", "apps"].map(ToOwned::to_owned).to_vec();
    let world = World::start_with(&AgentOptions { install, ..AgentOptions::default() }).await?;
    let may = async |verb: &str, what: &str| {
        let user = format!("--as={}", world.agent.user());
        Ok::<_, anyhow::Error>(
            world.cluster.kubectl(["auth", "can-i", verb, what, &user, "-A"]).await?.code == 0,
        )
    };
    assert!(may("patch", "deployments.apps").await?);
    for (verb, what) in
        [("*", "*"), ("escalate", "clusterroles"), ("bind", "clusterroles"), ("impersonate", "users")]
    {
        assert!(!may(verb, what).await?, "the agent may {verb} {what}");
    }
    Ok(())
}
