//! Jobs that are steps of a delivery: each runs once for each digest of its manifest.

use brokkr_api::ids::Checksum;
use brokkr_manifest::Key;
use serde::{Deserialize, Serialize};

use super::object::Uid;

/// How many runs of a Job are remembered.
const RUNS: usize = 10;

/// A Job as a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobStep {
    pub job: Key,
    /// The digest of the manifest that the delivery wants to run.
    pub digest: Checksum,
    /// The Job that existed when the delivery began, and that has to go. Any other of ours has the digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<Uid>,
    /// The last runs that have ended, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<JobRun>,
}

/// A run that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRun {
    pub digest: Checksum,
    pub outcome: RunOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunOutcome {
    Complete,
    /// Remembered only if the Job is deleted then, by its policy or at the end of its time to live. Otherwise its status says so.
    Failed,
}

impl JobStep {
    /// Returns how the manifest that the delivery wants to run has ended, if it has.
    #[must_use]
    pub fn outcome(&self) -> Option<RunOutcome> {
        self.runs.iter().rev().find(|run| run.digest == self.digest).map(|run| run.outcome)
    }

    /// Remembers the end of a run.
    pub fn note(&mut self, digest: Checksum, outcome: RunOutcome) {
        self.forget(digest);
        self.runs.push(JobRun { digest, outcome });
        if self.runs.len() > RUNS {
            self.runs.remove(0);
        }
    }

    /// Forgets the run of this manifest, so that it runs again.
    pub fn forget(&mut self, digest: Checksum) {
        self.runs.retain(|run| run.digest != digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a8_the_last_ten_runs_are_remembered() {
        let digest = |number: u8| Checksum::of(&[number]);
        let job = "batch/Job/shop/migrate".parse().unwrap();
        let mut step = JobStep { job, digest: digest(0), replaces: None, runs: Vec::new() };
        for number in 0..10 {
            step.note(digest(number), RunOutcome::Complete);
        }
        assert_eq!(step.outcome(), Some(RunOutcome::Complete));
        step.note(digest(0), RunOutcome::Complete);
        step.note(digest(10), RunOutcome::Complete);
        assert_eq!(step.runs.len(), 10);
        assert_eq!(step.outcome(), Some(RunOutcome::Complete), "it is one of the last again");
        step.digest = digest(1);
        assert_eq!(step.outcome(), None, "the oldest is forgotten");
        step.digest = digest(2);
        step.forget(digest(2));
        assert_eq!(step.outcome(), None);
    }
}
