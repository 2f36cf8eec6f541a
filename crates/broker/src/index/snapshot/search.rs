//! Agents, stacks and versions by a part of their names, their ids or checksums.

use std::cmp::Reverse;

use brokkr_api::fleet::{FoundAgent, FoundStack, FoundVersion, SearchResults};
use brokkr_api::{AgentId, StackId};
use roaring::RoaringBitmap;
use uuid::Uuid;

use super::Snapshot;

/// The shortest prefix of a checksum: a shorter one would match nearly everything that is typed.
const SHORTEST_CHECKSUM: usize = 4;

impl Snapshot {
    /// Returns up to `limit` of each: among these agents, and of the stacks of a project. Names that begin with the text come first,
    /// then shorter ones.
    #[must_use]
    pub fn search(&self, text: &str, project: &str, agents: &RoaringBitmap, limit: usize) -> SearchResults {
        let id: Option<Uuid> = text.parse().ok();
        let mut found_agents: Vec<(&str, AgentId)> = match id {
            Some(id) => {
                let slot = self.slot(AgentId(id)).filter(|slot| agents.contains(*slot));
                slot.map(|slot| (self.at(slot).name.as_str(), AgentId(id))).into_iter().collect()
            }
            None => {
                let named = agents.iter().map(|slot| self.at(slot)).filter(|agent| agent.name.contains(text));
                named.map(|agent| (agent.name.as_str(), agent.id)).collect()
            }
        };
        let own = || self.stacks.values().filter(|stack| stack.project == project && !stack.deleted);
        let is_found =
            |name: &str, stack: StackId| id.map_or_else(|| name.contains(text), |id| stack.0 == id);
        let mut found_stacks: Vec<(&str, StackId)> = own()
            .filter(|stack| is_found(&stack.name, stack.id))
            .map(|stack| (stack.name.as_str(), stack.id))
            .collect();
        let is_checksum =
            text.len() >= SHORTEST_CHECKSUM && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut versions = Vec::new();
        for stack in own().filter(|_| is_checksum) {
            for object in stack.objects().filter(|object| object.checksum.to_string().starts_with(text)) {
                let Ok(stack_name) = stack.name.parse() else { continue };
                let (sequence_id, checksum) = (object.sequence_id, object.checksum);
                versions.push(FoundVersion { stack_id: stack.id, stack_name, sequence_id, checksum });
            }
        }
        let more =
            [found_agents.len(), found_stacks.len(), versions.len()].iter().any(|found| *found > limit);
        keep_best(&mut found_agents, text, limit);
        keep_best(&mut found_stacks, text, limit);
        versions.sort_unstable_by_key(|version| Reverse(version.sequence_id));
        versions.truncate(limit);
        SearchResults {
            agents: found_agents
                .into_iter()
                .filter_map(|(name, id)| Some(FoundAgent { id, name: name.parse().ok()? }))
                .collect(),
            stacks: found_stacks
                .into_iter()
                .filter_map(|(name, id)| Some(FoundStack { id, name: name.parse().ok()? }))
                .collect(),
            versions,
            more,
        }
    }
}

/// Keeps the best matches, sorted.
fn keep_best<Id: Ord + Copy>(found: &mut Vec<(&str, Id)>, text: &str, limit: usize) {
    let order = |one: &(&str, Id), other: &(&str, Id)| {
        let rank = |name: &str| (!name.starts_with(text), name.len());
        (rank(one.0), one.0, one.1).cmp(&(rank(other.0), other.0, other.1))
    };
    if found.len() > limit {
        found.select_nth_unstable_by(limit, order);
        found.truncate(limit);
    }
    found.sort_unstable_by(order);
}
