//! Watches: changes reach the agent later, in order for each kind. Only a broken watch loses some.

use std::collections::VecDeque;
use std::sync::Arc;

use brokkr_agent::inventory::wire;
use brokkr_agent::model::Uid;
use brokkr_agent::observe::{Change, LastState, Part};
use brokkr_agent::resource::KindName;
use brokkr_api::StackId;
use brokkr_manifest::Key;

use super::World;

impl World {
    /// Starts the watches that the agent has requested, each with a list.
    pub(super) fn watch_what_is_asked(&mut self) {
        for kind in std::mem::take(&mut self.run.to_watch) {
            let name = kind.name();
            if !self.run.watches.contains_key(&name) {
                let list = self.list(&name);
                if !self.server.is_served(&name) {
                    self.run.unserved.insert(name.clone());
                }
                self.run.watches.insert(name, list);
            }
        }
    }

    /// A watch whose kind is no longer served, or is served again, starts over.
    pub(super) fn follow_discovery(&mut self) {
        let (run, server) = (&mut self.run, &self.server);
        let is_changed = |kind: &&KindName| run.unserved.contains(*kind) == server.is_served(kind);
        let changed: Vec<KindName> = run.watches.keys().filter(is_changed).cloned().collect();
        for kind in changed {
            if !self.run.unserved.remove(&kind) {
                self.run.unserved.insert(kind.clone());
            }
            self.continue_watch(&kind);
        }
    }

    fn list(&self, kind: &KindName) -> VecDeque<Change> {
        let agent = self.agent.to_string();
        let part = Arc::new(Part { kind: kind.clone(), namespace: None });
        if self.is_blind_to(kind) {
            return VecDeque::from([Change::Unwatchable(part, "forbidden".to_owned())]);
        }
        if !self.server.is_served(kind) {
            return VecDeque::from([Change::Unserved(part)]);
        }
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

    /// Takes the permission to watch a kind away: the watch ends, and the agent is told why.
    pub fn deny_watch(&mut self, kind: &KindName) {
        let now = self.now();
        if self.server.unwatchable.insert(kind.clone(), now).is_none() {
            self.continue_watch(kind);
        }
    }

    /// Grants the permission again: the watch starts over with a list.
    pub fn allow_watch(&mut self, kind: &KindName) {
        if self.server.unwatchable.remove(kind).is_some() {
            self.continue_watch(kind);
        }
    }

    fn continue_watch(&mut self, kind: &KindName) {
        let list = self.list(kind);
        if let Some(queue) = self.run.watches.get_mut(kind) {
            queue.extend(list);
        }
        self.changed();
    }

    /// Deletes a record as a user would. The agent watches its records.
    pub fn drop_record(&mut self, stack: StackId) {
        let Some(record) = self.records.get(stack) else { return };
        let name = wire::record_name(&record.stack_name, stack);
        let kind = wire::kind();
        let key = Key { group: kind.group.clone(), kind: kind.kind.clone(), namespace: None, name };
        self.records.drop_by_user(stack);
        self.run.state.on_change(Change::Gone(key, Uid::from("record"), LastState::Other));
        self.changed();
    }

    #[must_use]
    pub fn is_blind_to(&self, kind: &KindName) -> bool {
        self.server.unwatchable.contains_key(kind)
    }

    /// Delivers the server's changes to the watches.
    pub(super) fn after_change(&mut self) {
        let agent = Uid::from(self.agent);
        for news in std::mem::take(&mut self.server.news) {
            self.last_change = self.server.now;
            self.run.on_prerequisite_changed(&news.key, self.agent_now());
            let kind = KindName::of(&news.key);
            let is_blind = self.is_blind_to(&kind);
            let Some(queue) = self.run.watches.get_mut(&kind).filter(|_| !is_blind) else { continue };
            let ours = |seen: &brokkr_agent::model::SeenObject| seen.agent.as_ref() == Some(&agent);
            match (news.before.filter(ours), news.after.filter(ours)) {
                (_, Some(seen)) => queue.push_back(Change::Present(news.key, Box::new(seen))),
                (Some(seen), None) => {
                    let last = if seen.completed { LastState::Completed } else { LastState::Other };
                    queue.push_back(Change::Gone(news.key, seen.uid, last));
                }
                (None, None) => {}
            }
        }
    }
}
