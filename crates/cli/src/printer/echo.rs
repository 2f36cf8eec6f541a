//! A value that turns off the echo of the terminal for as long as it lives.
//!
//! Not `rpassword`: it prints the prompt before it turns the echo off, so the start of a token that is pasted
//! at the prompt is shown (decision 0014).

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};

pub struct EchoOff {
    before: Termios,
}

impl EchoOff {
    /// Returns none if stdin is not a terminal, or cannot hide its input: then no secret is requested.
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
