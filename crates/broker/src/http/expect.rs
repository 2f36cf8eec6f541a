//! `expect`: whoever takes stacks away from agents indirectly, by labels, selectors or grants, says from how many.

use brokkr_api::ErrorCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::ApiError;
use crate::index::Losses;

#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// How many pairs of a stack and an agent this takes away, where it takes any. The refusal without it says the
    /// number. Not needed for agents that are only no longer named one by one.
    pub expect: Option<u64>,
}

impl Expect {
    /// Lets pass what takes nothing away, and what takes away exactly as much as is expected.
    pub fn allow(self, losses: &Losses) -> Result<(), ApiError> {
        if losses.pairs == 0 || self.expect == Some(losses.pairs) {
            return Ok(());
        }
        let told = self
            .expect
            .map_or_else(|| "the number was not given".to_owned(), |told| format!("{told} were expected"));
        let detail = format!("agents would lose stacks, {} in all, and {told}", losses.pairs);
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
        assert!(expect(None).allow(&losses(0)).is_ok());
        assert!(expect(Some(3)).allow(&losses(0)).is_ok(), "done before, and sent again");
        assert!(expect(Some(3)).allow(&losses(3)).is_ok());
        for (told, pairs) in [(None, 1), (Some(2), 3), (Some(4), 3), (Some(0), 3)] {
            assert!(expect(told).allow(&losses(pairs)).is_err(), "{told:?} of {pairs}");
        }
    }
}
