//! The audit log and its hash chain.

use anstyle::Style;
use brokkr_api::audit::{AuditEntry, AuditHead, AuditKind, AuditVerdict};

use super::table::{BAD, CAREFUL, GOOD, Table, painted};
use super::text::{age, clean};
use super::{Listed, RenderOptions, Show};

impl Listed for AuditEntry {
    const NONE: &'static str = "no matching entries";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .plain("AGE", |entry| age(entry.at, now))
            .wide("TIME", |entry| format!("{:.0}", entry.at))
            .plain("KIND", |entry| painted(entry.kind, kind_style(entry.kind)))
            .plain("ACTOR", |entry| if entry.name.is_empty() { &entry.principal } else { &entry.name })
            .plain("METHOD", |entry| &entry.method)
            .sentence("PATH", |entry| &entry.path)
            .plain("STATUS", |entry| entry.status)
            .plain("REFUSAL", refusal)
            .plain("FROM", |entry| &entry.address)
            .wide("PRINCIPAL", |entry| &entry.principal)
            .wide("REQUEST", |entry| &entry.request_id)
            .wide("REASON", |entry| if entry.reason.is_empty() { "-" } else { entry.reason.as_str() })
    }

    fn name(&self) -> String {
        format!("audit/{}", self.id)
    }
}

/// Returns why the attempt was refused, and how often.
fn refusal(entry: &AuditEntry) -> String {
    match (entry.refusal, entry.count) {
        (None, _) => "-".to_owned(),
        (Some(reason), 1) => reason.to_string(),
        (Some(reason), count) => format!("{reason} ({count} times)"),
    }
}

fn kind_style(kind: AuditKind) -> Style {
    match kind {
        AuditKind::Change => Style::new(),
        AuditKind::Refused => BAD,
        AuditKind::SecretsRead => CAREFUL,
    }
}

impl Show for AuditHead {
    fn text(&self, _: &RenderOptions) -> String {
        format!("{}:{}", self.number, self.hash)
    }

    fn names(&self) -> Vec<String> {
        vec![format!("audit-link/{}", self.number)]
    }
}

impl Show for AuditVerdict {
    fn text(&self, _: &RenderOptions) -> String {
        let project = clean(&self.project);
        let links = entries(self.links);
        let dropped = self
            .floor
            .as_ref()
            .map(|floor| format!("\n  retention dropped the entries up to {}", floor.number));
        let last = self.last.as_ref().map(|last| format!("; the last is {}:{}", last.number, last.hash));
        match &self.broken {
            None => format!(
                "{GOOD}✔{GOOD:#} the audit chain of {project} is valid: {links}{}{}",
                last.unwrap_or_default(),
                dropped.unwrap_or_default()
            ),
            Some(broken) => format!(
                "{BAD}✖{BAD:#} the audit chain of {project} is invalid at entry {}: {}\n  {links} before it{}",
                broken.number,
                clean(&broken.why),
                last.unwrap_or_default()
            ),
        }
    }

    fn names(&self) -> Vec<String> {
        vec![format!("project/{}", self.project)]
    }
}

fn entries(number: i64) -> String {
    if number == 1 { "1 valid entry".to_owned() } else { format!("{number} valid entries") }
}

#[cfg(test)]
mod tests {
    use brokkr_api::audit::{BrokenLink, RefusalReason};
    use brokkr_api::ids::Checksum;

    use super::super::samples::{ago, rendered};
    use super::super::whole;
    use super::*;

    #[test]
    fn audit() {
        let entry = AuditEntry {
            id: 7,
            at: ago(90),
            project: "shop".into(),
            kind: AuditKind::Change,
            principal: "token:0190b5a4-0000-7000-8000-000000000001".into(),
            name: "ci-web".into(),
            method: "POST".into(),
            route: "/api/v1/stacks/{stack}/deployment-objects".into(),
            path: "/api/v1/stacks/web/deployment-objects".into(),
            address: "192.0.2.7".into(),
            status: 201,
            request_id: "req-1".into(),
            refusal: None,
            count: 1,
            reason: String::new(),
            before: None,
            after: None,
        };
        let refused = AuditEntry {
            kind: AuditKind::Refused,
            name: String::new(),
            principal: "agent:0190b5a4-0000-7000-8000-000000000002".into(),
            status: 404,
            refusal: Some(RefusalReason::NotReleased),
            count: 12,
            ..entry.clone()
        };
        insta::assert_snapshot!(rendered(&whole(vec![entry, refused])));
    }

    #[test]
    fn verdicts() {
        let last = AuditHead { project: "shop".into(), number: 12, hash: Checksum::of(b"x") };
        let good = AuditVerdict {
            project: "shop".into(),
            links: 12,
            floor: None,
            last: Some(last.clone()),
            broken: None,
            next: None,
        };
        let broken = BrokenLink { number: 13, audit_id: Some(90), why: "its entry was changed".into() };
        let bad = AuditVerdict { broken: Some(broken), ..good.clone() };
        insta::assert_snapshot!(format!("{}\n\n{}\n\n{}", rendered(&last), rendered(&good), rendered(&bad)));
    }
}
