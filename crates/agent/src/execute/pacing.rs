//! Adapts the number of concurrent requests to the load of the API server.
//!
//! The limit grows by one per round (as many responses as the limit allows requests). When the server is
//! overloaded, the limit is halved, at most once per round and never below one. After 30 seconds without
//! overload, the configured limit applies again. A Retry-After of the API server's own flow control delays all
//! requests for some seconds; that of a webhook delays only the refused one (D5).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// The time after which the last overload is forgotten.
const QUIET: Duration = Duration::from_secs(30);
/// The longest time for which a Retry-After delays all requests. The refused request itself waits for all of it (D2).
const LONGEST_HOLD: Duration = Duration::from_secs(5);

/// What a response says about the load of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerLoad {
    Normal,
    /// Overloaded, with its Retry-After.
    Overloaded(Option<Duration>),
}

impl ServerLoad {
    /// Returns what a response says. The API server's own flow control answers before the request is handled, with a
    /// plain text; a `Status` comes from the handling of this one request, for example from a webhook.
    #[must_use]
    pub fn of(status: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let is_about_this_request = body.trim_ascii_start().starts_with(b"{");
        match (status, retry_after) {
            _ if is_about_this_request => Self::Normal,
            (StatusCode::TOO_MANY_REQUESTS, _) | (StatusCode::SERVICE_UNAVAILABLE, Some(_)) => {
                Self::Overloaded(retry_after)
            }
            _ => Self::Normal,
        }
    }
}

/// The state machine, without tasks and clocks.
#[derive(Debug)]
struct ConcurrencyLimit {
    most: usize,
    allowed: usize,
    /// Responses since the limit last changed.
    answers: usize,
    /// When the limit was last halved.
    cut_at: Option<Instant>,
    /// The end of the longest Retry-After: no request is sent before that time.
    held_until: Option<Instant>,
}

impl ConcurrencyLimit {
    fn new(most: usize) -> Self {
        let most = most.max(1);
        Self { most, allowed: most, answers: 0, cut_at: None, held_until: None }
    }

    fn record(&mut self, sent: Instant, now: Instant, load: ServerLoad) {
        if self.cut_at.is_some_and(|at| now.duration_since(at) >= QUIET) {
            self.cut_at = None;
            self.allowed = self.most;
        }
        match load {
            ServerLoad::Normal => {
                self.answers += 1;
                if self.answers >= self.allowed && self.allowed < self.most {
                    self.allowed += 1;
                    self.answers = 0;
                }
            }
            ServerLoad::Overloaded(pause) => {
                // A request that was sent before the last cut says nothing about the current limit.
                if self.cut_at.is_none_or(|at| sent >= at) {
                    self.allowed = (self.allowed / 2).max(1);
                    self.answers = 0;
                    self.cut_at = Some(now);
                }
                if let Some(pause) = pause {
                    let until = now + pause.min(LONGEST_HOLD);
                    self.held_until = Some(self.held_until.map_or(until, |held| held.max(until)));
                }
            }
        }
    }
}

/// Slots for requests, as many as the limit allows.
pub struct RequestSlots {
    semaphore: Semaphore,
    state: Mutex<State>,
}

struct State {
    limit: ConcurrencyLimit,
    /// The number of slots, free or taken. Follows the limit; a taken slot is removed when it is released.
    existing: usize,
}

/// A taken slot. Released when dropped.
pub struct RequestSlot<'a> {
    slots: &'a RequestSlots,
    permit: Option<SemaphorePermit<'a>>,
    sent: Instant,
}

impl RequestSlots {
    #[must_use]
    pub fn new(most: usize) -> Self {
        let limit = ConcurrencyLimit::new(most);
        let existing = limit.allowed;
        Self { semaphore: Semaphore::new(existing), state: Mutex::new(State { limit, existing }) }
    }

    /// Waits for a slot, and for the end of a Retry-After.
    pub async fn take(&self) -> RequestSlot<'_> {
        // Never closed.
        let permit = self.semaphore.acquire().await.ok();
        loop {
            let held_until = self.state().limit.held_until;
            match held_until {
                Some(until) if until > Instant::now() => tokio::time::sleep_until(until).await,
                _ => return RequestSlot { slots: self, permit, sent: Instant::now() },
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestSlot<'_> {
    pub fn record_load(&self, load: ServerLoad) {
        let mut state = self.slots.state();
        state.limit.record(self.sent, Instant::now(), load);
        let allowed = state.limit.allowed;
        if state.existing < allowed {
            self.slots.semaphore.add_permits(allowed - state.existing);
            state.existing = allowed;
        } else {
            state.existing -= self.slots.semaphore.forget_permits(state.existing - allowed);
        }
    }
}

impl Drop for RequestSlot<'_> {
    fn drop(&mut self) {
        let mut state = self.slots.state();
        if state.existing > state.limit.allowed
            && let Some(permit) = self.permit.take()
        {
            permit.forget();
            state.existing -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(number: u64) -> Instant {
        // One base for a whole test is enough: only differences matter.
        static BASE: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *BASE.get_or_init(Instant::now) + Duration::from_secs(number)
    }

    #[test]
    fn d2_overload_halves_the_limit_once_per_round_and_never_below_one() {
        let mut limit = ConcurrencyLimit::new(32);
        for _ in 0..32 {
            limit.record(second(0), second(1), ServerLoad::Overloaded(None));
        }
        assert_eq!(limit.allowed, 16, "the refusals of one round halve the limit once");
        for round in 1..10 {
            limit.record(second(round), second(round), ServerLoad::Overloaded(None));
        }
        assert_eq!(limit.allowed, 1);
    }

    #[test]
    fn the_limit_grows_by_one_per_round_up_to_the_configured_limit() {
        let mut limit = ConcurrencyLimit::new(8);
        limit.record(second(0), second(0), ServerLoad::Overloaded(None));
        assert_eq!(limit.allowed, 4);
        for _ in 0..4 {
            limit.record(second(1), second(1), ServerLoad::Normal);
        }
        assert_eq!(limit.allowed, 5);
        for _ in 0..1000 {
            limit.record(second(2), second(2), ServerLoad::Normal);
        }
        assert_eq!(limit.allowed, 8);
    }

    #[test]
    fn after_a_quiet_time_the_configured_limit_applies_again() {
        let mut limit = ConcurrencyLimit::new(32);
        limit.record(second(0), second(0), ServerLoad::Overloaded(None));
        limit.record(second(29), second(29), ServerLoad::Normal);
        assert_eq!(limit.allowed, 16);
        limit.record(second(30), second(30), ServerLoad::Normal);
        assert_eq!(limit.allowed, 32);
    }

    #[test]
    fn d2_retry_after_is_obeyed_by_all_and_a_503_counts_only_with_it() {
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        assert_eq!(ServerLoad::of(unavailable, None, b""), ServerLoad::Normal);
        let pause = Some(Duration::from_secs(3));
        assert_eq!(ServerLoad::of(unavailable, pause, b""), ServerLoad::Overloaded(pause));
        let mut limit = ConcurrencyLimit::new(4);
        limit.record(second(0), second(1), ServerLoad::Overloaded(pause));
        limit.record(second(0), second(2), ServerLoad::Overloaded(Some(Duration::from_secs(1))));
        assert_eq!(limit.held_until, Some(second(4)), "the longer pause counts");
    }

    #[test]
    fn d5_the_retry_after_of_a_webhook_delays_no_other_request_and_that_of_the_server_only_for_seconds() {
        let (busy, pause) = (StatusCode::TOO_MANY_REQUESTS, Some(Duration::from_secs(300)));
        let webhook =
            br#"{"kind":"Status","code":429,"message":"admission webhook \"a\" denied the request"}"#;
        assert_eq!(ServerLoad::of(busy, pause, webhook), ServerLoad::Normal);
        let flow_control = b"Too many requests, please try again later.\n";
        let overloaded = ServerLoad::of(busy, pause, flow_control);
        assert_eq!(overloaded, ServerLoad::Overloaded(pause));
        let mut limit = ConcurrencyLimit::new(4);
        limit.record(second(0), second(0), overloaded);
        assert_eq!(limit.held_until, Some(second(5)));
    }

    #[tokio::test]
    async fn the_number_of_slots_follows_the_limit_even_while_they_are_taken() {
        let slots = RequestSlots::new(4);
        let taken = [slots.take().await, slots.take().await, slots.take().await, slots.take().await];
        let pause = Duration::from_millis(100);
        taken[0].record_load(ServerLoad::Overloaded(Some(pause)));
        drop(taken);
        assert_eq!(slots.semaphore.available_permits(), 2);
        let before = Instant::now();
        let held = slots.take().await;
        assert!(before.elapsed() + Duration::from_millis(20) >= pause, "all requests wait");
        for _ in 0..2 {
            held.record_load(ServerLoad::Normal);
        }
        drop(held);
        assert_eq!(slots.semaphore.available_permits(), 3);
    }
}
