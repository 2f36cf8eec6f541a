//! Watches: changes reach the agent later, in order for each kind. Only a broken watch loses some.

use std::collections::VecDeque;
use std::sync::Arc;

use brokkr_agent::model::Uid;
use brokkr_agent::observe::{Change, LastState, Part};
use brokkr_agent::resource::KindName;

use super::World;

impl World {
    /// Starts the watches that the agent has requested, each with a list.
    pub(super) fn watch_what_is_asked(&mut self) {
        for kind in std::mem::take(&mut self.run.to_watch) {
            let name = kind.name();
            if !self.run.watches.contains_key(&name) {
                let list = self.list(&name);
                self.run.watches.insert(name, list);
            }
        }
    }

    fn list(&self, kind: &KindName) -> VecDeque<Change> {
        let agent = self.agent.to_string();
        let part = Arc::new(Part { kind: kind.clone(), namespace: None, of: 1 });
        let mut list = VecDeque::from([Change::Listing(part.clone())]);
        for (key, object) in &self.server.objects {
            if KindName::of(key) == *kind && object.is_marked(&agent) {
                list.extend(self.server.seen(key).map(|seen| Change::Present(key.clone(), Box::new(seen))));
            }
        }
        list.push_back(Change::Listed(part));
        list
    }

    /// Breaks all watches: undelivered events are lost, and a new list shows the current objects.
    pub fn break_watches(&mut self) {
        let kinds: Vec<KindName> = self.run.watches.keys().cloned().collect();
        for kind in kinds {
            let list = self.list(&kind);
            self.run.watches.insert(kind, list);
        }
    }

    /// Delivers the server's changes to the watches.
    pub(super) fn after_change(&mut self) {
        let agent = Uid::from(self.agent);
        for news in std::mem::take(&mut self.server.news) {
            self.last_change = self.server.now;
            self.run.on_prerequisite_changed(&news.key, self.server.now);
            let Some(queue) = self.run.watches.get_mut(&KindName::of(&news.key)) else { continue };
            let ours = |seen: &brokkr_agent::model::SeenObject| seen.agent.as_ref() == Some(&agent);
            match (news.before.filter(ours), news.after.filter(ours)) {
                (_, Some(seen)) => queue.push_back(Change::Present(news.key, Box::new(seen))),
                (Some(seen), None) => queue.push_back(Change::Gone(news.key, seen.uid, LastState::Other)),
                (None, None) => {}
            }
        }
    }
}
