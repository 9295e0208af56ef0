//! The plots of docs/performance.md, as SVG.

use std::iter::successors;
use std::path::Path;

/// Colors that most people with color blindness can distinguish (Okabe and Ito).
const COLORS: [&str; 8] =
    ["#0072b2", "#d55e00", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#6e6e6e", "#000000"];

const LEFT: f64 = 70.0;
const RIGHT: f64 = 550.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 430.0;

/// A name, and the values from the first place on.
pub struct Line(pub String, pub Vec<f64>);

/// A number, with letters for thousands and millions.
fn short(value: f64) -> String {
    match value {
        1e6.. => format!("{:.0} M", value / 1e6),
        1e3.. => format!("{:.0} k", value / 1e3),
        _ => value.to_string(),
    }
}

fn text(x: f64, y: f64, anchor: &str, content: &str) -> String {
    format!("<text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{content}</text>\n", y + 4.0)
}

fn line(points: &[(f64, f64)], color: &str, width: u32) -> String {
    let points: String = points.iter().map(|(x, y)| format!("{x:.1},{y:.1} ")).collect();
    format!("<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"/>\n")
}

/// Draws lines over equally spaced places. The axis of the values is logarithmic, from one power of ten to another.
pub fn plot(path: &Path, title: &str, axis: (&str, f64, f64), x_name: &str, places: &[String], all: &[Line]) {
    let (y_name, from, upto) = axis;
    let x_of = |place: usize| LEFT + (RIGHT - LEFT) * (place as f64 + 0.5) / places.len() as f64;
    let y_of = |value: f64| BOTTOM - (BOTTOM - TOP) * (value.max(from) / from).log(upto / from);
    let middle = (TOP + BOTTOM) / 2.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"480\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"760\" height=\"480\" fill=\"white\"/>\n\
         <g font-size=\"15\">\n{}</g>\n<g transform=\"rotate(270 12 {middle})\">\n{}</g>\n",
        text(380.0, 20.0, "middle", title),
        text(12.0, middle, "middle", y_name),
    );
    svg += &text((LEFT + RIGHT) / 2.0, BOTTOM + 36.0, "middle", x_name);
    for value in successors(Some(from), |value| Some(value * 10.0)).take_while(|value| *value < upto * 1.1) {
        svg += &line(&[(LEFT, y_of(value)), (RIGHT, y_of(value))], "#dddddd", 1);
        svg += &text(LEFT - 8.0, y_of(value), "end", &short(value));
    }
    for (place, name) in places.iter().enumerate() {
        svg += &text(x_of(place), BOTTOM + 14.0, "middle", name);
    }
    for (number, (Line(name, values), color)) in all.iter().zip(COLORS.iter().cycle()).enumerate() {
        let points = values.iter().enumerate().map(|(place, value)| (x_of(place), y_of(*value)));
        let points: Vec<_> = points.collect();
        for (x, y) in &points {
            svg += &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>\n");
        }
        let y = TOP + 20.0 * number as f64;
        svg += &line(&points, color, 2);
        svg += &line(&[(RIGHT + 10.0, y), (RIGHT + 30.0, y)], color, 2);
        svg += &text(RIGHT + 36.0, y, "start", name);
    }
    std::fs::write(path, svg + "</svg>\n").unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
