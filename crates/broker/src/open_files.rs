//! What the system allows this process: every agent that waits is a connection, and so an open file.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Files beside connections of callers: the database, the log, the program itself.
const OTHERS: u64 = 256;

/// Raises the limit of open files as far as allowed, and says if that is not enough.
pub fn raise_open_files(connections: usize) {
    let files = match raise() {
        Ok(files) => files,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files stays as it is");
            return;
        }
    };
    let needed = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OTHERS);
    if files < needed {
        tracing::warn!(files, connections, "fewer files may be open than connections are allowed");
    } else {
        tracing::info!(files, connections, "files that may be open");
    }
}

fn raise() -> nix::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let raised = raise().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (raised, raised));
    }
}
