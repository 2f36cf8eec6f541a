//! `expect`: a change of labels, selectors or grants that removes stacks from agents has to state how many.
//!
//! The number is counted in the index, in the transaction of the change. Before the transaction, handlers wait until the
//! index is current ([`Broker::index_is_current`]): otherwise a replica that is behind would count too few, or too many.
//! They must not wait in it, because an open transaction keeps the index from becoming current.
//!
//! [`Broker::index_is_current`]: crate::state::Broker::index_is_current

use brokkr_api::ErrorCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::{ApiError, ApiResult};
use crate::index::Losses;

#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// The number of (stack, agent) pairs that this change removes, if any. Without it, the refusal states the
    /// number. Not needed for removing explicit targets.
    pub expect: Option<u64>,
}

impl Expect {
    /// Allows a change that removes nothing, or exactly the expected number.
    pub fn check(self, losses: &Losses) -> ApiResult<()> {
        if losses.pairs == 0 || self.expect == Some(losses.pairs) {
            return Ok(());
        }
        let given = self
            .expect
            .map_or_else(|| "`expect` was not given".to_owned(), |given| format!("`expect` was {given}"));
        let detail =
            format!("this change would remove stacks from agents ({} in total), but {given}", losses.pairs);
        let examples = losses.examples.iter().map(|(stack, agent)| format!("stack {stack} on agent {agent}"));
        Err(ApiError::new(ErrorCode::BRK2009, detail).expecting(losses.pairs).with_errors(examples.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_number_passes() {
        let losses = |pairs| Losses { pairs, examples: Vec::new() };
        let expect = |expect| Expect { expect };
        assert!(expect(None).check(&losses(0)).is_ok());
        assert!(expect(Some(3)).check(&losses(0)).is_ok(), "already applied, and repeated");
        assert!(expect(Some(3)).check(&losses(3)).is_ok());
        for (given, pairs) in [(None, 1), (Some(2), 3), (Some(4), 3), (Some(0), 3)] {
            assert!(expect(given).check(&losses(pairs)).is_err(), "{given:?} of {pairs}");
        }
    }
}
