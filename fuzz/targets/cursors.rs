//! Opaque values that clients return: cursors, positions, sessions, tags.
#![no_main]

use brokkr_api::protocol::{Session, same_etag};
use brokkr_api::{PositionToken, SequenceId, StackId};
use brokkr_broker::http::paging::cursor;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(position) = text.parse::<PositionToken>() {
        assert_eq!(position.to_string().parse::<PositionToken>().expect("it was written by us"), position);
    }
    if let Ok(session) = text.parse::<Session>() {
        assert_eq!(session.to_string().parse::<Session>().expect("it was written by us"), session);
    }
    if let Ok(Some(sequence)) = cursor::<SequenceId>(Some(text)) {
        assert_eq!(cursor(Some(&sequence.to_string())).expect("it was written by us"), Some(sequence));
    }
    if let Ok(Some(stack)) = cursor::<StackId>(Some(text)) {
        assert_eq!(cursor(Some(&stack.to_string())).expect("it was written by us"), Some(stack));
    }
    assert!(!same_etag(text, "\"\u{1}never\""));
});
