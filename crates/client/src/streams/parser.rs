//! Parses the server-sent events that the broker uses: `event`, `id`, `data`, and comments as keep-alives.

/// The maximum length of a message, to limit memory. The broker sends no longer ones.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

/// One message as received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw {
    pub event: String,
    pub id: Option<String>,
    pub data: String,
}

/// A parser with the bytes of an incomplete message.
#[derive(Debug, Default)]
pub struct Parser {
    bytes: Vec<u8>,
    raw: Raw,
}

impl Parser {
    /// Returns the messages that these bytes complete, or none if one is too long.
    pub fn feed(&mut self, bytes: &[u8]) -> Option<Vec<Raw>> {
        self.bytes.extend_from_slice(bytes);
        let mut complete = Vec::new();
        while let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.bytes.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            complete.extend(self.line(line.trim_end_matches(['\r', '\n'])));
        }
        (self.bytes.len() + self.raw.data.len() <= MAX_BYTES).then_some(complete)
    }

    /// Processes one line. A blank line ends a message.
    fn line(&mut self, line: &str) -> Option<Raw> {
        if line.is_empty() {
            let raw = std::mem::take(&mut self.raw);
            return (!raw.data.is_empty()).then_some(raw);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.raw.event),
            "id" => self.raw.id = Some(value.to_owned()),
            "data" => {
                if !self.raw.data.is_empty() {
                    self.raw.data.push('\n');
                }
                self.raw.data.push_str(value);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_do_not_depend_on_chunk_boundaries() {
        let text = ": keep-alive\n\nevent: status\r\nid: 1.7.2\ndata: {\"a\":\ndata: 1}\n\nevent: reset\ndata: x\n\n";
        let whole = Parser::default().feed(text.as_bytes()).unwrap();
        let mut parser = Parser::default();
        let chunked: Vec<Raw> = text.bytes().flat_map(|byte| parser.feed(&[byte]).unwrap()).collect();
        assert_eq!(whole, chunked);
        assert_eq!(whole.len(), 2, "a comment is not a message");
        assert_eq!(
            (whole[0].event.as_str(), whole[0].id.as_deref(), whole[0].data.as_str()),
            ("status", Some("1.7.2"), "{\"a\":\n1}")
        );
        assert_eq!((whole[1].event.as_str(), whole[1].id.as_deref()), ("reset", None));
    }

    #[test]
    fn a_message_that_is_too_long_is_refused() {
        let mut parser = Parser::default();
        assert!(parser.feed(&vec![b'x'; MAX_BYTES]).is_some());
        assert!(parser.feed(b"x").is_none());
    }
}
