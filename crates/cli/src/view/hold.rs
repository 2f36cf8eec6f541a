//! The hold after a restore.

use brokkr_api::system::{Hold, HoldCause, RaisedEpoch};

/// Explains a hold: since when, who showed which position, and what to do.
pub fn hold_lines(hold: &Hold) -> Vec<String> {
    let mut lines = vec![format!("on hold:      since {:.0}", hold.since)];
    let mut positions = None;
    let cause = match &hold.cause {
        HoldCause::AgentAhead { agent_id, agent_name, seen, database } => {
            positions = Some((seen, database));
            format!("the agent {agent_name} ({agent_id}) has seen a newer state than the database has")
        }
        HoldCause::TokenAhead { token_id, token_name, project, seen, database } => {
            positions = Some((seen, database));
            format!(
                "the token {token_name} ({token_id}) of project {project} has seen a newer state than the database has"
            )
        }
        HoldCause::ReplicaAhead { seen, database } => {
            positions = Some((seen, database));
            "a running replica has seen a newer state than the database has".to_owned()
        }
        HoldCause::Operator { reason } => format!("an operator set it: {reason}"),
    };
    lines.push(format!("  cause:      {cause}"));
    if let Some((seen, database)) = positions {
        lines.push(format!("  seen:       {seen}, issued by this broker"));
        lines.push(format!("  database:   {database}"));
    }
    lines.push(String::new());
    lines.push(
        "Agents keep and repair their stacks. Changes are refused. If the database is the wrong one, switch"
            .to_owned(),
    );
    lines.push("back. If it is the right one, run `brokkr admin lift-hold --reason TEXT`.".to_owned());
    lines
}

pub fn lifted(raised: &RaisedEpoch) -> String {
    format!(
        "hold lifted: epoch raised from {} to {}; sequence ids continue after {}\n\
         next: brokkr admin ahead; brokkr admin unknown",
        raised.epoch_before, raised.epoch, raised.sequence_after
    )
}

#[cfg(test)]
mod tests {
    use brokkr_api::Position;

    use super::super::samples::now;
    use super::*;

    #[test]
    fn a_hold_is_explained_with_its_cause_and_the_next_step() {
        let seen = Position { epoch: 1, horizon: 900 };
        let database = Position { epoch: 1, horizon: 700 };
        let id = "01900000-0000-7000-8000-000000000001";
        let causes = [
            (
                HoldCause::AgentAhead {
                    agent_id: id.parse().expect("an id"),
                    agent_name: "shop-1".into(),
                    seen,
                    database,
                },
                "the agent shop-1",
            ),
            (
                HoldCause::TokenAhead {
                    token_id: id.parse().expect("an id"),
                    token_name: "ci".into(),
                    project: "shop".into(),
                    seen,
                    database,
                },
                "the token ci",
            ),
            (HoldCause::ReplicaAhead { seen, database }, "a running replica"),
        ];
        for (cause, who) in causes {
            let shown = hold_lines(&Hold::new(now(), cause)).join("\n");
            for part in [who, "1.900", "1.700", "brokkr admin lift-hold --reason"] {
                assert!(shown.contains(part), "no {part:?} in {shown}");
            }
        }
        let by_hand = HoldCause::Operator { reason: "restored to 14:00".into() };
        let shown = hold_lines(&Hold::new(now(), by_hand)).join("\n");
        assert!(shown.contains("an operator set it: restored to 14:00"), "{shown}");
    }
}
