//! What cargo-pgrx reads the SQL of the tests inside a backend from is in a section of the library that the linker
//! would leave out. cargo-pgrx keeps it by a flag for all crates, with which cargo compiles every one of them a
//! second time, so scripts/test tells it not to.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_PG_TEST").is_some() && cfg!(not(target_os = "macos")) {
        println!("cargo::rustc-link-arg-cdylib=-Wl,--no-gc-sections");
    }
}
