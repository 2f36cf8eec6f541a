//! A small seeded random generator: eight bytes per agent, reproducible.

use std::ops::Range;
use std::time::Duration;

/// splitmix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64, number: usize) -> Self {
        Self(seed ^ (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 (inclusive) to 1 (exclusive).
    pub fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns true with this probability.
    pub fn chance(&mut self, rate: f64) -> bool {
        rate > 0.0 && self.part() < rate
    }

    pub fn within(&mut self, range: &Range<Duration>) -> Duration {
        range.start + range.end.saturating_sub(range.start).mul_f64(self.part())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reproducible_spread_and_within_bounds() {
        let throws = |seed| {
            let mut random = Random::new(seed, 7);
            (0..1000).map(|_| random.part()).collect::<Vec<_>>()
        };
        assert_eq!(throws(1), throws(1));
        assert_ne!(throws(1), throws(2));
        let mean = throws(1).iter().sum::<f64>() / 1000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
        let mut random = Random::new(3, 1);
        let range = Duration::from_secs(1)..Duration::from_secs(2);
        assert!((0..100).all(|_| range.contains(&random.within(&range))));
        assert!(!random.chance(0.0));
    }
}
