//! The `sidle` program: parses, calls, prints, and turns failures into exit codes.

fn main() {}
