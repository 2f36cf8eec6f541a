//! "Did you mean": names that the broker knows and that are close to the one that it does not.

use brokkr_client::Client;

use crate::failure::{Exit, Failure, Noun};

/// Adds the nearest names to a failure that says that something is not there.
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
        // It is there: then another one of the names is not.
        if !known.contains(name) {
            similar.extend(nearest(name, &known).into_iter().map(ToOwned::to_owned));
        }
    }
    match similar.as_slice() {
        [] => failure,
        names => failure.line(format!("did you mean {}?", names.join(" or "))),
    }
}

/// The names that are a slip away, the nearest first; three at most.
fn nearest<'a>(name: &str, known: &'a [String]) -> Vec<&'a str> {
    let most = (name.chars().count() / 3).clamp(1, 3);
    let mut near: Vec<(usize, &str)> = known
        .iter()
        .map(|known| (distance(name, known), known.as_str()))
        .filter(|(distance, known)| *distance <= most || (name.len() > 2 && known.starts_with(name)))
        .collect();
    near.sort_unstable();
    near.into_iter().take(3).map(|(_, known)| known).collect()
}

/// How many letters to add, leave out, change or swap with their neighbour.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for (i, left) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, right) in other.iter().enumerate() {
            let changed = rows[i][j] + usize::from(left != right);
            let mut best = changed.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && one[i - 1] == *right && other[j - 1] == *left {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_found_and_another_word_is_not() {
        let known = ["web", "payments", "payments-api", "shop"].map(ToOwned::to_owned);
        assert_eq!(nearest("wbe", &known), ["web"]);
        assert_eq!(nearest("paymnets", &known), ["payments"]);
        assert_eq!(nearest("pay", &known), ["payments", "payments-api"], "the beginning of a name");
        assert!(nearest("database", &known).is_empty());
        assert_eq!((distance("", "ab"), distance("ab", "ba"), distance("ab", "ab")), (2, 1, 0));
    }
}
