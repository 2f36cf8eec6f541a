//! Small pieces of text: ages, labels, one-liners.

use std::fmt::Display;

use brokkr_api::Labels;
use brokkr_api::reason::{Message, Reason};
use jiff::Timestamp;

/// Returns an age in one unit: `12s`, `3m`, `5h`, `2d`.
pub fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

pub fn age_or_dash(then: Option<Timestamp>, now: Timestamp) -> String {
    or_dash(then.map(|then| age(then, now)))
}

/// Returns the text, or a dash.
pub fn or_dash(text: Option<impl Display>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| text.to_string())
}

/// Joins the texts of all items.
pub fn joined<T>(items: &[T], separator: &str, text: impl Fn(&T) -> String) -> String {
    items.iter().map(text).collect::<Vec<_>>().join(separator)
}

/// Replaces control characters in reported text, which could move the cursor or set a title.
pub fn clean(text: impl Display) -> String {
    text.to_string().chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// Returns `name:    value` lines.
pub fn fields<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let pairs: Vec<_> = pairs.into_iter().collect();
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 1;
    let line = |(name, value): &(&str, String)| format!("{:width$}  {}", format!("{name}:"), clean(value));
    pairs.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// `3m ago (2026-03-01T12:00:00Z)`
pub fn when(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        format!("in {} ({at:.0})", age(now, at))
    } else {
        format!("{} ago ({at:.0})", age(at, now))
    }
}

/// Returns `CrashLoopBackOff: back-off restarting failed container`, or the part that is given.
pub fn explained(reason: &Reason, message: &Message) -> String {
    match (reason.is_none(), message.is_empty()) {
        (false, false) => format!("{}: {message}", reason.code()),
        (false, true) => reason.code().to_owned(),
        (true, _) => message.to_string(),
    }
}

/// Cuts text to a length.
pub fn short(text: &str, longest: usize) -> String {
    let text = clean(text);
    let text = text.trim();
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    text.chars().take(longest - 1).chain(['…']).collect()
}

pub fn labels(labels: &Labels) -> String {
    if labels.is_empty() {
        return "-".to_owned();
    }
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// `1 agent`, `2 agents`
pub fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// `8,412`
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `showing 100 of 8,412`
pub fn showing(shown: usize, total: Option<u64>) -> String {
    let shown = thousands(shown as u64);
    match total {
        Some(total) => format!("showing {shown} of {}", thousands(total)),
        None => format!("showing the first {shown}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let ago = |seconds: i64| age(now - jiff::SignedDuration::from_secs(seconds), now);
        assert_eq!(
            [ago(0), ago(59), ago(60), ago(3599), ago(3600), ago(90_000), ago(200_000)],
            ["0s", "59s", "1m", "59m", "1h", "25h", "2d"]
        );
        assert_eq!(ago(-5), "0s", "a clock that is ahead");
    }

    #[test]
    fn reported_text_cannot_control_the_terminal() {
        assert_eq!(short("\u{1b}[2Jgone\nnext", 40), "[2Jgone next");
        assert_eq!(short("abcdef", 4), "abc…");
    }

    #[test]
    fn large_numbers_have_separators() {
        let read = [0, 999, 1000, 8412, 1_234_567].map(thousands);
        assert_eq!(read, ["0", "999", "1,000", "8,412", "1,234,567"]);
        assert_eq!(showing(100, Some(8412)), "showing 100 of 8,412");
        assert_eq!(showing(1000, None), "showing the first 1,000");
    }
}
