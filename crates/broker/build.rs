//! The migrations are compiled into the program; a new one has to rebuild it.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
