//! Renders terminal output from standard input as SVG on standard output.

use std::io::{Error, Read, stdin};

use anstyle_svg::Term;

fn main() -> Result<(), Error> {
    let mut text = String::new();
    stdin().read_to_string(&mut text)?;
    print!("{}", Term::new().render_svg(&text));
    Ok(())
}
