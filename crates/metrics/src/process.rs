//! Memory, files and processor time of this process, from `/proc`; none on systems without it.

use std::fs;

/// Clock ticks per second in `/proc`.
const TICKS: f64 = 100.0;

/// Returns the bytes in memory.
pub fn resident_bytes() -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Returns the number of open files, including sockets.
pub fn open_files() -> Option<i64> {
    i64::try_from(fs::read_dir("/proc/self/fd").ok()?.count()).ok()
}

/// Returns how many files may be open; none if there is no limit.
pub fn open_files_limit() -> Option<i64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the processor time used, in seconds.
pub fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program is the second field, in brackets, and may contain anything.
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_files_and_time() {
        assert!(resident_bytes().unwrap() > 1024 * 1024);
        assert!(open_files().unwrap() > 2);
        assert!(open_files_limit().unwrap() > open_files().unwrap());
        assert!(cpu_seconds().unwrap() >= 0.0);
    }
}
