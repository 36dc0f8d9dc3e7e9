//! The `sidle` program: parses, calls, prints, and turns failures into exit codes.

#[cfg(all(not(debug_assertions), any(feature = "crash-points", feature = "test-hooks")))]
compile_error!("a release build must not be able to kill itself, or to move `current`, on a test's demand");

fn main() -> std::process::ExitCode {
    sidle::cli::main()
}
