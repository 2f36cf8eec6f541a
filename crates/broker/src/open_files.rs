//! The limit on open files: every waiting agent is a connection, and so an open file.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Open files other than client connections: the database, the log, the program itself.
const OTHERS: u64 = 256;

/// Raises the limit on open files to the hard limit, and logs a warning if that is not enough.
pub fn raise_limit(connections: usize) {
    let files = match raise() {
        Ok(files) => files,
        Err(error) => {
            tracing::warn!(%error, "failed to raise the limit on open files");
            return;
        }
    };
    let needed = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OTHERS);
    if files < needed {
        tracing::warn!(
            files,
            connections,
            needed,
            "the limit on open files is too low for the maximum number of connections"
        );
    } else {
        tracing::info!(files, connections, "limit on open files");
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
