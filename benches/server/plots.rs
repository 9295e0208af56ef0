//! The plots of docs/performance.md, as SVG.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const TITLE: (&str, u32) = ("sans-serif", 18);
const LABEL: (&str, u32) = ("sans-serif", 13);
/// Colors that most people with color blindness can distinguish (Okabe and Ito).
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(110, 110, 110),
    RGBColor(0, 0, 0),
];

type Drawn = Result<(), Box<dyn Error>>;

/// An axis of values. One that does not begin at 0 is logarithmic.
pub struct Axis<'a> {
    pub name: &'a str,
    pub from: f64,
    pub upto: f64,
}

impl Axis<'_> {
    fn is_log(&self) -> bool {
        self.from > 0.0
    }

    fn place(&self, value: f64) -> f64 {
        if self.is_log() { value.max(self.from).log10() } else { value }
    }

    fn label(&self, place: f64) -> String {
        short(if self.is_log() { 10f64.powf(place) } else { place })
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.place(self.from)..self.place(self.upto)
    }

    /// The number of labels: one for each power of ten.
    fn labels(&self) -> usize {
        if self.is_log() { (self.upto / self.from).log10().round() as usize + 1 } else { 8 }
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

/// A line: its name, its values from the first place on, and whether they are measured.
pub struct Line(pub String, pub Vec<f64>, pub bool);

/// The middle of a place on an axis of places, which plotters labels only if it counts in integers.
fn middle(place: usize) -> i32 {
    100 * place as i32 + 50
}

fn middles(places: &[String]) -> Vec<i32> {
    (0..places.len()).map(middle).collect()
}

fn legend<'a>(chart: &mut ChartContext<'a, SVGBackend<'a>, impl CoordTranslate>) -> Drawn {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE)
        .label_font(LABEL)
        .draw()?;
    Ok(())
}

/// Draws lines over places that are equally far apart. A line that is computed is thin.
pub fn lines(path: &Path, title: &str, axis: &Axis, x_name: &str, places: &[String], all: &[Line]) -> Drawn {
    let area = SVGBackend::new(path, (760, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    // The legend takes a third of the width.
    let x = (0..150 * places.len() as i32).with_key_points(middles(places));
    let mut chart = ChartBuilder::on(&area)
        .caption(title, TITLE)
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(70)
        .build_cartesian_2d(x, axis.range())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(0)
        .x_desc(x_name)
        .x_label_formatter(&|x| places[*x as usize / 100].clone())
        .y_desc(axis.name)
        .y_labels(axis.labels())
        .y_label_formatter(&|place| axis.label(*place))
        .label_style(LABEL)
        .draw()?;
    for (Line(name, values, measured), color) in all.iter().zip(COLORS.iter().cycle()) {
        let points = values.iter().enumerate().map(|(place, value)| (middle(place), axis.place(*value)));
        let (width, point) = if *measured { (2, 3) } else { (1, 0) };
        let style = color.filled().stroke_width(width);
        chart
            .draw_series(LineSeries::new(points, style).point_size(point))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    legend(&mut chart)?;
    Ok(area.present()?)
}

/// Draws horizontal bars of one or more kinds, with the first row on top.
pub fn bars(path: &Path, title: &str, axis: &Axis, rows: &[String], kinds: &[(&str, Vec<f64>)]) -> Drawn {
    let height = 90 + (14 + 18 * kinds.len() as u32) * rows.len() as u32;
    let area = SVGBackend::new(path, (760, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let y = (100 * rows.len() as i32..0).with_key_points(middles(rows));
    let mut chart = ChartBuilder::on(&area)
        .caption(title, TITLE)
        .margin(12)
        .margin_right(60)
        .x_label_area_size(46)
        .y_label_area_size(160)
        .build_cartesian_2d(axis.range(), y)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .max_light_lines(0)
        .x_desc(axis.name)
        .x_labels(axis.labels())
        .x_label_formatter(&|place| axis.label(*place))
        .y_label_formatter(&|y| rows[*y as usize / 100].clone())
        .label_style(LABEL)
        .draw()?;
    let start = axis.range().start;
    let height = 80 / kinds.len() as i32;
    let beside = LABEL.into_text_style(&area).pos(Pos::new(HPos::Left, VPos::Center));
    for (kind, ((name, values), color)) in (0..).zip(kinds.iter().zip(COLORS)) {
        for (row, value) in (0..).zip(values) {
            let (top, end) = (100 * row + 10 + height * kind, axis.place(*value));
            let bar = Rectangle::new([(start, top), (end, top + height - 3)], color.filled());
            let text =
                EmptyElement::at((end, top + height / 2)) + Text::new(short(*value), (5, 0), beside.clone());
            chart.draw_series([text])?;
            let drawn = chart.draw_series([bar])?;
            if row == 0 && kinds.len() > 1 {
                drawn.label(*name).legend(move |(x, y)| Circle::new((x + 8, y), 6, color.filled()));
            }
        }
    }
    legend(&mut chart)?;
    Ok(area.present()?)
}
