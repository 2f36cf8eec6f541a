//! When agents may begin new versions: which windows and freezes apply to an agent, and which agents share them.

use brokkr_api::ids::Checksum;
use brokkr_api::windows::{Freeze, Schedule, WindowRule};
use brokkr_api::{Selector, WindowId};
use jiff::Timestamp;
use roaring::RoaringBitmap;

use super::facts::AgentFacts;
use super::release::mix;

/// A window or a freeze.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(from = "StoredWindow")]
pub struct WindowFacts {
    pub id: WindowId,
    pub name: String,
    /// Only for stacks of this project.
    pub project: Option<String>,
    pub selector: Selector,
    pub rule: WindowRule,
    /// Distinguishes the times of the rule from others.
    key: u64,
}

/// A window as the database stores it.
#[derive(serde::Deserialize)]
struct StoredWindow {
    id: WindowId,
    name: String,
    project: Option<String>,
    selector: Selector,
    rule: WindowRule,
}

impl From<StoredWindow> for WindowFacts {
    fn from(StoredWindow { id, name, project, selector, rule }: StoredWindow) -> Self {
        Self::new(id, name, project, selector, rule)
    }
}

impl WindowFacts {
    #[must_use]
    pub fn new(
        id: WindowId,
        name: String,
        project: Option<String>,
        selector: Selector,
        rule: WindowRule,
    ) -> Self {
        let mut of = rule.clone();
        if let WindowRule::Freeze(freeze) = &mut of {
            freeze.reason.clear();
        }
        let text = serde_json::to_vec(&of).unwrap_or_default();
        let [a, b, c, d, e, f, g, h, ..] = Checksum::of(&text).0;
        Self { id, name, project, selector, rule, key: u64::from_be_bytes([a, b, c, d, e, f, g, h]) }
    }

    fn is_for(&self, project: &str) -> bool {
        self.project.as_deref().is_none_or(|name| name == project)
    }
}

/// The agents that had the same windows and freezes when a rollout began. It releases its version to them only while they may begin
/// it, so that they do not all begin at the same time when they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Lane(pub u64);

/// The lanes of an agent in a rollout: by the windows when it began, and by those of now. Agents with the same two have a mark of
/// their own, so that no window that is set, changed or deleted meanwhile releases the version to many agents at once.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct Lanes {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Lane>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Lane>,
}

impl Lanes {
    /// Returns whether no window applied when the rollout began, and none applies now.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// All windows and freezes of the installation, or those that applied when a rollout began.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(from = "Vec<WindowFacts>")]
pub struct Windows(Vec<WindowFacts>);

impl From<Vec<WindowFacts>> for Windows {
    fn from(windows: Vec<WindowFacts>) -> Self {
        Self::new(windows)
    }
}

impl Windows {
    #[must_use]
    pub fn new(mut windows: Vec<WindowFacts>) -> Self {
        windows.sort_by(|a, b| a.name.cmp(&b.name));
        Self(windows)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the windows that only one of the two has.
    pub fn changed<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a WindowFacts> {
        let only_here = self.0.iter().filter(|window| !other.0.contains(window));
        only_here.chain(other.0.iter().filter(|window| !self.0.contains(window)))
    }

    /// Returns what applies to an agent and the stacks of a project: the first window by name, and every freeze.
    pub fn of<'a>(
        &'a self,
        agent: &'a AgentFacts,
        project: &'a str,
    ) -> impl Iterator<Item = &'a WindowFacts> {
        let mut has_window = false;
        let is_for = move |window: &&WindowFacts| window.is_for(project) && agent.matches(&window.selector);
        self.0.iter().filter(is_for).filter(move |window| match window.rule {
            WindowRule::Weekly(_) => !std::mem::replace(&mut has_window, true),
            WindowRule::Freeze(_) => true,
        })
    }

    /// Returns which agents freezes select that are in force for stacks of the project.
    pub fn frozen<'a>(&'a self, project: &'a str, now: Timestamp) -> impl Iterator<Item = &'a Selector> {
        let is_in_force = move |window: &&WindowFacts| {
            window.is_for(project)
                && matches!(&window.rule, WindowRule::Freeze(freeze) if freeze.from <= now && now < freeze.until)
        };
        self.0.iter().filter(is_in_force).map(|window| &window.selector)
    }

    /// Returns when an agent may begin versions of the stacks of a project; none: at any time.
    #[must_use]
    pub fn schedule(&self, agent: &AgentFacts, project: &str) -> Option<Schedule> {
        let mut schedule = None;
        for window in self.of(agent, project) {
            let Schedule { window: weekly, freezes } = schedule.get_or_insert_default();
            match &window.rule {
                WindowRule::Weekly(rule) => *weekly = Some(rule.clone()),
                // The agent does not need the reason.
                WindowRule::Freeze(Freeze { from, until, .. }) => {
                    freezes.push(Freeze { from: *from, until: *until, reason: String::new() });
                }
            }
        }
        schedule
    }

    /// Returns the lane of an agent in a rollout of the project; none if it may begin at any time.
    #[must_use]
    pub fn lane(&self, agent: &AgentFacts, project: &str) -> Option<Lane> {
        let all = Applied::default();
        self.of(agent, project).fold(all, Applied::and).lane()
    }

    /// Returns these agents by their lanes: as `lane`, for many agents at once. `select` returns the agents that a selector matches. A
    /// lane may be in more than one part.
    #[must_use]
    pub fn partition(
        &self,
        agents: &RoaringBitmap,
        project: &str,
        select: impl Fn(&Selector) -> RoaringBitmap,
    ) -> Vec<(Option<Lane>, RoaringBitmap)> {
        let mut parts = vec![(Applied::default(), agents.clone())];
        for window in self.0.iter().filter(|window| window.is_for(project)) {
            let selected = select(&window.selector);
            let is_weekly = matches!(window.rule, WindowRule::Weekly(_));
            let mut inside = Vec::new();
            for (applied, part) in parts.iter_mut().filter(|(applied, _)| !(is_weekly && applied.has_weekly))
            {
                let members = &*part & &selected;
                if !members.is_empty() {
                    *part -= &members;
                    inside.push((applied.and(window), members));
                }
            }
            parts.extend(inside);
        }
        parts.into_iter().map(|(applied, part)| (applied.lane(), part)).collect()
    }
}

/// The windows and freezes that apply to an agent, in their order.
#[derive(Clone, Copy, Debug, Default)]
struct Applied {
    mixed: Option<u64>,
    has_weekly: bool,
}

impl Applied {
    fn and(self, window: &WindowFacts) -> Self {
        Self {
            // Each key is mixed, also the first one: otherwise two equal ones would cancel out, whatever their times are.
            mixed: Some(mix(self.mixed.unwrap_or_default() ^ window.key)),
            has_weekly: self.has_weekly || matches!(window.rule, WindowRule::Weekly(_)),
        }
    }

    fn lane(self) -> Option<Lane> {
        // Half of the range, because the database has no unsigned integers.
        self.mixed.map(|mixed| Lane(mixed >> 1))
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::windows::Weekly;

    use super::super::fixtures;
    use super::super::labels::Label;
    use super::*;

    fn weekly(name: &str, project: Option<&str>, selector: &str, minutes: u32) -> WindowFacts {
        let (days, start) = (Vec::new(), "22:00".parse().unwrap());
        let rule = WindowRule::Weekly(Weekly { timezone: "UTC".into(), days, start, minutes });
        window(name, project, selector, rule)
    }

    fn freeze(name: &str, selector: &str) -> WindowFacts {
        let (from, until) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        let rule = WindowRule::Freeze(Freeze { from, until, reason: name.into() });
        window(name, None, selector, rule)
    }

    fn window(name: &str, project: Option<&str>, selector: &str, rule: WindowRule) -> WindowFacts {
        let project = project.map(ToOwned::to_owned);
        WindowFacts::new(WindowId::generate(), name.into(), project, selector.parse().unwrap(), rule)
    }

    #[test]
    fn h8_the_first_window_by_name_and_every_freeze_apply() {
        let windows = Windows::new(vec![
            weekly("night", None, "site=shop", 60),
            weekly("evening", Some("other"), "site=shop", 90),
            weekly("late", None, "site=shop", 120),
            freeze("audit", "*"),
            freeze("christmas", "site=shop"),
        ]);
        let labels = [Label::new("site", "shop")].into_iter().collect();
        let (shop, depot) = (AgentFacts { labels, ..fixtures::agent() }, fixtures::agent());
        let applied = |agent: &AgentFacts, project: &str| {
            windows.of(agent, project).map(|window| window.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(applied(&shop, "default"), ["audit", "christmas", "late"]);
        assert_eq!(applied(&shop, "other"), ["audit", "christmas", "evening"]);
        assert_eq!(applied(&depot, "default"), ["audit"]);
        let schedule = windows.schedule(&shop, "default").unwrap();
        assert_eq!((schedule.window.map(|window| window.minutes), schedule.freezes.len()), (Some(120), 2));
        assert_eq!(windows.lane(&depot, "default"), windows.lane(&depot, "other"));
        assert_ne!(windows.lane(&shop, "default"), windows.lane(&shop, "other"));
        assert_ne!(windows.lane(&shop, "default"), windows.lane(&depot, "default"));
        assert_eq!(Windows::default().lane(&shop, "default"), None);
        let twice = |until| {
            let rule =
                WindowRule::Freeze(Freeze { from: Timestamp::UNIX_EPOCH, until, reason: String::new() });
            let one = |name: &str| window(name, None, "*", rule.clone());
            Windows::new(vec![one("a"), one("b")]).lane(&shop, "default")
        };
        assert_ne!(twice(Timestamp::UNIX_EPOCH), twice(Timestamp::MAX), "two freezes with the same times");
        assert_eq!(Windows::default().schedule(&shop, "default"), None);
    }
}
