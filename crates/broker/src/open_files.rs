//! The limit on open files: every waiting agent is a connection, and so an open file.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Open files other than client and database connections: the admin listener, webhooks, the log, the program itself.
const OTHERS: u64 = 256;

/// Raises the limit on open files to the hard limit. Returns how many client connections it allows, at most
/// `connections`: clients must not use the files that the database and the health checks need.
pub fn raise_limit(connections: usize, database_connections: u32) -> usize {
    let files = match raise() {
        Ok(files) => files,
        Err(error) => {
            tracing::warn!(%error, "failed to raise the limit on open files");
            return connections;
        }
    };
    let allowed = allowed(files, connections, database_connections);
    if allowed < connections {
        tracing::warn!(
            files,
            connections,
            allowed,
            "the limit on open files is too low for the maximum number of connections; accepting fewer"
        );
    } else {
        tracing::info!(files, connections, "limit on open files");
    }
    allowed
}

/// Returns the number of client connections for which there are files.
fn allowed(files: u64, connections: usize, database_connections: u32) -> usize {
    let left = files.saturating_sub(OTHERS + u64::from(database_connections)).max(1);
    connections.min(usize::try_from(left).unwrap_or(usize::MAX))
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

    #[test]
    fn clients_get_the_files_that_nothing_else_needs() {
        assert_eq!(allowed(1024, 65_536, 20), 1024 - 256 - 20);
        assert_eq!(allowed(1_048_576, 65_536, 20), 65_536);
        assert_eq!(allowed(10, 65_536, 20), 1);
    }
}
