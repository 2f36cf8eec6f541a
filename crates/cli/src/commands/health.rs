//! `brokkr health test`

use std::path::Path;

use brokkr_api::health_rules::HealthRule;
use brokkr_health::{HealthState, LiveObject, decide, parse_rules};
use brokkr_manifest::{Budget, Identity, parse_live};
use jiff::Timestamp;
use serde_json::Value;

use crate::args::TestHealth;
use crate::failure::{Exit, Failure, Outcome, Result};
use crate::manifest::{Source, read_source};
use crate::printer::Printer;
use crate::view::health::ObjectHealth;
use crate::view::text::count;
use crate::view::whole;

pub fn test(args: &TestHealth, printer: Printer) -> Result<Outcome> {
    let file = args.rules.as_deref().map(|path| path.display().to_string()).unwrap_or_default();
    let rules = args.rules.as_deref().map(rules).transpose()?.unwrap_or_default();
    let now = Timestamp::now();
    let mut found = Vec::new();
    for path in &args.files {
        for (identity, body) in objects(path)? {
            let object = LiveObject::new(&identity, body);
            let decision = decide(&object.view(), &rules, now);
            found.push(ObjectHealth::new(&identity, decision, &file));
        }
    }
    if found.is_empty() {
        return Err(Failure::new(Exit::Usage, "the files contain no objects"));
    }
    let is = |state: HealthState| found.iter().filter(|object| object.health.state == state).count();
    let (total, ready, failed) = (found.len(), is(HealthState::Ready), is(HealthState::Failed));
    printer.show(&whole(found))?;
    if failed > 0 {
        let what = format!("{failed} of {} failed", count(total, "object"));
        return Err(Failure::new(Exit::Failed, what));
    }
    Ok(if ready == total { Outcome::Success } else { Outcome::Negative })
}

/// Reads a file with a list of rules, and checks them.
pub fn rules(path: &Path) -> Result<Vec<HealthRule>> {
    let file = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::new(Exit::Usage, format!("cannot read {file}: {error}")))?;
    parse_rules(&text).map_err(|error| {
        Failure::new(Exit::Usage, format!("{file} is not a list of health rules: {error}"))
            .next("see docs/how-to/health-of-custom-kinds.md")
    })
}

fn objects(path: &Path) -> Result<Vec<(Identity, Value)>> {
    let Source { name, bytes } = read_source(path)?;
    parse_live(&bytes, &Budget::default()).map_err(|errors| {
        let failure = Failure::new(Exit::Usage, format!("cannot parse {name}"));
        errors.iter().fold(failure, |failure, error| failure.line(format!("- {error}")))
    })
}
