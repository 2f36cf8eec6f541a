//! API tokens, without their secrets.

use anstyle::Style;
use brokkr_api::tokens::ApiToken;
use jiff::{SignedDuration, Timestamp};

use super::agents::expiry;
use super::table::{CAREFUL, FAINT, GOOD, Table, painted};
use super::text::{age, fields, or_dash, when};
use super::{Listed, RenderOptions, Show};

/// Tokens that expire within this time are highlighted.
const SOON: SignedDuration = SignedDuration::from_hours(7 * 24);

impl Listed for ApiToken {
    const NONE: &'static str = "no API tokens; create one with `brokkr token create NAME --role ROLE`";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .plain("NAME", |token| &token.name)
            .plain("ROLE", |token| token.role)
            .plain("STATE", |token| {
                let (state, style) = state(token, now);
                painted(state, style)
            })
            .plain("EXPIRES", |token| {
                token.expires_at.map_or_else(|| "never".to_owned(), |at| expiry(at, now))
            })
            .plain("AGE", |token| age(token.created_at, now))
            .plain("ID", |token| token.id)
            .wide("PROJECT", |token| &token.project)
            .wide("BY", |token| or_dash(token.created_by.as_ref()))
    }

    fn name(&self) -> String {
        format!("token/{}", self.id)
    }
}

impl Show for ApiToken {
    fn text(&self, options: &RenderOptions) -> String {
        let expires = self.expires_at.map_or_else(|| "never".to_owned(), |at| when(at, options.now));
        fields([
            ("name", self.name.clone()),
            ("id", self.id.to_string()),
            ("role", format!("{} in project {}", self.role, self.project)),
            ("state", state(self, options.now).0.to_owned()),
            ("expires", expires),
            ("created", when(self.created_at, options.now)),
            ("by", self.created_by.clone().unwrap_or_else(|| "bootstrap".to_owned())),
        ])
    }

    fn names(&self) -> Vec<String> {
        vec![Listed::name(self)]
    }
}

fn state(token: &ApiToken, now: Timestamp) -> (&'static str, Style) {
    match token.expires_at {
        _ if token.revoked_at.is_some() => ("revoked", FAINT),
        Some(at) if at <= now => ("expired", FAINT),
        Some(at) if at < now + SOON => ("expires soon", CAREFUL),
        _ => ("valid", GOOD),
    }
}

pub fn is_valid(token: &ApiToken, now: Timestamp) -> bool {
    token.revoked_at.is_none() && token.expires_at.is_none_or(|at| at > now)
}

#[cfg(test)]
mod tests {
    use brokkr_api::tokens::Role;

    use super::super::samples::{AGENT, ago, now, rendered};
    use super::super::whole;
    use super::*;

    #[test]
    fn tokens() {
        let token = ApiToken {
            id: AGENT.parse().unwrap(),
            project: "shop".into(),
            name: "ci-web".into(),
            role: Role::Deployer,
            created_by: Some("ana".into()),
            created_at: ago(200_000),
            expires_at: Some(now() + SignedDuration::from_hours(2000)),
            revoked_at: None,
        };
        let soon = ApiToken { expires_at: Some(now() + SignedDuration::from_hours(3)), ..token.clone() };
        let late = ApiToken { expires_at: Some(ago(60)), ..token.clone() };
        let revoked = ApiToken { revoked_at: Some(ago(5)), expires_at: None, ..token.clone() };
        assert!(is_valid(&token, now()) && is_valid(&soon, now()));
        assert!(!is_valid(&late, now()) && !is_valid(&revoked, now()));
        insta::assert_snapshot!(format!(
            "{}\n\n{}",
            rendered(&whole(vec![token.clone(), soon, late, revoked])),
            rendered(&token)
        ));
    }
}
