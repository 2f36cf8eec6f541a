//! A1: every connection goes from the agent to the broker.

use std::collections::HashSet;
use std::fs;

use anyhow::Result;

use crate::world::World;

/// The inodes of sockets that listen, on any address.
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
async fn a1_the_agent_listens_nowhere_and_gets_everything_by_asking() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let sockets: HashSet<String> =
        fs::read_dir(format!("/proc/{}/fd", world.shop.process().pid().expect("running")))?
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()?.to_str().map(ToOwned::to_owned))
            .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect();
    assert!(!sockets.is_empty(), "it has connections");
    let open: Vec<_> = sockets.intersection(&listening()?).cloned().collect();
    assert!(open.is_empty(), "the agent listens: {open:?}");
    Ok(())
}
