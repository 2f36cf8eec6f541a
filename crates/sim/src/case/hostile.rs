//! Stories in which the cluster, its users and its permissions do their worst.

use brokkr_agent::resource::KindName;
use jiff::SignedDuration;

use super::{Act, Case};
use crate::objects::{DEFINITION, Item, key};
use crate::rng::Rng;
use crate::server::{FORGED_SEQUENCE, Meddling};

const JOB: &str = "batch/Job/shop/migrate";

impl Case {
    /// Returns the story of a seed, with acts in between that the agent must survive, and resources that need more care.
    #[must_use]
    pub fn hostile(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x0a05_711e);
        let mut case = Self { strict: true, ..Self::from_seed(seed) };
        let mut acts = Vec::new();
        for mut act in std::mem::take(&mut case.acts) {
            if let Act::Submit(_, items) = &mut act {
                items.iter_mut().for_each(|item| sharpen(&mut rng, item));
                let has_namespace = items.iter().any(|item| item.key == key("/Namespace//shop"));
                if has_namespace && rng.percent(25) {
                    items.push(Item { ttl: rng.percent(70), ..Item::new(JOB, 1) });
                }
            }
            let target = match &act {
                Act::Submit(_, items) => Some(rng.pick(items).key.clone()),
                _ => None,
            };
            let slot = rng.below(3);
            acts.push(act);
            let kind = target.as_ref().map(KindName::of);
            acts.extend(match (rng.below(24), target, kind) {
                (0 | 1, Some(target), _) => {
                    Some(Act::Meddle(target, Meddling::SetSequence(FORGED_SEQUENCE.into())))
                }
                (2 | 3, Some(target), _) => Some(Act::Meddle(target, Meddling::TakeLabelOff)),
                (4, Some(target), _) => Some(Act::Meddle(target, Meddling::TakeMarksOff)),
                (5 | 6, _, Some(kind)) => Some(Act::DenyWatch(kind)),
                (7, _, Some(kind)) => Some(Act::AllowWatch(kind)),
                (8, ..) => Some(Act::RefuseRecords),
                (9, ..) => Some(Act::AcceptRecords),
                (10, ..) => Some(Act::DropRecord(slot)),
                (11, ..) => Some(Act::DropMemory),
                (12 | 13, ..) => Some(Act::Restart(SignedDuration::ZERO)),
                (14, ..) => Some(Act::Restart(SignedDuration::from_hours(1))),
                (15, ..) => Some(Act::Restart(SignedDuration::from_hours(-1))),
                (16, ..) => Some(Act::Narrow(slot)),
                (17, ..) => Some(Act::Widen(slot)),
                (18 | 19, ..) => Some(Act::Meddle(key(DEFINITION), Meddling::DropBeta)),
                _ => None,
            });
        }
        case.acts = acts;
        case
    }
}

fn sharpen(rng: &mut Rng, item: &mut Item) {
    let is_custom = item.key.group.ends_with("example.com");
    item.replace = item.immutable && rng.percent(50);
    item.beta = (is_custom || item.key == key(DEFINITION)) && rng.percent(40);
}
