//! The thread that starts all children.
//!
//! The kernel sends the parent-death signal when the *thread* that started the child ends, not the process.
//! Tests run on threads that come and go, so all children are started by one thread that never ends.

use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

struct Order {
    command: Command,
    answer: SyncSender<io::Result<Child>>,
}

/// Starts a child that ends with this process at the latest.
pub(super) fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, inbox) = channel();
        // Never joined, because it must live as long as the process.
        std::thread::spawn(move || serve(&inbox));
        orders
    });
    let (answer, answered) = sync_channel(1);
    let gone = || io::Error::other("the thread that starts processes is gone");
    spawner.send(Order { command, answer }).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}

fn serve(inbox: &Receiver<Order>) {
    for mut order in inbox {
        let _ = order.answer.send(order.command.spawn());
    }
}
