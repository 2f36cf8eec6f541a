//! Manifests: parsing ends and is deterministic, and redacting does not panic.
#![no_main]

use brokkr_manifest::{Budget, parse, redacted};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let budget = Budget::default();
    let Ok(manifest) = parse(bytes, &budget) else { return };
    assert!(!manifest.objects.is_empty());
    assert_eq!(parse(bytes, &budget).expect("it was read before").digest(), manifest.digest());
    for object in &manifest.objects {
        // Printing and parsing an object gives the same object.
        let json = serde_json::to_vec(&object.body).expect("it is JSON");
        let again = parse(&json, &budget).expect("what was read can be read");
        assert_eq!(again.objects[0].digest, object.digest);
        let _ = redacted(&object.body);
    }
});
