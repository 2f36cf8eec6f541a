//! Stories: the initial objects of a cluster, and what users then do. A seed determines a story.

mod hostile;

use std::collections::{BTreeMap, BTreeSet};

use brokkr_agent::resource::KindName;
use brokkr_manifest::Key;
use jiff::SignedDuration;

use crate::objects::{DEFINITION, Item, key};
use crate::rng::Rng;
use crate::server::Meddling;

/// The names from which stories choose: few, so that stacks and users often choose the same one.
const NAMES: [&str; 12] = [
    "/Namespace//shop",
    "/Namespace//yard",
    "/ConfigMap/shop/settings",
    "/ConfigMap/shop/notes",
    "/Secret/shop/key",
    "apps/Deployment/shop/web",
    "/Service/shop/web",
    "/ConfigMap/yard/settings",
    "/ConfigMap/default/notes",
    DEFINITION,
    "example.com/Widget/shop/small",
    "example.com/Widget/default/large",
];

/// Something that happens in a story. Stacks are named by the number of their slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Submits a deployment object for the stack in this slot; after a deletion, the slot gets a new stack.
    Submit(usize, Vec<Item>),
    /// Submits the newest content of the stack again.
    Again(usize),
    Delete(usize),
    Untarget(usize),
    Target(usize),
    Meddle(Key, Meddling),
    BreakWatches,
    /// The agent reconciles everything, as it does every few hours.
    Sweep,
    BrokerGoes,
    BrokerReturns,
    /// The agent loses the permission to watch a kind.
    DenyWatch(KindName),
    AllowWatch(KindName),
    /// No record can be written.
    RefuseRecords,
    AcceptRecords,
    /// A user deletes the record of the stack in this slot.
    DropRecord(usize),
    /// A user deletes the agent's stored state.
    DropMemory,
    /// The agent is restarted, and its clock differs from that of the earlier run by this much.
    Restart(SignedDuration),
    /// The grant of the stack's project covers only one namespace.
    Narrow(usize),
    Widen(usize),
}

#[derive(Clone, Debug)]
pub struct Case {
    pub seed: u64,
    /// The delay of every action of a controller.
    pub pace: SignedDuration,
    pub acts: Vec<Act>,
    /// Whether the fence is installed, and every promise is checked.
    pub strict: bool,
    /// Whether every request is recorded.
    pub trace: bool,
}

impl Case {
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let stacks = 1 + rng.below(3);
        let mut acts = Vec::new();
        for _ in 0..rng.below(4) {
            acts.push(before(&mut rng));
        }
        let mut latest = vec![Vec::new(); stacks];
        for _ in 0..2 + rng.below(6) {
            let stack = rng.below(stacks);
            acts.push(act(&mut rng, stack, &mut latest));
            if rng.percent(40) {
                acts.push(meddle(&mut rng, &latest));
            }
        }
        let pace = SignedDuration::from_millis([50, 900, 4_000][rng.below(3)]);
        Self { seed, pace, acts, strict: false, trace: false }
    }

    /// Returns whether two stacks ever want the same resource at the same time: the first one gets it. Or whether one uses a
    /// kind of which another one, or an earlier version, has the definition: how far it is delivered depends on what is served
    /// at that moment, or is remembered. A fault that delays one of them may change the final state.
    #[must_use]
    pub fn is_contested(&self) -> bool {
        let submissions = || {
            self.acts.iter().filter_map(|act| match act {
                Act::Submit(_, items) => Some(items),
                _ => None,
            })
        };
        let defines = |items: &Vec<Item>| items.iter().any(|item| item.key == key(DEFINITION));
        let depends = |items: &Vec<Item>| items.iter().any(|item| item.key.group == "example.com");
        if submissions().any(|items| depends(items) && !defines(items)) && submissions().any(defines) {
            return true;
        }
        let mut desired: BTreeMap<usize, &[Item]> = BTreeMap::new();
        self.acts.iter().any(|act| {
            match act {
                Act::Submit(slot, items) => {
                    desired.insert(*slot, items);
                }
                Act::Delete(slot) => {
                    desired.remove(slot);
                }
                _ => {}
            }
            let all: BTreeSet<&Key> = desired.values().copied().flatten().map(|item| &item.key).collect();
            all.len() < desired.values().map(|items| items.len()).sum()
        })
    }
}

/// Returns an act that creates an object before Brokkr is used.
fn before(rng: &mut Rng) -> Act {
    let what = match rng.below(10) {
        0 | 1 => Meddling::CreateForAnother,
        2 => Meddling::CreateChildOf(key("/Namespace//default")),
        _ => Meddling::Create,
    };
    // Namespaces more often than other objects, which cannot exist without them.
    let name = if rng.percent(40) { NAMES[rng.below(2)] } else { NAMES[rng.below(NAMES.len())] };
    Act::Meddle(key(name), what)
}

fn act(rng: &mut Rng, stack: usize, latest: &mut [Vec<Item>]) -> Act {
    let other = rng.below(latest.len());
    match rng.below(20) {
        0 | 1 => Act::Delete(stack),
        2 => Act::Untarget(stack),
        3 => Act::Target(stack),
        4 => Act::Again(stack),
        // Moves an object to another stack: one of the two stacks is submitted now, the other one with its next version.
        5 | 6 if other != stack && !latest[other].is_empty() => {
            let chosen = rng.below(latest[other].len());
            let moved = latest[other].remove(chosen);
            latest[stack].retain(|item| item.key != moved.key);
            latest[stack].push(moved);
            if rng.percent(50) && !latest[other].is_empty() {
                Act::Submit(other, latest[other].clone())
            } else {
                Act::Submit(stack, latest[stack].clone())
            }
        }
        _ => {
            let taken: Vec<Key> = latest
                .iter()
                .enumerate()
                .filter(|(slot, _)| *slot != stack)
                .flat_map(|(_, items)| items.iter().map(|item| item.key.clone()))
                .collect();
            latest[stack] = content(rng, &latest[stack], &taken);
            Act::Submit(stack, latest[stack].clone())
        }
    }
}

/// Returns the next deployment object: most objects of the last one, some of them changed, and some new ones. Objects of
/// other stacks are mostly left out.
fn content(rng: &mut Rng, last: &[Item], taken: &[Key]) -> Vec<Item> {
    let mut items = Vec::new();
    for name in NAMES {
        let found = last.iter().find(|item| item.key == key(name));
        let contested = taken.contains(&key(name)) && !rng.percent(8);
        let chance = if found.is_some() { 75 } else { 35 };
        if contested || !rng.percent(chance) {
            continue;
        }
        let mut item = found.cloned().unwrap_or_else(|| Item::new(name, 0));
        if found.is_none() || rng.percent(30) {
            let plain = name.starts_with("/ConfigMap");
            item.value = u8::try_from(rng.below(3)).unwrap_or_default();
            item.wide = rng.percent(30);
            item.wave = [0, 0, 0, -1, 2][rng.below(5)];
            item.keep = rng.percent(10);
            item.immutable = plain && rng.percent(5);
            item.broken = plain && rng.percent(6);
        }
        items.push(item);
    }
    if items.is_empty() {
        items.push(Item::new("/ConfigMap/default/notes", 1));
    }
    items
}

fn meddle(rng: &mut Rng, latest: &[Vec<Item>]) -> Act {
    let ours: Vec<&Item> = latest.iter().flatten().collect();
    let target = if ours.is_empty() || rng.percent(15) {
        key(NAMES[rng.below(NAMES.len())])
    } else {
        rng.pick(&ours).key.clone()
    };
    match rng.below(12) {
        0 => [Act::BreakWatches, Act::Sweep][rng.below(2)].clone(),
        1 => Act::BrokerGoes,
        2 => Act::BrokerReturns,
        3 => Act::Meddle(target, Meddling::Delete),
        4 => Act::Meddle(target, Meddling::TakeMarksOff),
        5 => Act::Meddle(target, Meddling::TakeLabelOff),
        6 => Act::Meddle(target, Meddling::Keep),
        7 => Act::Meddle(target, Meddling::Hold),
        8 => Act::Meddle(key("/ConfigMap/shop/theirs"), Meddling::Create),
        9 => Act::Meddle(key("example.com/Widget/default/theirs"), Meddling::Create),
        10 => Act::Meddle(target, Meddling::Create),
        _ => Act::Meddle(target, Meddling::Change),
    }
}
