//! The checks of a preflight, with the next actions below.

use brokkr_api::page::Page;
use serde::Serialize;

use super::table::{BAD, CAREFUL, Cell, FAINT, GOOD, Table, painted};
use super::text::clean;
use super::{RenderOptions, Show};
use crate::preflight::{Check, Verdict};

/// All checks.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Checks(pub Page<Check>);

impl Show for Checks {
    fn text(&self, options: &RenderOptions) -> String {
        let table = Table::new(options, &self.0.items)
            .plain("CHECK", |check| check.check)
            .plain("VERDICT", |check| verdict(check.verdict))
            .sentence("REASON", |check| &check.reason);
        let nexts = self.0.items.iter().filter_map(|check| Some((check.check, check.next.as_ref()?)));
        let nexts = nexts.map(|(check, next)| format!("{FAINT}{check}:{FAINT:#} {}", clean(next)));
        let nexts = nexts.collect::<Vec<_>>().join("\n");
        if nexts.is_empty() { table.print() } else { format!("{}\n\n{nexts}", table.print()) }
    }

    fn names(&self) -> Vec<String> {
        self.0.items.iter().map(|check| format!("check/{}", check.check)).collect()
    }
}

fn verdict(verdict: Verdict) -> Cell {
    match verdict {
        Verdict::Ok => painted("ok", GOOD),
        Verdict::Warning => painted("warning", CAREFUL),
        Verdict::Failed => painted("failed", BAD),
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::rendered;
    use super::super::whole;
    use super::*;

    #[test]
    fn checks() {
        let check = |check, verdict, reason: &str, next: Option<&str>| Check {
            check,
            verdict,
            reason: reason.to_owned(),
            next: next.map(ToOwned::to_owned),
        };
        let found = vec![
            check("broker", Verdict::Ok, "https://brokkr.example:8780/ responds", None),
            check(
                "hold",
                Verdict::Failed,
                "on hold since 2026-03-01T12:00:00Z, because the agent shop-1 has seen 1.900",
                Some("brokkr-broker epoch raise --dry-run"),
            ),
            check(
                "agents-silent",
                Verdict::Warning,
                "5 silent (eu-1, eu-2, eu-3 and 2 more) of 1200 agents",
                Some("brokkr agent list --presence silent"),
            ),
        ];
        let healthy = vec![found[0].clone()];
        insta::assert_snapshot!(format!(
            "{}\n\n{}",
            rendered(&Checks(whole(found))),
            rendered(&Checks(whole(healthy)))
        ));
    }
}
