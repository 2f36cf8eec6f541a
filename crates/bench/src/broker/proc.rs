//! CPU and memory of processes, as the kernel counts them.

use std::fs;

use anyhow::{Context as _, Result};

/// Clock ticks per second in `/proc`, the same on every Linux architecture.
const TICKS: f64 = 100.0;

/// Returns the user and system time of a process, in seconds.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let fields = stat(pid)?;
    Ok((fields(11)? + fields(12)?) / TICKS)
}

/// Returns the user and system time of a process and its children, including those that have ended.
pub fn cpu_seconds_of_family(pid: u32) -> Result<f64> {
    let fields = stat(pid)?;
    let own: f64 = (fields(11)? + fields(12)? + fields(13)? + fields(14)?) / TICKS;
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    Ok(own + children.filter_map(|child| cpu_seconds(child).ok()).sum::<f64>())
}

/// Returns the fields after the name, which may contain anything; the first is the state.
fn stat(pid: u32) -> Result<impl Fn(usize) -> Result<f64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).context("the process is gone")?;
    let rest = text.rsplit_once(')').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
    Ok(move |number| {
        let field = rest.split_whitespace().nth(number).context("a short line in /proc")?;
        Ok(field.parse()?)
    })
}

/// Returns the value of a line of `/proc/PID/status`, converted from KiB to bytes.
pub fn memory_bytes(pid: u32, line: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    let found = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let kib = found.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kib.with_context(|| format!("no {line} in the status of the process"))? * 1024.0)
}
