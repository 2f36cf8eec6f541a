//! Every order of the steps of both processes, with a crash of either after every step. A request that the API server refuses changes
//! nothing, so it is a step that is not taken.

use std::collections::{BTreeMap, BTreeSet};

use brokkr_api::UpgradeId;
use brokkr_api::upgrades::ProofCheck;
use jiff::Timestamp;

use super::*;
use crate::upgrade::role::{Attempt, ProofResult};

const V1: &str = "0.1.0";
const V2: &str = "0.2.0";
const OLD: &str = "registry.example/brokkr-agent:1";
const NEW: &str = "registry.example/brokkr-agent@sha256:22";
/// More than any undisturbed run needs.
const ROUNDS: usize = 40;

/// The quality of the new version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Quality {
    Good,
    FailsProof,
    NeverReady,
    /// Its image contains another version than the offer says.
    Mislabelled,
}

impl Quality {
    fn version(self) -> &'static str {
        if self == Self::Mislabelled { "0.9.0" } else { V2 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Process {
    /// Its container does not run, but its Pod exists.
    Down,
    Serves,
    StandsBy,
    /// The old one has restored its image, and has not looked yet who has the session.
    HasRestored,
    Proves,
    /// The new one has written that it takes over.
    Proven,
    /// It has read once more that nobody has undone the upgrade, and raises the session count next.
    TakesOver,
    NeverServes,
}

/// The result and the end as far as they matter, because those with reasons have no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Written {
    Nothing,
    TakesOver,
    Refuses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Old,
    New,
}

/// The cluster and the memory of both processes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    deployed: DeployedVersion,
    is_attempt_stored: bool,
    written: Written,
    is_end_stored: bool,
    /// The Pods; none once the Deployment has removed them.
    old: Option<Process>,
    new: Option<Process>,
    /// The process with the highest session count.
    session: Version,
    /// The old process has watched for too long.
    is_overdue: bool,
}

impl World {
    fn start() -> Self {
        let deployed = DeployedVersion { image: OLD.to_owned(), ..DeployedVersion::default() };
        Self {
            deployed,
            is_attempt_stored: false,
            written: Written::Nothing,
            is_end_stored: false,
            old: Some(Process::Serves),
            new: None,
            session: Version::Old,
            is_overdue: false,
        }
    }

    fn stored(&self) -> StoredUpgrade {
        let image = || NEW.to_owned();
        let reason = UpgradeReason::NotProved { check: ProofCheck::State, message: "no".to_owned() };
        let verdict = match self.written {
            Written::Nothing => None,
            Written::TakesOver => Some(Verdict::TakesOver),
            Written::Refuses => Some(Verdict::Refuses { reason: reason.clone() }),
        };
        StoredUpgrade {
            attempt: self.is_attempt_stored.then(|| Attempt {
                id: UpgradeId(7),
                image: image(),
                from: V1.to_owned(),
            }),
            result: verdict.map(|verdict| ProofResult { image: image(), verdict }),
            end: self.is_end_stored.then(|| End {
                image: image(),
                reason,
                at: Timestamp::UNIX_EPOCH,
                is_reported: false,
            }),
        }
    }

    fn first_step(&self, own: &str) -> FirstStep {
        first_step(own, &self.deployed, &self.stored())
    }

    fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        change(&mut next);
        // The Deployment creates the Pod of its image.
        if next.deployed.image == NEW {
            next.new.get_or_insert(Process::Down);
        } else {
            next.old.get_or_insert(Process::Down);
        }
        next
    }

    /// Returns what the old process, the new one and Kubernetes can do next, without crashes.
    fn progress(&self, quality: Quality) -> Vec<Self> {
        [self.old_steps(), self.new_steps(quality), self.deployment_steps(quality)].concat()
    }

    fn old_steps(&self) -> Vec<Self> {
        match self.old {
            Some(Process::Down) => match self.first_step(V1) {
                FirstStep::Serve => vec![self.with(|world| {
                    (world.old, world.session) = (Some(Process::Serves), Version::Old);
                })],
                FirstStep::StandBy => vec![self.with(|world| world.old = Some(Process::StandsBy))],
                other => panic!("the old process would {other:?}: {self:?}"),
            },
            Some(Process::Serves | Process::StandsBy) => self.watched(),
            // It waits until the new Pod is gone, or for 15 s.
            Some(Process::HasRestored) => vec![self.with(|world| {
                (world.old, world.session) = (Some(Process::Serves), Version::Old);
            })],
            _ => Vec::new(),
        }
    }

    fn watched(&self) -> Vec<Self> {
        match next_step(V1, &self.deployed, &self.stored(), self.is_overdue) {
            // The offer, once: the attempt is stored before the Deployment is changed.
            NextStep::Idle if self.old == Some(Process::Serves) && self.session == Version::Old => {
                if self.deployed.agent_version.is_some() {
                    Vec::new()
                } else if self.is_attempt_stored {
                    vec![self.with(|world| world.deployed = world.deployed.begun(NEW, V2))]
                } else {
                    vec![self.with(|world| world.is_attempt_stored = true)]
                }
            }
            NextStep::Idle | NextStep::ReportEnd(_) => Vec::new(),
            NextStep::Watch => vec![self.with(|world| world.is_overdue = true)],
            NextStep::Restore(_) if !self.is_end_stored => {
                vec![self.with(|world| world.is_end_stored = true)]
            }
            NextStep::Restore(_) => vec![self.with(|world| {
                world.deployed = world.deployed.restored().expect("it is under way");
                world.old = Some(Process::HasRestored);
            })],
        }
    }

    fn new_steps(&self, quality: Quality) -> Vec<Self> {
        let own = quality.version();
        match self.new {
            // The kubelet restarts no container of a Pod that is being deleted.
            Some(Process::Down) if self.deployed.image == OLD => Vec::new(),
            Some(Process::Down) => vec![match self.first_step(own) {
                FirstStep::Serve => self.with(|world| {
                    (world.new, world.session) = (Some(Process::Serves), Version::New);
                }),
                FirstStep::Prove => self.with(|world| world.new = Some(Process::Proves)),
                FirstStep::Refuse(_) => self.with(|world| {
                    (world.new, world.written) = (Some(Process::NeverServes), Written::Refuses);
                }),
                FirstStep::Wait => self.with(|world| world.new = Some(Process::NeverServes)),
                FirstStep::StandBy => panic!("the new process would stand by: {self:?}"),
            }],
            Some(Process::Proves) if quality == Quality::FailsProof => vec![self.with(|world| {
                (world.new, world.written) = (Some(Process::NeverServes), Written::Refuses);
            })],
            Some(Process::Proves) => vec![self.with(|world| {
                (world.new, world.written) = (Some(Process::Proven), Written::TakesOver);
            })],
            Some(Process::Proven) if may_take_over(own, &self.deployed, &self.stored()) => {
                vec![self.with(|world| world.new = Some(Process::TakesOver))]
            }
            Some(Process::TakesOver) => vec![self.with(|world| {
                (world.new, world.session) = (Some(Process::Serves), Version::New);
            })],
            // It is confirmed only while nobody has superseded it.
            Some(Process::Serves)
                if quality == Quality::Good
                    && self.session == Version::New
                    && self.deployed.is_under_way() =>
            {
                vec![self.with(|world| world.deployed = world.deployed.confirmed())]
            }
            _ => Vec::new(),
        }
    }

    /// A Pod that the Deployment does not want any more ends: the new one after a restore, the old one once the new one is ready.
    fn deployment_steps(&self, quality: Quality) -> Vec<Self> {
        let mut next = Vec::new();
        if self.deployed.image == OLD && self.new.is_some() {
            next.push(self.with(|world| world.new = None));
        }
        let is_confirmed = self.deployed.image == NEW && !self.deployed.is_under_way();
        let is_ready = quality == Quality::Good
            && is_confirmed
            && self.new == Some(Process::Serves)
            && self.session == Version::New;
        if is_ready && self.old.is_some() {
            next.push(self.with(|world| world.old = None));
        }
        // Ten minutes later, a superseded process starts again if no upgrade is under way.
        if is_confirmed && self.new == Some(Process::Serves) && self.session == Version::Old {
            next.push(self.with(|world| world.new = Some(Process::Down)));
        }
        let is_restored = self.deployed.image == OLD;
        if is_restored && self.old == Some(Process::Serves) && self.session == Version::New {
            next.push(self.with(|world| world.old = Some(Process::Down)));
        }
        next
    }

    fn crashes(&self) -> Vec<Self> {
        let mut next = Vec::new();
        if self.old.is_some() {
            next.push(self.with(|world| (world.old, world.is_overdue) = (Some(Process::Down), false)));
        }
        if self.new.is_some() {
            next.push(self.with(|world| world.new = Some(Process::Down)));
        }
        next
    }

    fn check(&self, quality: Quality) {
        let is_confirmed = self.deployed.image == NEW && !self.deployed.is_under_way();
        assert!(quality == Quality::Good || !is_confirmed, "{quality:?} is confirmed: {self:?}");
        let has_taken_over = self.session == Version::New;
        let may = matches!(quality, Quality::Good | Quality::NeverReady);
        assert!(may || !has_taken_over, "{quality:?} has taken over: {self:?}");
        assert!(self.old.is_some() || is_confirmed, "the old Pod is gone too early: {self:?}");
    }

    /// Returns whether one version serves and nothing remains to be done; which one.
    fn settled(&self) -> Option<Version> {
        let (process, version) =
            if self.deployed.image == OLD { (self.old, Version::Old) } else { (self.new, Version::New) };
        let serves = process == Some(Process::Serves) && self.session == version;
        (serves && !self.deployed.is_under_way()).then_some(version)
    }
}

fn reachable(quality: Quality) -> BTreeSet<World> {
    let mut seen = BTreeSet::from([World::start()]);
    let mut waiting = vec![World::start()];
    while let Some(world) = waiting.pop() {
        world.check(quality);
        for next in world.progress(quality).into_iter().chain(world.crashes()) {
            // A confirmed version never goes back.
            let was_confirmed = world.deployed.image == NEW && !world.deployed.is_under_way();
            assert!(!was_confirmed || next.deployed == world.deployed, "{world:?} became {next:?}");
            if seen.insert(next.clone()) {
                waiting.push(next);
            }
        }
    }
    seen
}

/// Lets every process take its steps in turns until nothing changes. Time passes only while nothing else happens.
fn undisturbed(mut world: World, quality: Quality) -> World {
    for _ in 0..ROUNDS {
        let steps = [world.new_steps(quality), world.deployment_steps(quality), world.old_steps()].concat();
        let Some(next) = steps.into_iter().find(|next| *next != world) else { return world };
        world = next;
    }
    panic!("it does not end: {world:?}");
}

#[test]
fn whatever_crashes_an_upgrade_ends_with_a_version_that_works() {
    for quality in [Quality::Good, Quality::FailsProof, Quality::NeverReady, Quality::Mislabelled] {
        let mut ends: BTreeMap<Option<Version>, usize> = BTreeMap::new();
        let expected = if quality == Quality::Good { Version::New } else { Version::Old };
        assert_eq!(undisturbed(World::start(), quality).settled(), Some(expected), "{quality:?}");
        let worlds = reachable(quality);
        assert!(worlds.len() > 30, "{quality:?} has only {} states", worlds.len());
        for world in worlds {
            let end = undisturbed(world.clone(), quality);
            assert!(end.settled().is_some(), "{quality:?}: {world:?} ends as {end:?}");
            *ends.entry(end.settled()).or_default() += 1;
        }
        let ends: Vec<Option<Version>> = ends.into_keys().collect();
        match quality {
            Quality::Good => assert_eq!(ends, [Some(Version::Old), Some(Version::New)]),
            _ => assert_eq!(ends, [Some(Version::Old)], "{quality:?}"),
        }
    }
}

#[test]
fn a_superseded_candidate_does_not_take_over_after_a_restore() {
    let mut world = World::start();
    world.deployed = world.deployed.begun(NEW, V2);
    assert!(may_take_over(V2, &world.deployed, &world.stored()));
    world.deployed = world.deployed.restored().unwrap();
    assert!(!may_take_over(V2, &world.deployed, &world.stored()));
}
