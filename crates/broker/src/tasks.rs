//! Background loops. Each runs on a timer or a wake-up and is safe to repeat. Only `refusals` has input that
//! can be lost: what it drops is counted.
//!
//! | task            | what it does                                                                      |
//! |-----------------|-----------------------------------------------------------------------------------|
//! | `alerts`        | groups agents with the same problem and writes alerts, on one replica at a time   |
//! | `audit_chain`   | chains the audit log, on one replica at a time; logs the heads once a minute      |
//! | `cleanup`       | deletes expired outbox rows, idempotency keys, tokens, sessions and history marks |
//! | `event_tail`    | reads events once for all streams of this replica                                 |
//! | `outbox_tail`   | applies changes to the index: every 200 ms, and at once after local commits       |
//! | `outcome_tail`  | follows what agents report, for the views of a fleet                              |
//! | `presence`      | stores when agents were last seen, in sorted batches                              |
//! | `refusals`      | writes refused attempts to the audit log, at a bounded rate                       |
//! | `report_writer` | stores reports, those of many agents in one transaction                           |
//! | `restore_state` | refreshes whether the installation is on hold, and which agents have to report    |
//! | `retention`     | creates partitions ahead, drops old ones, deletes old content                     |
//! | `rollouts`      | goes on with rollouts, on one replica at a time                                   |
//! | `suspensions`   | ends suspensions when their time is over                                          |
//! | `silent_agents` | marks agents that no longer poll                                                  |
//! | `webhooks`      | sends messages that are due: after local commits, and on time                     |

pub mod alerts;
pub mod audit_chain;
pub mod audit_retention;
pub mod cleanup;
pub mod event_tail;
pub mod outbox_tail;
pub mod outcome_tail;
pub mod presence;
pub mod refusals;
pub mod report_writer;
pub mod restore_state;
pub mod retention;
pub mod rollouts;
pub mod silent_agents;
pub mod suspensions;
pub mod webhooks;

use tokio::task::JoinError;

/// Returns the result of a task; propagates its panic.
fn finished<T>(ended: Result<T, JoinError>) -> T {
    match ended {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => unreachable!("the task is never aborted"),
    }
}
