//! Grants.

use brokkr_api::grants::ProjectGrant;

use super::table::Table;
use super::text::{age, fields, when};
use super::{Listed, RenderOptions, Show};

impl Listed for ProjectGrant {
    const NONE: &'static str =
        "no grants; only the project default can use agents, unless it is restricted (docs/grants.md)";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .plain("GRANT", |grant| &grant.name)
            .plain("PROJECT", |grant| &grant.project)
            .sentence("AGENTS", |grant| &grant.selector)
            .sentence("NAMESPACES", |grant| grant.namespaces.join(","))
            .sentence("KINDS", |grant| grant.kinds.join(","))
            .sentence("ACCOUNT", |grant| &grant.account)
            .wide("BY", |grant| &grant.created_by)
            .wide("AGE", |grant| age(grant.created_at, now))
    }

    fn name(&self) -> String {
        format!("grant/{}", self.name)
    }
}

impl Show for ProjectGrant {
    fn text(&self, options: &RenderOptions) -> String {
        fields([
            ("name", self.name.to_string()),
            ("id", self.id.to_string()),
            ("project", self.project.clone()),
            ("agents", self.selector.to_string()),
            ("namespaces", self.namespaces.join(", ")),
            ("kinds", self.kinds.join(", ")),
            ("account", self.account.clone()),
            ("created", format!("{} by {}", when(self.created_at, options.now), self.created_by)),
            ("changed", when(self.updated_at, options.now)),
        ])
    }

    fn names(&self) -> Vec<String> {
        vec![Listed::name(self)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{AGENT, ago, rendered};
    use super::super::whole;
    use super::*;

    #[test]
    fn grants() {
        let grant = ProjectGrant {
            id: AGENT.parse().unwrap(),
            name: "shop-prod".parse().unwrap(),
            project: "shop".into(),
            selector: "env=prod,region in (eu,us)".parse().unwrap(),
            namespaces: vec!["shop".into(), "shop-jobs".into()],
            kinds: vec!["*.apps".into(), "ConfigMap".into(), "Service".into()],
            account: "shop/brokkr-shop".into(),
            created_by: "ana".into(),
            created_at: ago(200_000),
            updated_at: ago(600),
        };
        insta::assert_snapshot!(format!("{}\n\n{}", rendered(&whole(vec![grant.clone()])), rendered(&grant)));
    }
}
