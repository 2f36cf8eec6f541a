//! Names that no other test uses, and the seed of the run.

/// Returns a name such as `base-1f3a9c2e`, valid for Kubernetes objects, stacks and agents.
pub fn unique(base: &str) -> String {
    format!("{base}-{:08x}", rand::random::<u32>())
}

/// Returns the seed of this run's random choices: `BROKKR_SEED` if it is set (`cargo xtask e2e --seed N`), else a
/// new one. Prints it, so that a failure can be replayed.
pub fn seed() -> u64 {
    let seed = std::env::var("BROKKR_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    println!("seed: {seed} (replay with `cargo xtask e2e --seed {seed}`)");
    seed
}
