//! Suggests similar names when a stack or agent is not found.

use brokkr_client::Client;

use crate::failure::{Exit, Failure, Noun};

/// Adds similar names to a not-found failure.
pub async fn suggest(failure: Failure, client: &Client) -> Failure {
    if failure.exit != Exit::NotFound {
        return failure;
    }
    let mut similar = Vec::new();
    for (noun, name) in &failure.about {
        let known: Vec<String> = match noun {
            Noun::Stack => client
                .stacks_all()
                .await
                .unwrap_or_default()
                .into_iter()
                .map(|it| it.name.to_string())
                .collect(),
            Noun::Agent => client
                .agents_all()
                .await
                .unwrap_or_default()
                .into_iter()
                .map(|it| it.name.to_string())
                .collect(),
        };
        // If this name exists, the broker did not find some other resource.
        if !known.contains(name) {
            similar.extend(nearest(name, &known).into_iter().map(ToOwned::to_owned));
        }
    }
    match similar.as_slice() {
        [] => failure,
        names => failure.line(format!("did you mean {}?", names.join(" or "))),
    }
}

/// Returns up to three similar names, the nearest first.
fn nearest<'a>(name: &str, known: &'a [String]) -> Vec<&'a str> {
    let most = (name.chars().count() / 3).clamp(1, 3);
    let mut near: Vec<(usize, &str)> = known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(name, known), known.as_str()))
        .filter(|(distance, known)| *distance <= most || (name.len() > 2 && known.starts_with(name)))
        .collect();
    near.sort_unstable();
    near.into_iter().take(3).map(|(_, known)| known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_found_and_another_word_is_not() {
        let known = ["web", "payments", "payments-api", "shop"].map(ToOwned::to_owned);
        assert_eq!(nearest("wbe", &known), ["web"]);
        assert_eq!(nearest("paymnets", &known), ["payments"]);
        assert_eq!(nearest("pay", &known), ["payments", "payments-api"], "the beginning of a name");
        assert!(nearest("database", &known).is_empty());
    }
}
