//! Maintenance windows and freezes.

use std::time::Duration;

use brokkr_api::windows::{Window, WindowRule};

use super::table::Table;
use super::text::{age, clean, fields, when};
use super::{Listed, RenderOptions, Show};

impl Listed for Window {
    const NONE: &'static str = "no windows; agents begin new versions at any time";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .plain("WINDOW", |window| &window.name)
            .plain("PROJECT", |window| window.project.as_deref().unwrap_or("*"))
            .sentence("AGENTS", |window| &window.selector)
            .sentence("BEGIN NEW VERSIONS", |window| rule(&window.rule))
            .wide("BY", |window| &window.created_by)
            .wide("AGE", |window| age(window.created_at, now))
    }

    fn name(&self) -> String {
        format!("window/{}", self.name)
    }
}

impl Show for Window {
    fn text(&self, options: &RenderOptions) -> String {
        fields([
            ("name", self.name.to_string()),
            ("id", self.id.to_string()),
            ("project", self.project.clone().unwrap_or_else(|| "all".to_owned())),
            ("agents", self.selector.to_string()),
            ("begin new versions", rule(&self.rule)),
            ("created", format!("{} by {}", when(self.created_at, options.now), self.created_by)),
            ("changed", when(self.updated_at, options.now)),
        ])
    }

    fn names(&self) -> Vec<String> {
        vec![Listed::name(self)]
    }
}

/// `on mon, tue at 22:00 Europe/Berlin, for 6h`
pub fn rule(rule: &WindowRule) -> String {
    match rule {
        WindowRule::Weekly(weekly) => {
            let days: Vec<String> = weekly.days.iter().map(ToString::to_string).collect();
            let days =
                if days.is_empty() { "every day".to_owned() } else { format!("on {}", days.join(", ")) };
            let open_for = humantime::format_duration(Duration::from_secs(u64::from(weekly.minutes) * 60));
            let start = weekly.start.strftime("%H:%M");
            format!("{days} at {start} {}, for {open_for}", clean(&weekly.timezone))
        }
        WindowRule::Freeze(freeze) => {
            let reason =
                if freeze.reason.is_empty() { String::new() } else { format!(": {}", clean(&freeze.reason)) };
            format!("not from {} until {}{reason}", freeze.from, freeze.until)
        }
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::windows::{Day, Freeze, Weekly};

    use super::super::samples::{AGENT, ago, rendered};
    use super::super::whole;
    use super::*;

    #[test]
    fn windows() {
        let weekly = Weekly {
            timezone: "Europe/Berlin".into(),
            days: vec![Day::Mon, Day::Tue],
            start: "22:00".parse().unwrap(),
            minutes: 360,
        };
        let night = Window {
            id: AGENT.parse().unwrap(),
            name: "night".parse().unwrap(),
            project: Some("shop".into()),
            selector: "site=shop".parse().unwrap(),
            rule: WindowRule::Weekly(weekly),
            created_by: "ana".into(),
            created_at: ago(200_000),
            updated_at: ago(600),
        };
        let freeze = Freeze {
            from: "2026-12-20T00:00:00Z".parse().unwrap(),
            until: "2027-01-03T00:00:00Z".parse().unwrap(),
            reason: "no one is on call".into(),
        };
        let year_end = Window {
            name: "year-end".parse().unwrap(),
            project: None,
            selector: "*".parse().unwrap(),
            rule: WindowRule::Freeze(freeze),
            ..night.clone()
        };
        insta::assert_snapshot!(format!(
            "{}\n\n{}",
            rendered(&whole(vec![night.clone(), year_end])),
            rendered(&night)
        ));
    }
}
