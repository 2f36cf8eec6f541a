//! D6: a crash, a lost answer or a refusal at any step leads to the same final state as a run without
//! faults.

use brokkr_sim::objects::Item;
use brokkr_sim::play::{stories, with_a_fault_everywhere};
use brokkr_sim::scene::Scene;
use brokkr_sim::world::Fault;

#[test]
fn d6_a_crash_after_any_step_leads_to_the_same_final_state() {
    stories(6, |case| with_a_fault_everywhere(case, Fault::Crash));
}

#[test]
fn d6_a_lost_answer_at_any_step_leads_to_the_same_final_state() {
    stories(6, |case| with_a_fault_everywhere(case, Fault::LostAnswer));
}

#[test]
fn d2_an_overloaded_server_at_any_step_leads_to_the_same_final_state() {
    stories(6, |case| with_a_fault_everywhere(case, Fault::Overload));
}

/// Found by the fault matrix: a run was killed after it created a namespace and before it recorded that. The namespace
/// counted as foreign, and was never deleted.
#[test]
fn d6_a_namespace_created_just_before_a_crash_is_deleted_with_its_stack() {
    for fault in [Fault::Crash, Fault::LostAnswer] {
        for at in 0..20 {
            let mut scene = Scene::new();
            scene.world.fault = Some(fault(at));
            scene.deliver(&[Item::new("/Namespace//shop", 1), Item::new("/ConfigMap/shop/settings", 1)]);
            assert!(scene.object("/Namespace//shop").is_some());
            scene.delete();
            assert!(scene.names().is_empty(), "{:?}: {:#?}", fault(at), scene.trace());
        }
    }
}
