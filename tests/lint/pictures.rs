//! The pictures on the pages are up to date with their sources. `make pictures` draws them.

use std::fs;

use pikchr::{Pikchr, PikchrFlags};

use crate::{assert_none, files, read, top};

/// With this variable in the environment, the pictures are written and not compared.
const WRITE: &str = "IDGEN_DRAW";

/// The fonts that systems use for their own texts. pikchr names none, and a browser would choose one with serifs.
const FONTS: &str =
    "16px -apple-system, \"Segoe UI\", \"Noto Sans\", Helvetica, \"DejaVu Sans\", Arial, sans-serif";

/// Draws a source as an SVG with a size, on a white card of its own, because the page around it may be dark.
fn draw(path: &str, source: &str) -> String {
    let drawn = Pikchr::render(source, None, PikchrFlags::default());
    let drawn = drawn.unwrap_or_else(|error| panic!("{path}: {error}"));
    let (_, rest) = drawn.rendered().split_once("viewBox=").expect("an SVG with a box");
    let (view, shapes) = rest.split_once(">\n").expect("shapes in it");
    let (width, height) = (drawn.width(), drawn.height());
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox={view}>\n\
         <style>svg {{ font: {FONTS} }}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"white\"/>\n{shapes}"
    )
}

#[test]
fn pictures_are_what_their_sources_draw() {
    let mut complaints = Vec::new();
    for source in files("docs/pictures", ".pikchr") {
        let picture = source.replace(".pikchr", ".svg");
        let drawn = draw(&source, &read(&source));
        if std::env::var_os(WRITE).is_some() {
            fs::write(top().join(&picture), drawn).expect("a picture that can be written");
        } else if fs::read_to_string(top().join(&picture)).ok() != Some(drawn) {
            complaints.push(format!("{picture}: not what {source} draws; run \"make pictures\""));
        }
    }
    assert_none(&complaints);
}
