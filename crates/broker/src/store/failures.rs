//! Failed statements, counted by action. The actions are constants of this program, so their number is bounded.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

static FAILED: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

pub fn count(action: &'static str) {
    *lock().entry(action).or_default() += 1;
}

pub fn counted() -> Vec<(&'static str, u64)> {
    lock().iter().map(|(action, count)| (*action, *count)).collect()
}

fn lock() -> MutexGuard<'static, BTreeMap<&'static str, u64>> {
    FAILED.lock().unwrap_or_else(PoisonError::into_inner)
}
