//! One stack, step by step: for tests that determine what happens instead of leaving it to chance.

use brokkr_agent::model::Record;
use brokkr_api::envelope::TargetStack;
use brokkr_api::report::{Report, Transition};
use brokkr_api::{SequenceId, StackId};
use brokkr_manifest::Key;

use crate::objects::{Item, key};
use crate::server::{Meddling, Object};
use crate::world::World;

pub struct Scene {
    pub world: World,
    pub stack: StackId,
}

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}

impl Scene {
    #[must_use]
    pub fn new() -> Self {
        Self::in_world(World::new(7))
    }

    /// Returns a scene with the fence, in which every promise is checked.
    #[must_use]
    pub fn strict() -> Self {
        Self::in_world(World::strict(7))
    }

    fn in_world(mut world: World) -> Self {
        world.trace = Some(Vec::new());
        Self { world, stack: World::stack_id(0) }
    }

    /// Returns a scene in which these resources have been delivered.
    #[must_use]
    pub fn with(items: &[Item]) -> Self {
        let mut scene = Self::new();
        scene.deliver(items);
        scene
    }

    pub fn submit(&mut self, items: &[Item]) -> SequenceId {
        self.submit_to(self.stack, items)
    }

    pub fn submit_to(&mut self, stack: StackId, items: &[Item]) -> SequenceId {
        let now = self.world.now();
        self.world.broker.submit(stack, "web", items, now)
    }

    pub fn deliver(&mut self, items: &[Item]) -> SequenceId {
        let sequence = self.submit(items);
        self.settle();
        sequence
    }

    /// Runs until nothing happens any more. Panics if an invariant is violated.
    pub fn settle(&mut self) {
        if let Err(violation) = self.world.settle() {
            panic!("{violation}\n{}", self.trace().join("\n"));
        }
    }

    /// Gives the agent this target state, whatever the broker's is.
    pub fn set_targets(&mut self, targets: Vec<TargetStack>) {
        let now = self.world.agent_now();
        self.world.run.set_targets(targets, now);
    }

    /// Makes the waves of the stack wait, from its next version on. The stack has to exist.
    pub fn wait_for_waves(&mut self, seconds: u32) {
        self.world.broker.wait_for_waves(self.stack, Some(seconds));
    }

    /// Lets an object become ready or unready.
    pub fn set_ready(&mut self, name: &str, is_ready: bool) {
        self.world.set_ready(&key(name), is_ready);
    }

    /// Lets a Job fail from its next run on, or complete.
    pub fn set_failing(&mut self, job: &str, is_failing: bool) {
        let failing = &mut self.world.server.failing_jobs;
        if is_failing {
            failing.insert(key(job))
        } else {
            failing.remove(&key(job))
        };
    }

    pub fn delete(&mut self) {
        self.world.broker.delete(self.stack);
        self.settle();
    }

    pub fn meddle(&mut self, name: &str, what: &Meddling) {
        self.world.meddle(&key(name), what);
    }

    #[must_use]
    pub fn object(&self, name: &str) -> Option<&Object> {
        self.world.server.objects.get(&key(name))
    }

    /// Returns the names of all objects except the namespace `default`.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let names = self.world.server.objects.keys().map(Key::to_string);
        names.filter(|name| name != "/Namespace//default").collect()
    }

    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        self.world.records.get(self.stack)
    }

    #[must_use]
    pub fn trace(&self) -> &[String] {
        self.world.trace.as_deref().unwrap_or_default()
    }

    pub fn forget_trace(&mut self) {
        self.world.trace = Some(Vec::new());
    }

    /// Returns the index of the first trace line of this request, such as `apply KEY`. Lines of requests are
    /// `NUMBER STACK STEP KEY → RESULT`.
    #[must_use]
    pub fn position(&self, request: &str) -> Option<usize> {
        let delimited = format!(" {request} → ");
        self.trace().iter().position(|line| line.contains(&delimited))
    }

    #[must_use]
    pub fn reports(&self, transition: Transition) -> Vec<&Report> {
        let reports = self.world.broker.reports.values();
        reports.filter(|report| report.stack_id == self.stack && report.transition == transition).collect()
    }
}
