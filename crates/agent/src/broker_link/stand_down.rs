//! When a process that a newer one of the same agent has superseded starts again.
//!
//! During an update of the agent, the older process stands down, and Kubernetes ends it once the newer one is ready. If the newer
//! one never becomes ready, for example because it crashes, the older one is left. After some time, it starts again with a newer
//! session, so that the agent does not stay without a process that writes.

use std::time::{Duration, Instant};

/// How long a process has stood down.
#[derive(Debug, Default)]
pub struct StandDown {
    since: Option<Instant>,
}

impl StandDown {
    /// Notes that the process is superseded. Returns whether it has been for this long, without interruption.
    pub fn is_overdue(&mut self, now: Instant, after: Duration) -> bool {
        now.duration_since(*self.since.get_or_insert(now)) >= after
    }

    /// Notes that the process serves, or that it is not known whether it does.
    pub fn ended(&mut self) {
        self.since = None;
    }
}

/// Returns whether the newer process belongs to this cluster: then it has stored its session count here. A process in a clone of the
/// cluster has not, and the two would supersede each other in turns.
#[must_use]
pub fn successor_is_here(own_count: i64, stored_count: i64) -> bool {
    stored_count > own_count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_uninterrupted_time_counts() {
        let (mut standing, start, after) = (StandDown::default(), Instant::now(), Duration::from_secs(600));
        assert!(!standing.is_overdue(start, after));
        assert!(!standing.is_overdue(start + Duration::from_secs(599), after));
        standing.ended();
        assert!(!standing.is_overdue(start + Duration::from_secs(700), after));
        assert!(standing.is_overdue(start + Duration::from_secs(1300), after));
    }

    #[test]
    fn a_process_in_a_clone_of_the_cluster_is_no_successor() {
        assert!(successor_is_here(3, 4));
        assert!(!successor_is_here(3, 3));
        // The stored state was lost.
        assert!(!successor_is_here(3, 0));
    }
}
