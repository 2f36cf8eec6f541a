//! Stores each value that thousands of objects share only once.
//!
//! Ten thousand live objects have a few dozen kinds and health states; each object holds a pointer to them.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

/// Stores equal values once. Unreferenced values are dropped as the interner grows.
pub struct Interner<T> {
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    values: HashSet<Arc<T>>,
    sweep_at: usize,
}

const MIN_SWEEP: usize = 256;

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { inner: Mutex::new(Inner { values: HashSet::new(), sweep_at: MIN_SWEEP }) }
    }
}

impl<T: Hash + Eq> Interner<T> {
    pub fn intern(&self, value: T) -> Arc<T> {
        let mut inner = self.inner.lock().expect("never poisoned");
        if let Some(known) = inner.values.get(&value) {
            return known.clone();
        }
        if inner.values.len() >= inner.sweep_at {
            inner.values.retain(|value| Arc::strong_count(value) > 1);
            inner.values.shrink_to_fit();
            inner.sweep_at = (inner.values.len() * 2).max(MIN_SWEEP);
        }
        let value = Arc::new(value);
        inner.values.insert(value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_shared_and_unreferenced_ones_dropped() {
        let interner = Interner::default();
        let held = interner.intern("held".to_owned());
        for number in 0..10 * MIN_SWEEP {
            interner.intern(number.to_string());
        }
        assert!(Arc::ptr_eq(&held, &interner.intern("held".to_owned())));
        assert!(interner.inner.lock().unwrap().values.len() <= MIN_SWEEP + 1);
    }
}
