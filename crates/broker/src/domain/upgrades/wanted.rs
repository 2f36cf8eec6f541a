//! What an admin may ask for, and which upgrades a new one takes the place of.

use brokkr_api::Selector;
use brokkr_api::rollouts::RolloutPolicy;
use brokkr_api::selector::Requirement;
use brokkr_api::upgrades::NewAgentUpgrade;

use crate::domain::rollout::policy::{Kind, Policy, resolve};

/// As long as the versions that agents report.
pub const LONGEST_VERSION: usize = 40;
const LONGEST_IMAGE: usize = 512;
const DIGEST_DIGITS: usize = 64;
/// The fence of agents compares the numbers of versions digit by digit.
const LONGEST_NUMBER: usize = 5;

/// Checks the request. Returns what does not make sense.
pub fn check(wanted: &NewAgentUpgrade) -> Result<(), String> {
    if !is_by_digest(&wanted.image) {
        return Err("image must be given by digest: REPOSITORY@sha256: and 64 hex digits".to_owned());
    }
    if !is_release(&wanted.version) {
        return Err(format!(
            "version must be three numbers, such as 1.2.3, each of at most {LONGEST_NUMBER} digits"
        ));
    }
    if wanted.policy.staged == Some(false) {
        return Err(
            "an upgrade is always rolled out in waves; for a single one, set waves to 100%".to_owned()
        );
    }
    wanted.policy.check()
}

/// Returns whether the image is `REPOSITORY@sha256:…`.
fn is_by_digest(image: &str) -> bool {
    let Some((repository, digest)) = image.split_once("@sha256:") else { return false };
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/:[]".contains(&byte);
    image.len() <= LONGEST_IMAGE
        && !repository.is_empty()
        && repository.bytes().all(is_plain)
        && digest.len() == DIGEST_DIGITS
        && digest.bytes().all(is_digit)
}

/// Returns whether the text is a version that the fence of agents can order: `MAJOR.MINOR.PATCH`.
fn is_release(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    is_version(text)
        && text.bytes().all(is_plain)
        && text.split('.').all(|number| number.len() <= LONGEST_NUMBER)
}

/// Returns whether the text is `MAJOR.MINOR.PATCH`, perhaps with `-PRERELEASE` and `+BUILD`.
#[must_use]
pub fn is_version(text: &str) -> bool {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, pre) = rest.split_once('-').map_or((rest, None), |(core, pre)| (core, Some(pre)));
    let is_number = |part: &str| part.parse::<u64>().is_ok_and(|number| number.to_string() == part);
    let is_word = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let are_words = |words: Option<&str>| words.is_none_or(|words| words.split('.').all(is_word));
    text.len() <= LONGEST_VERSION
        && core.split('.').count() == 3
        && core.split('.').all(is_number)
        && are_words(pre)
        && are_words(build)
}

/// Returns the policy of an upgrade: its own, then that of the installation, then the built-in one. Policies that let versions of stacks
/// reach every agent at once do not hold for upgrades.
#[must_use]
pub fn policy(own: &RolloutPolicy, installation: &RolloutPolicy) -> Option<Policy> {
    let staged = |policy: &RolloutPolicy| RolloutPolicy { staged: Some(true), ..policy.clone() };
    resolve(&[staged(own), staged(installation)], Kind::Version)
}

/// Returns whether an agent could match both selectors. If there is none, an upgrade is for every agent.
#[must_use]
pub fn may_overlap(one: Option<&Selector>, other: Option<&Selector>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return true };
    let excludes = |a: &Requirement| other.requirements().iter().any(|b| are_exclusive(a, b));
    !one.requirements().iter().any(excludes)
}

/// Returns whether no label can fulfil both.
fn are_exclusive(one: &Requirement, other: &Requirement) -> bool {
    use Requirement::{Absent, Exists, In, NotIn};
    match (one, other) {
        (In { key, values }, In { key: same, values: others }) => {
            key == same && !values.iter().any(|value| others.contains(value))
        }
        (In { key, values }, NotIn { key: same, values: others })
        | (NotIn { key: same, values: others }, In { key, values }) => {
            key == same && values.iter().all(|value| others.contains(value))
        }
        (Absent { key }, In { key: same, .. } | Exists { key: same })
        | (In { key: same, .. } | Exists { key: same }, Absent { key }) => key == same,
        _ => false,
    }
}
