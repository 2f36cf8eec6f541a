//! What a cluster of real nodes could leave behind on the host.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::process::{Launch, run};

/// Lists everything on this host that belongs to a cluster: processes, mounts, network interfaces, named network namespaces,
/// control groups, and tables of the host's firewall that name it or that kube-proxy made.
///
/// `name` is [`Cluster::kernel_name`](crate::Cluster::kernel_name), and `folder` the cluster's folder.
pub async fn of(name: &str, folder: &Path) -> Result<Vec<String>> {
    let folder = folder.display().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let read = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
        let command = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        let groups = String::from_utf8_lossy(&read("cgroup")).into_owned();
        if pid != std::process::id() && (command.contains(&folder) || groups.contains(&format!("/{name}n"))) {
            found.push(format!("process {pid}: {command}"));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    found.extend(mounts.lines().filter(|line| line.contains(&folder)).map(|line| format!("mount {line}")));
    for (what, below) in [("interface", "/sys/class/net"), ("network namespace", "/run/netns")] {
        found.extend(
            entries(Path::new(below))
                .filter(|entry| belongs(entry, name))
                .map(|entry| format!("{what} {entry}")),
        );
    }
    for controller in entries(Path::new("/sys/fs/cgroup")) {
        let groups =
            entries(&Path::new("/sys/fs/cgroup").join(&controller)).filter(|entry| belongs(entry, name));
        found.extend(groups.map(|group| format!("control group {controller}/{group}")));
    }
    let tables = run(Launch::new("nft", "/usr/sbin/nft").args(["list", "tables"]), super::START_DEADLINE)
        .await?
        .ok()?;
    let own = |line: &&str| line.contains("kube-proxy") || line.contains(name);
    found.extend(tables.stdout.lines().filter(own).map(|line| format!("firewall {line}")));
    Ok(found)
}

fn entries(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// `brokkr1` and `brokkr1n2` belong to `brokkr1`; `brokkr12` does not.
fn belongs(entry: &str, name: &str) -> bool {
    entry.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('n'))
}
