//! The hold after a restore.

use brokkr_api::system::{Hold, HoldCause, RaisedEpoch, Witness};

/// Explains a hold: since when, who has seen what, and what to do.
pub fn hold_lines(hold: &Hold) -> Vec<String> {
    let mut lines = vec![format!("on hold:      since {:.0}", hold.since)];
    match &hold.cause {
        HoldCause::Ahead { witness, seen, database } => {
            let witness = witness_text(witness);
            lines.push(format!("  cause:      {witness} has seen a newer state than the database has"));
            lines.push(format!("  seen:       {seen}, issued by this broker"));
            lines.push(format!("  database:   {database}"));
        }
        HoldCause::HistoryLost { witness, at } => {
            let witness = witness_text(witness);
            lines.push(format!("  cause:      the database has lost transactions that {witness} has seen"));
            lines.push(format!("  seen:       the state of {at:.3}, marked by this broker"));
        }
        HoldCause::Operator { reason } => {
            lines.push(format!("  cause:      an operator set it: {reason}"));
        }
    }
    lines.push(String::new());
    lines.push(
        "Agents keep and repair their stacks. Changes are refused. If the database is the wrong one, switch"
            .to_owned(),
    );
    lines.push("back. If it is the right one, run `brokkr admin lift-hold --reason TEXT`.".to_owned());
    lines
}

fn witness_text(witness: &Witness) -> String {
    match witness {
        Witness::Token { token_id, token_name, project } => {
            format!("a user of the token {token_name} ({token_id}) of project {project}")
        }
        other => other.to_string(),
    }
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
        let agent = Witness::Agent { agent_id: id.parse().expect("an id"), agent_name: "shop-1".into() };
        let token = Witness::Token {
            token_id: id.parse().expect("an id"),
            token_name: "ci".into(),
            project: "shop".into(),
        };
        let witnesses =
            [(agent, "the agent shop-1"), (token, "the token ci"), (Witness::Replica, "a running replica")];
        for (witness, who) in witnesses {
            let ahead = HoldCause::Ahead { witness: witness.clone(), seen, database };
            let shown = hold_lines(&Hold::new(now(), ahead)).join("\n");
            for part in [who, "1.900", "1.700", "brokkr admin lift-hold --reason"] {
                assert!(shown.contains(part), "no {part:?} in {shown}");
            }
            let lost = HoldCause::HistoryLost { witness, at: now() };
            let shown = hold_lines(&Hold::new(now(), lost)).join("\n");
            for part in [who, "has lost transactions", "brokkr admin lift-hold --reason"] {
                assert!(shown.contains(part), "no {part:?} in {shown}");
            }
        }
        let by_hand = HoldCause::Operator { reason: "restored to 14:00".into() };
        let shown = hold_lines(&Hold::new(now(), by_hand)).join("\n");
        assert!(shown.contains("an operator set it: restored to 14:00"), "{shown}");
    }
}
