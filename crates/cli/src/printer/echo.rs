//! A terminal that does not show what is typed, for as long as the value lives.

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};

pub struct EchoOff {
    before: Termios,
}

impl EchoOff {
    /// None if stdin is no terminal, or one that cannot do it: then nothing secret is asked for.
    pub fn new() -> Option<Self> {
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut silent = before.clone();
        silent.local_flags.remove(LocalFlags::ECHO);
        tcsetattr(std::io::stdin(), SetArg::TCSAFLUSH, &silent).ok()?;
        Some(Self { before })
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        tcsetattr(std::io::stdin(), SetArg::TCSANOW, &self.before).ok();
    }
}
