//! The input of decisions, and the resulting steps.
//!
//! | file        | contents                                                        |
//! |-------------|-----------------------------------------------------------------|
//! | `object`    | a live object, reduced to what decisions need                   |
//! | `content`   | a deployment object, parsed and resolved                        |
//! | `record`    | the record of a stack, with its inventory                       |
//! | `job`       | Jobs that are steps of a delivery                               |
//! | `failure`   | failed requests, and causes of unready workloads                |
//! | `step`      | the requests of a plan, and their results                       |
//! | `progress`  | what this process has done for the current goal                 |
//! | `suspension` | what the agent leaves alone, and for how much longer           |
//! | `wave_clock` | for how long a delivery has waited for a wave                  |
//! | `situation` | everything that a plan is a function of                         |
//! | `fixtures`  | values for tests                                                |

pub mod content;
pub mod failure;
#[cfg(test)]
pub mod fixtures;
pub mod job;
pub mod object;
pub mod progress;
pub mod record;
pub mod situation;
pub mod step;
pub mod suspension;
pub mod wave_clock;

pub use brokkr_api::reason::Prerequisite;
pub use content::{Body, BoundRole, Content, DesiredObject, Goal, definitions};
pub use failure::{Cause, FailedStep, Failure, FailureClass, RetryState};
pub use job::{JobRun, JobStep, RunOutcome};
pub use object::{Fingerprint, Owner, SeenObject, Uid};
pub use progress::{Fight, Progress, Rival, Stage};
pub use record::{Entry, Made, Origin, Outcome, Record};
pub use situation::{Holder, Intent, Observed, OtherStacks, Situation};
pub use step::{ApplyReason, Plan, Step, StepResult, prerequisite_kind};
pub use suspension::{FoundEdits, RecordedSuspension, Suspensions};
pub use wave_clock::{RecordedWait, WaveClock};
