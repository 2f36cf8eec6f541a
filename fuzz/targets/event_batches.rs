//! Batches of reports, as agents send them.
#![no_main]

use brokkr_api::AgentId;
use brokkr_api::report::ReportBatch;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(batch) = serde_json::from_slice::<ReportBatch>(bytes) else { return };
    let agent = AgentId(uuid::Uuid::from_u128(7));
    let written = serde_json::to_vec(&batch).expect("it was read");
    let again: ReportBatch = serde_json::from_slice(&written).expect("it was written by us");
    assert_eq!(again, batch);
    for (one, other) in batch.reports.iter().zip(&again.reports) {
        assert_eq!(one.derived_id(agent), other.derived_id(agent), "the same report has the same id");
    }
});
