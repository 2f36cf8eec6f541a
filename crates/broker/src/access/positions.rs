//! The proof that this installation issued a position. Without it, anyone could claim to have seen a future position and
//! thereby put the whole installation on hold.

use std::sync::{PoisonError, RwLock};

use aws_lc_rs::hmac;
use brokkr_api::position::{PositionMac, position_message};
use brokkr_api::{HistoryMark, InstallationId, Position, PositionToken};
use http::HeaderValue;
use subtle::ConstantTimeEq as _;

/// A position, and the mark that proves what was shown at it.
type Stamp = (Position, HistoryMark);

/// Makes and checks the MAC of positions. The key is stored in the database, so a restored database knows it, too.
#[derive(Debug)]
pub struct Positions {
    key: hmac::Key,
    installation: InstallationId,
    /// The position of the last poll and its header: polls share a position until the index changes.
    last: RwLock<Option<(Stamp, HeaderValue)>>,
}

impl Positions {
    #[must_use]
    pub fn new(installation: InstallationId, key: &[u8]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), installation, last: RwLock::default() }
    }

    /// Returns the position with its proof.
    #[must_use]
    pub fn issue(&self, (position, mark): Stamp) -> PositionToken {
        PositionToken { position, mark, mac: Some(self.mac((position, mark))) }
    }

    /// Returns whether this installation issued the position.
    #[must_use]
    pub fn is_issued(&self, token: &PositionToken) -> bool {
        token.mac.is_some_and(|mac| mac[..].ct_eq(&self.mac((token.position, token.mark))[..]).into())
    }

    /// Returns the header for a position that is not shared by many responses.
    #[must_use]
    pub fn header(&self, stamp: Stamp) -> HeaderValue {
        HeaderValue::from_str(&self.issue(stamp).to_string()).unwrap_or_else(|_| HeaderValue::from_static(""))
    }

    /// Returns the header for the position of the index, which is encoded once after each change of the index.
    #[must_use]
    pub fn header_of_index(&self, stamp: Stamp) -> HeaderValue {
        let last = self.last.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, header)) = last.as_ref().filter(|(known, _)| *known == stamp) {
            return header.clone();
        }
        drop(last);
        let header = self.header(stamp);
        *self.last.write().unwrap_or_else(PoisonError::into_inner) = Some((stamp, header.clone()));
        header
    }

    fn mac(&self, (position, mark): Stamp) -> PositionMac {
        let tag = hmac::sign(&self.key, &position_message(self.installation, position, mark));
        let mut mac = PositionMac::default();
        let length = mac.len();
        mac.copy_from_slice(&tag.as_ref()[..length]);
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSITION: Position = Position { epoch: 1_700_000_000, horizon: 42 };
    const MARK: HistoryMark = HistoryMark(7);

    #[test]
    fn only_a_position_of_this_installation_is_proven() {
        let installation = InstallationId::generate();
        let positions = Positions::new(installation, &[7; 32]);
        let issued = positions.issue((POSITION, MARK));
        assert!(positions.is_issued(&issued));
        assert!(Positions::new(installation, &[7; 32]).is_issued(&issued), "also at another replica");
        assert!(!positions.is_issued(&POSITION.into()), "without a proof");
        let higher = Position { horizon: 43, ..POSITION };
        assert!(!positions.is_issued(&PositionToken { position: higher, ..issued }));
        let remarked = PositionToken { mark: HistoryMark(8), ..issued };
        assert!(!positions.is_issued(&remarked), "another mark");
        let raised = Position { epoch: POSITION.epoch + 1, ..POSITION };
        assert!(!positions.is_issued(&PositionToken { position: raised, ..issued }));
        assert!(!Positions::new(installation, &[8; 32]).is_issued(&issued), "another key");
        assert!(!Positions::new(InstallationId::generate(), &[7; 32]).is_issued(&issued));
        for bit in 0..128 {
            let mut mac = issued.mac.expect("it is proven");
            mac[bit / 8] ^= 1 << (bit % 8);
            assert!(!positions.is_issued(&PositionToken { mac: Some(mac), ..issued }));
        }
    }

    #[test]
    fn the_header_is_the_token_whether_it_is_cached_or_not() {
        let positions = Positions::new(InstallationId::generate(), &[7; 32]);
        let next = Position { horizon: 43, ..POSITION };
        let later = HistoryMark(8);
        for stamp in [(POSITION, MARK), (POSITION, MARK), (next, MARK), (POSITION, MARK), (POSITION, later)] {
            let header = positions.header_of_index(stamp);
            assert_eq!(header, positions.issue(stamp).to_string());
            assert_eq!(header, positions.header(stamp));
        }
    }
}
