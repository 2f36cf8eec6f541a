//! Agents, as a list and one by one, and join tokens.

use anstyle::Style;
use brokkr_api::agents::{Agent, AgentStatus};
use brokkr_api::tokens::JoinTokenInfo;
use brokkr_api::why::Presence;
use jiff::Timestamp;

use super::agent_upgrades::last_step;
use super::table::{BAD, CAREFUL, Cell, FAINT, GOOD, Table, UNDER_WAY, painted};
use super::text::{age, age_or_dash, clean, fields, labels, or_dash, when};
use super::{Listed, RenderOptions, Show};

impl Listed for Agent {
    const NONE: &'static str = "no agents yet; install one with `brokkr agent join NAME`";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .plain("NAME", |agent| &agent.name)
            .plain("STATUS", |agent| painted(status(agent), status_style(agent)))
            .plain("PRESENCE", |agent| painted(agent.presence, presence_style(agent.presence)))
            .plain("SEEN", |agent| age_or_dash(agent.last_seen_at, now))
            .plain("AGE", |agent| age(agent.created_at, now))
            .sentence("LABELS", |agent| labels(&agent.labels))
            .wide("VERSION", |agent| or_dash(agent.version.as_ref()))
            .wide("KEY", |agent| age_or_dash(agent.key_since, now))
            .wide("ID", |agent| agent.id)
    }

    fn name(&self) -> String {
        format!("agent/{}", self.name)
    }
}

impl Show for Agent {
    fn text(&self, options: &RenderOptions) -> String {
        let seen = self.last_seen_at.map_or_else(|| "never".to_owned(), |seen| when(seen, options.now));
        let mut pairs = vec![
            ("name", self.name.to_string()),
            ("id", self.id.to_string()),
            ("status", status(self)),
            ("presence", self.presence.to_string()),
            ("seen", seen),
            ("joined", when(self.created_at, options.now)),
            ("version", or_dash(self.version.clone())),
            ("key", key(self, options.now)),
            ("starts", self.session_count.to_string()),
            ("labels", labels(&self.labels)),
        ];
        pairs.extend(self.upgrade.as_ref().map(|upgrade| ("upgrade", last_step(upgrade, options))));
        let mut text = fields(pairs);
        if !self.annotations.is_empty() {
            text.push_str("\nannotations:");
            for (key, value) in &self.annotations {
                text.push_str(&format!("\n  {key}: {}", clean(value)));
            }
        }
        if let Some(abandoned) = &self.abandoned {
            text.push_str(&format!(
                "\n\nAbandoned {} ago by {}: {}. To connect it again, use `brokkr agent join {} --rejoin`.",
                age(abandoned.at, options.now),
                clean(&abandoned.by),
                clean(&abandoned.because),
                self.name
            ));
        } else if let Some(revoked) = self.revoked_at {
            text.push_str(&format!(
                "\n\nKeys revoked {} ago. To connect it again, use `brokkr agent join {} --rejoin`.",
                age(revoked, options.now),
                self.name
            ));
        }
        if self.session_duplicated {
            text.push_str(
                "\n\nTwo processes use the identity of this agent, so both are paused. Find the second one (a cloned cluster?),\n\
                 delete the Secret brokkr-agent-identity there, and join it under another name.",
            );
        }
        text
    }

    fn names(&self) -> Vec<String> {
        vec![Listed::name(self)]
    }
}

fn key(agent: &Agent, now: Timestamp) -> String {
    let since = agent.key_since.map_or_else(|| "-".to_owned(), |since| when(since, now));
    match agent.rotation_asked_at {
        Some(asked) => format!("{since}; rotation requested {} ago", age(asked, now)),
        None => since,
    }
}

fn status(agent: &Agent) -> String {
    if agent.abandoned.is_some() {
        return "ABANDONED".to_owned();
    }
    let revoked = if agent.revoked_at.is_some() { ",REVOKED" } else { "" };
    let duplicate = if agent.session_duplicated { ",DUPLICATE" } else { "" };
    format!("{}{revoked}{duplicate}", agent.status)
}

fn status_style(agent: &Agent) -> Style {
    match agent.status {
        _ if agent.session_duplicated || agent.revoked_at.is_some() => BAD,
        AgentStatus::Active => GOOD,
        AgentStatus::Inactive => CAREFUL,
    }
}

fn presence_style(presence: Presence) -> Style {
    match presence {
        Presence::Fresh => GOOD,
        Presence::Late => UNDER_WAY,
        Presence::Never | Presence::Silent => CAREFUL,
    }
}

impl Listed for JoinTokenInfo {
    const NONE: &'static str = "no join tokens; create one with `brokkr agent join-token NAME`";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .plain("ID", |token| token.id)
            .plain("AGENT", |token| &token.agent_name)
            .plain("STATE", |token| join_state(token, now))
            .plain("EXPIRES", |token| expiry(token.expires_at, now))
            .plain("AGE", |token| age(token.created_at, now))
            .sentence("LABELS", |token| labels(&token.labels))
    }

    fn name(&self) -> String {
        format!("join-token/{}", self.id)
    }
}

fn join_state(token: &JoinTokenInfo, now: Timestamp) -> Cell {
    let (state, style) = match token {
        JoinTokenInfo { used_by: Some(_), .. } => ("used", FAINT),
        JoinTokenInfo { revoked_at: Some(_), .. } => ("revoked", FAINT),
        token if token.expires_at <= now => ("expired", FAINT),
        JoinTokenInfo { rejoins: Some(_), .. } => ("unused, for a new key", GOOD),
        _ => ("unused", GOOD),
    };
    painted(state, style)
}

/// `in 40m`, or `2h ago`.
pub fn expiry(at: Timestamp, now: Timestamp) -> String {
    if at > now { format!("in {}", age(now, at)) } else { format!("{} ago", age(at, now)) }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{AGENT, agent, ago, now, rendered};
    use super::super::whole;
    use super::*;
    use brokkr_api::agents::Abandoned;

    #[test]
    fn agents() {
        let mut duplicate = agent("store-0412");
        duplicate.session_duplicated = true;
        duplicate.labels.clear();
        duplicate.last_seen_at = None;
        duplicate.presence = Presence::Never;
        duplicate.rotation_asked_at = Some(ago(40));
        let mut revoked = agent("us-1");
        revoked.revoked_at = Some(ago(90));
        revoked.labels.insert("example.com/a-rather-long-key".into(), "with-a-value-that-is-long".into());
        let mut abandoned = agent("shop-17");
        abandoned.abandoned =
            Some(Abandoned { at: ago(90), by: "ana".into(), because: "the shop burnt down".into() });
        insta::assert_snapshot!(format!(
            "{}\n\n{}\n\n{}\n\n{}\n\n{}",
            rendered(&whole(vec![agent("eu-1"), duplicate.clone(), revoked.clone(), abandoned.clone()])),
            rendered(&duplicate),
            rendered(&revoked),
            rendered(&abandoned),
            rendered(&whole(Vec::<Agent>::new()))
        ));
    }

    #[test]
    fn join_tokens() {
        let token = JoinTokenInfo {
            id: AGENT.parse().unwrap(),
            agent_name: "eu-1".into(),
            labels: agent("eu-1").labels,
            rejoins: None,
            used_by: None,
            created_at: ago(600),
            expires_at: now() + jiff::SignedDuration::from_secs(3000),
            revoked_at: None,
        };
        let used = JoinTokenInfo { used_by: Some(AGENT.parse().unwrap()), ..token.clone() };
        let late = JoinTokenInfo { expires_at: ago(60), ..token.clone() };
        insta::assert_snapshot!(rendered(&whole(vec![token, used, late])));
    }
}
