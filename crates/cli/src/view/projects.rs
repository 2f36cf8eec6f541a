//! Projects with their quotas.

use brokkr_api::projects::Project;

use super::table::Table;
use super::text::{age, fields, when};
use super::{Listed, RenderOptions, Show};

impl Listed for Project {
    const NONE: &'static str = "no projects that you can see";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .plain("PROJECT", |project| &project.name)
            .plain("STACKS", |project| format!("{}/{}", project.used.stacks, project.allowed.stacks))
            .plain("TOKENS", |project| format!("{}/{}", project.used.tokens, project.allowed.tokens))
            .plain("AGE", |project| age(project.created_at, now))
            .wide("WEBHOOKS", |project| format!("{}/{}", project.used.webhooks, project.allowed.webhooks))
            .wide("SUBMISSIONS/HOUR", |Project { used, allowed, .. }| {
                format!("{}/{}", used.submissions_per_hour, allowed.submissions_per_hour)
            })
            .wide("STORED", |Project { used, allowed, .. }| {
                format!("{}/{}", bytes(used.stored_bytes), bytes(allowed.stored_bytes))
            })
    }

    fn name(&self) -> String {
        format!("project/{}", self.name)
    }
}

impl Show for Project {
    fn text(&self, options: &RenderOptions) -> String {
        let (used, allowed) = (&self.used, &self.allowed);
        let of = |used: u64, allowed: u64| format!("{used} of {allowed}");
        fields([
            ("name", self.name.to_string()),
            ("created", when(self.created_at, options.now)),
            (
                "rights",
                if self.restricted { "restricted to its grants" } else { "not restricted" }.to_owned(),
            ),
            ("stacks", of(used.stacks, allowed.stacks)),
            ("tokens", of(used.tokens, allowed.tokens)),
            ("webhooks", of(used.webhooks, allowed.webhooks)),
            (
                "submissions",
                format!("{} this hour", of(used.submissions_per_hour, allowed.submissions_per_hour)),
            ),
            ("stored", format!("{} of {}", bytes(used.stored_bytes), bytes(allowed.stored_bytes))),
        ])
    }

    fn names(&self) -> Vec<String> {
        vec![Listed::name(self)]
    }
}

/// `512 B`, `3.4 MiB`
fn bytes(number: u64) -> String {
    let mut unit = "B";
    let (mut whole, mut tenths) = (number, 0);
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if whole < 1024 {
            break;
        }
        tenths = (whole % 1024) * 10 / 1024;
        (whole, unit) = (whole / 1024, next);
    }
    if unit == "B" { format!("{whole} B") } else { format!("{whole}.{tenths} {unit}") }
}

#[cfg(test)]
mod tests {
    use brokkr_api::projects::Quotas;

    use super::super::samples::{ago, rendered};
    use super::super::whole;
    use super::*;

    #[test]
    fn projects() {
        let quotas = |stacks, stored_bytes| Quotas {
            stacks,
            submissions_per_hour: 12 * stacks,
            stored_bytes,
            tokens: stacks / 10,
            webhooks: 2,
        };
        let project = Project {
            name: "shop".parse().unwrap(),
            created_at: ago(200_000),
            restricted: true,
            allowed: quotas(1000, 10 << 30),
            used: quotas(37, 3_565_158),
        };
        insta::assert_snapshot!(format!(
            "{}\n\n{}",
            rendered(&whole(vec![project.clone()])),
            rendered(&project)
        ));
        assert_eq!((bytes(512), bytes(1536)), ("512 B".to_owned(), "1.5 KiB".to_owned()));
    }
}
