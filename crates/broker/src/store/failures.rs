//! Statements that failed, counted by what they were for. The actions are words of this program: there are as many
//! as places in `store` that name one.

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
