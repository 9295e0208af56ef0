//! The plots of docs/performance.md, as SVG.

use std::iter::successors;
use std::path::Path;

/// Colors that most people with color blindness can distinguish (Okabe and Ito).
const COLORS: [&str; 8] =
    ["#0072b2", "#d55e00", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#6e6e6e", "#000000"];

/// An axis of values. One that does not begin at 0 is logarithmic.
pub struct Axis<'a> {
    pub name: &'a str,
    pub from: f64,
    pub upto: f64,
}

impl Axis<'_> {
    /// The part of the axis that is before a value.
    fn part(&self, value: f64) -> f64 {
        if self.from > 0.0 {
            (value.max(self.from) / self.from).log(self.upto / self.from)
        } else {
            value / self.upto
        }
    }

    /// The values that have a label: powers of ten, or four to ten multiples of a round number.
    fn labels(&self) -> Vec<f64> {
        let end = self.upto * 1.001;
        if self.from > 0.0 {
            return successors(Some(self.from), |value| Some(value * 10.0))
                .take_while(|v| *v < end)
                .collect();
        }
        let power = 10f64.powf((self.upto / 4.0).log10().floor());
        let steps = [power, 2.0 * power, 5.0 * power];
        let step = steps.into_iter().rfind(|step| step * 4.0 <= end).unwrap_or(power);
        (0..=10).map(|number| f64::from(number) * step).take_while(|value| *value < end).collect()
    }
}

/// A number with letters for thousands and millions.
fn short(value: f64) -> String {
    let (value, letter) = match value {
        1e6.. => (value / 1e6, " M"),
        1e3.. => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match value {
        0.001..0.1 => 2,
        10.0.. => 0,
        _ => 1,
    };
    format!("{value:.digits$}").trim_end_matches(".0").to_owned() + letter
}

#[derive(Clone, Copy, PartialEq)]
pub enum Shape {
    Measured,
    /// A thin line.
    Computed,
    Bars,
}

/// A name, the values from the first place on, and how they are drawn.
pub struct Series(pub String, pub Vec<f64>, pub Shape);

fn text((x, y): (f64, f64), anchor: &str, content: &str) -> String {
    format!("<text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{content}</text>\n", y + 4.0)
}

fn line(points: &[(f64, f64)], color: &str, width: u32) -> String {
    let points: String = points.iter().map(|(x, y)| format!("{x:.1},{y:.1} ")).collect();
    format!("<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"/>\n")
}

/// Draws values over places that are equally far apart: lines from left to right, or bars with the first place on top.
pub fn plot(path: &Path, title: &str, axis: &Axis, x_name: &str, places: &[String], all: &[Series]) {
    let are_bars = all.iter().all(|Series(.., shape)| *shape == Shape::Bars);
    let count = places.len() as f64;
    let (left, right, top) = if are_bars { (160.0, 600.0, 40.0) } else { (70.0, 550.0, 40.0) };
    let bottom = if are_bars { top + (14.0 + 18.0 * all.len() as f64) * count } else { 430.0 };
    let at = |place: f64, value: f64| match (place / count, axis.part(value)) {
        (y, x) if are_bars => (left + (right - left) * x, top + (bottom - top) * y),
        (x, y) => (left + (right - left) * x, bottom - (bottom - top) * y),
    };
    let below = |x: f64, content: &str| text((x, bottom + 14.0), "middle", content);
    let beside = |y: f64, content: &str| text((left - 8.0, y), "end", content);

    let mut drawn = String::new();
    for value in axis.labels() {
        let (from, upto) = (at(0.0, value), at(count, value));
        drawn += &line(&[from, upto], "#dddddd", 1);
        drawn += &if are_bars { below(from.0, &short(value)) } else { beside(from.1, &short(value)) };
    }
    for (place, name) in places.iter().enumerate() {
        let (x, y) = at(place as f64 + 0.5, axis.from);
        drawn += &if are_bars { beside(y, name) } else { below(x, name) };
    }
    for (number, (Series(name, values, shape), color)) in all.iter().zip(COLORS.iter().cycle()).enumerate() {
        let points = values.iter().enumerate().map(|(place, value)| at(place as f64 + 0.5, *value));
        let points: Vec<_> = points.collect();
        let width = [2, 1, 14][*shape as usize];
        if are_bars {
            let offset = 18.0 * (number as f64 - (all.len() - 1) as f64 / 2.0);
            for ((x, y), value) in points.iter().zip(values) {
                let y = y + offset;
                drawn += &line(&[(left, y), (*x, y)], color, width);
                drawn += &text((x + 5.0, y), "start", &short(*value));
            }
        } else {
            drawn += &line(&points, color, width);
        }
        if *shape == Shape::Measured {
            drawn.extend(
                points.iter().map(|(x, y)| {
                    format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>\n")
                }),
            );
        }
        if all.len() > 1 {
            let y = top + 20.0 * number as f64;
            drawn += &line(&[(right + 10.0, y), (right + 30.0, y)], color, width);
            drawn += &text((right + 36.0, y), "start", name);
        }
    }
    let (x_name, y_name) = if are_bars { (axis.name, x_name) } else { (x_name, axis.name) };
    let (middle, height) = ((top + bottom) / 2.0, bottom + 50.0);
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"760\" height=\"{height}\" fill=\"white\"/>\n<g font-size=\"15\">\n\
         {}</g>\n{drawn}{}<g transform=\"rotate(270 12 {middle})\">\n{}</g>\n</svg>\n",
        text((380.0, 20.0), "middle", title),
        text(((left + right) / 2.0, bottom + 36.0), "middle", x_name),
        text((12.0, middle), "middle", y_name),
    );
    std::fs::write(path, svg).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
