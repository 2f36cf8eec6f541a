//! Checks of an offered image. Pure.

use brokkr_api::upgrades::{UpgradeOffer, UpgradeReason};

/// What an agent does about an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Begin,
    /// It has this version.
    IsThere,
    Refuse(UpgradeReason),
}

/// Returns the answer of an agent with this version.
///
/// - `allowed`: the repository that the owner of the cluster allows
/// - `deployed`: the annotation of the Deployment; the fence accepts no lower version
#[must_use]
pub fn answer(offer: &UpgradeOffer, own: &str, allowed: Option<&str>, deployed: Option<&str>) -> Answer {
    if offer.version == own {
        return Answer::IsThere;
    }
    let Some(allowed) = allowed else {
        return Answer::Refuse(UpgradeReason::NotAllowed { allowed: None });
    };
    if !is_digest_in(allowed, &offer.image) {
        return Answer::Refuse(UpgradeReason::NotAllowed { allowed: Some(allowed.to_owned()) });
    }
    let offered = numbers(&offer.version);
    let is_higher = |than: &str| offered.is_some() && offered > numbers(without_suffix(than));
    let is_lower = |than: &str| offered < numbers(than);
    match deployed.filter(|deployed| is_lower(deployed)) {
        Some(deployed) => Answer::Refuse(UpgradeReason::LowerVersion { current: deployed.to_owned() }),
        None if is_higher(own) => Answer::Begin,
        None => Answer::Refuse(UpgradeReason::LowerVersion { current: own.to_owned() }),
    }
}

/// Returns whether the image is `REPOSITORY@sha256:…`.
fn is_digest_in(repository: &str, image: &str) -> bool {
    let digest = image.strip_prefix(repository).and_then(|rest| rest.strip_prefix("@sha256:"));
    digest.is_some_and(|digest| {
        digest.len() == 64 && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Returns major, minor and patch; none for another form, which the fence refuses, too.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let parts: Vec<&str> = version.split('.').collect();
    let number = |part: &str| {
        let is_number = (1..=5).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| part.parse().ok()).flatten()
    };
    let [major, minor, patch] = parts.as_slice() else { return None };
    Some([number(major)?, number(minor)?, number(patch)?])
}

/// Returns the version without what marks a pre-release or a build.
fn without_suffix(version: &str) -> &str {
    version.split(['-', '+']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use brokkr_api::UpgradeId;

    use super::*;

    const REPOSITORY: &str = "registry.example:5000/brokkr-agent";

    fn offer(version: &str) -> UpgradeOffer {
        let image = format!("{REPOSITORY}@sha256:{}", "a".repeat(64));
        UpgradeOffer { id: UpgradeId(7), image, version: version.to_owned() }
    }

    fn lower(current: &str) -> Answer {
        Answer::Refuse(UpgradeReason::LowerVersion { current: current.to_owned() })
    }

    #[test]
    fn only_a_higher_version_is_begun() {
        let answer = |version, own, deployed| answer(&offer(version), own, Some(REPOSITORY), deployed);
        assert_eq!(answer("0.2.0", "0.1.9", None), Answer::Begin);
        assert_eq!(answer("0.10.0", "0.9.9", Some("0.9.9")), Answer::Begin);
        assert_eq!(answer("0.2.0", "0.2.0", None), Answer::IsThere);
        assert_eq!(answer("0.1.0", "0.2.0", None), lower("0.2.0"));
        assert_eq!(answer("0.2.0", "0.1.0", Some("0.3.0")), lower("0.3.0"), "set by the owner");
        assert_eq!(answer("0.2.0", "0.1.0-dev", Some("0.2.0")), Answer::Begin);
        for unreadable in ["2", "0.2", "0.2.0-rc1", "v0.2.0", "0.2.0.1", "0.200000.0", "0..1", ""] {
            assert_eq!(answer(unreadable, "0.1.0", None), lower("0.1.0"), "{unreadable}");
        }
    }

    #[test]
    fn only_digests_of_the_allowed_repository_are_begun() {
        assert_eq!(
            answer(&offer("0.2.0"), "0.1.0", None, None),
            Answer::Refuse(UpgradeReason::NotAllowed { allowed: None })
        );
        let refused = Answer::Refuse(UpgradeReason::NotAllowed { allowed: Some(REPOSITORY.to_owned()) });
        let digest = "a".repeat(64);
        for image in [
            format!("other.example/brokkr-agent@sha256:{digest}"),
            format!("{REPOSITORY}-other@sha256:{digest}"),
            format!("{REPOSITORY}:1@sha256:{digest}"),
            format!("{REPOSITORY}@sha256:{}", &digest[1..]),
            format!("{REPOSITORY}@sha256:{}", digest.to_uppercase()),
            format!("{REPOSITORY}:0.2.0"),
        ] {
            let offer = UpgradeOffer { image, ..offer("0.2.0") };
            assert_eq!(answer(&offer, "0.1.0", Some(REPOSITORY), None), refused, "{}", offer.image);
        }
    }
}
