//! Stores values that thousands of objects share only once.
//!
//! Ten thousand live objects have a few dozen kinds and states of health. Each holds a pointer.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

/// Stores equal values once. Values without a holder are dropped as the interner grows.
pub struct Interner<T> {
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    values: HashSet<Arc<T>>,
    tidy_at: usize,
}

const SMALL: usize = 256;

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { inner: Mutex::new(Inner { values: HashSet::new(), tidy_at: SMALL }) }
    }
}

impl<T: Hash + Eq> Interner<T> {
    pub fn intern(&self, value: T) -> Arc<T> {
        let mut inner = self.inner.lock().expect("never poisoned");
        if let Some(known) = inner.values.get(&value) {
            return known.clone();
        }
        if inner.values.len() >= inner.tidy_at {
            inner.values.retain(|value| Arc::strong_count(value) > 1);
            inner.values.shrink_to_fit();
            inner.tidy_at = (inner.values.len() * 2).max(SMALL);
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
    fn equal_values_are_one_and_what_has_no_holder_is_dropped() {
        let interner = Interner::default();
        let held = interner.intern("held".to_owned());
        for number in 0..10 * SMALL {
            interner.intern(number.to_string());
        }
        assert!(Arc::ptr_eq(&held, &interner.intern("held".to_owned())));
        assert!(interner.inner.lock().unwrap().values.len() <= SMALL + 1);
    }
}
