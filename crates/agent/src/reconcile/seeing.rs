//! What the watches tell, and what follows for stacks, records and what nobody claims.

use std::collections::BTreeSet;

use brokkr_api::ids::StackId;
use brokkr_manifest::Key;
use jiff::Timestamp;

use super::Reconciler;
use crate::inventory::wire;
use crate::observe::Change;
use crate::plan::steps::Ground;
use crate::plan::types::Observed as _;
use crate::resource::KindName;

impl Reconciler {
    pub(super) fn see(&mut self, change: Change) {
        if let Change::Stirred(ground, name) = &change {
            tracing::debug!(?ground, name, "stirred");
            for id in self.parked.get(ground).into_iter().flatten() {
                if let Some(stack) = self.stacks.get_mut(id) {
                    stack.stir(*ground, name, Timestamp::now());
                    self.dirty.insert(*id);
                }
            }
            return;
        }
        self.mind_record(&change);
        let listed = matches!(change, Change::Listed(_) | Change::Unserved(_));
        let touched: Vec<Key> = match &change {
            Change::Present(key, _) | Change::Gone(key, _) => vec![key.clone()],
            _ => Vec::new(),
        };
        let changed = self.index.absorb(change);
        for key in touched.iter().chain(&changed) {
            for id in self.claims.holders(key) {
                if let Some(stack) = self.stacks.get_mut(&id) {
                    stack.progress.looked.remove(key);
                }
            }
        }
        let unclaimed = changed.iter().any(|key| {
            self.index.seen(key).is_some_and(|seen| seen.names_itself)
                && self.claims.holders(key).next().is_none()
        });
        for key in changed {
            for id in self.claims.holders(&key) {
                if let Some(stack) = self.stacks.get_mut(&id) {
                    stack.touched.insert(key.clone());
                    self.dirty.insert(id);
                }
            }
        }
        if listed {
            self.dirty.extend(self.stacks.keys());
        }
        if listed || unclaimed {
            self.tell_strays();
        }
    }

    /// E5: a record that somebody deletes is made again, at once.
    pub(super) fn mind_record(&mut self, change: &Change) {
        let key = match change {
            Change::Present(key, seen) if seen.deleting => key,
            Change::Gone(key, _) => key,
            _ => return,
        };
        if KindName::of(key) != wire::kind().name() {
            return;
        }
        for (id, stack) in &mut self.stacks {
            let name =
                stack.record.as_ref().map(|record| wire::record_name(&record.stack_name, record.stack));
            if name.is_some_and(|name| key.name == name || key.name == wire::other_name(&name)) {
                stack.record_lost = true;
                self.dirty.insert(*id);
            }
        }
    }

    /// What carries our marks and is in no record is told, and left.
    pub(super) fn tell_strays(&mut self) {
        for stray in self.index.strays(|key| self.claims.holders(key).next().is_some()) {
            if !self.strays.insert(stray.uid.clone()) {
                continue;
            }
            tracing::warn!(
                object = %stray.key.for_people(), uid = %stray.uid, stack.id = stray.stack.map(|id| id.to_string()),
                "carries this agent's marks and is in no record: left over from something that went wrong; \
                 delete it by hand, or apply a stack that names it"
            );
        }
    }

    /// Definitions and namespaces are watched only while somebody waits for one.
    pub(super) fn park(&mut self, id: StackId, on: &BTreeSet<Ground>) {
        for ground in [Ground::Definitions, Ground::Namespaces] {
            let waiting = self.parked.entry(ground).or_default();
            if on.contains(&ground) {
                waiting.insert(id);
                self.watches.park(ground);
            } else if waiting.remove(&id) && waiting.is_empty() {
                self.watches.unpark(ground);
            }
        }
    }

    /// F1: finds what no event told. Lists anew, goes over every object once, and stops watching what nobody has.
    pub(super) fn sweep(&mut self) {
        let mut kinds = BTreeSet::new();
        for (id, stack) in &mut self.stacks {
            stack.sweep();
            kinds.extend(stack.kinds());
            self.dirty.insert(*id);
        }
        kinds.insert(wire::kind().name());
        self.watches.retain(&kinds);
        self.watches.relist_all();
    }
}
