//! The plots of the report, as SVG.

use std::path::Path;

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::measure::Spread;
use crate::systems::IDGEN;
use crate::{CEILING, Load, Results, SHARDS, cores};

/// Room for the names of lines, in pixels.
const KEY_WIDTH: u32 = 200;
const TITLE: (&str, u32) = ("sans-serif", 18);
const LABEL: (&str, u32) = ("sans-serif", 13);

type Drawn = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Colors that most people with color blindness can distinguish (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(110, 110, 110),
    RGBColor(0, 0, 0),
];

/// Bars of one kind: their name in the legend, and the value of each row.
struct Bars<'a>(&'a str, Vec<f64>);

/// A line: its name in the legend, and its values from the first place of the axis on.
pub enum Line<'a> {
    Measured(&'a str, Vec<f64>),
    /// One that is computed, to hold the measured ones against.
    Bound(&'a str, Vec<f64>),
}

/// An axis of values, from `from` up to `upto`.
struct Axis<'a> {
    name: &'a str,
    log: bool,
    from: f64,
    upto: f64,
}

impl Axis<'_> {
    fn place(&self, value: f64) -> f64 {
        if self.log { value.max(self.from).log10() } else { value }
    }

    fn label(&self, place: f64) -> String {
        let value = if self.log { 10f64.powf(place) } else { place };
        short(value)
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.place(self.from)..self.place(self.upto)
    }

    /// How many labels there is room for: one for each power of ten.
    fn labels(&self) -> usize {
        if self.log { (self.upto / self.from).log10().round() as usize + 1 } else { 8 }
    }
}

/// A number with its thousands as letters.
fn short(value: f64) -> String {
    let (value, letter) = match value.abs() {
        1e6.. => (value / 1e6, " M"),
        1e3.. => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let text = match value.abs() {
        0.001..0.1 => format!("{value:.2}"),
        10.0.. => format!("{value:.0}"),
        _ => format!("{value:.1}"),
    };
    format!("{}{letter}", text.trim_end_matches(".0"))
}

fn median(spread: Spread) -> f64 {
    spread.median
}

fn rates(loads: &[Load]) -> Vec<f64> {
    loads.iter().map(|load| load.ids_per_s.median).collect()
}

fn draw_file(folder: &Path, file: &str, size: (u32, u32), plot: &dyn Fn(&Area) -> Drawn) {
    std::fs::create_dir_all(folder).expect("a folder for the plots");
    let path = folder.join(file);
    let area = SVGBackend::new(&path, size).into_drawing_area();
    area.fill(&WHITE)
        .map_err(Into::into)
        .and_then(|()| plot(&area))
        .and_then(|()| area.present().map_err(Into::into))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Draws milliseconds over numbers of schemas.
pub fn scale(folder: &Path, schemas: &[String], all: &[Line]) {
    let axis = Axis { name: "ms (logarithmic)", log: true, from: 0.01, upto: 1e3 };
    draw_file(folder, "scale.svg", (760, 480), &|area| {
        lines(area, "Schemas of three tables in one database", &axis, "schemas", schemas, all)
    });
}

/// Draws milliseconds over percentiles.
pub fn latency(folder: &Path, percentiles: &[String], all: &[Line]) {
    let axis = Axis { name: "ms (logarithmic)", log: true, from: 0.01, upto: 1e3 };
    draw_file(folder, "latency.svg", (760, 480), &|area| {
        lines(area, "An insert of one row, with its commit", &axis, "of all inserts", percentiles, all)
    });
}

/// Draws all plots of a run into a folder.
pub fn all(folder: &Path, names: &[&str], bulk: &str, results: &Results) {
    let draw =
        |file: &str, size: (u32, u32), plot: &dyn Fn(&Area) -> Drawn| draw_file(folder, file, size, plot);
    let rows = names.len() as u32;

    let calls = results.calls.systems.iter().map(|call| median(call.ns)).collect();
    let axis = Axis { name: "ns a call, over an empty row (logarithmic)", log: true, from: 10.0, upto: 1e5 };
    draw("call.svg", (760, 90 + 32 * rows), &|area| {
        bars(area, "Cost of a call, one backend", &axis, names, &[Bars("", Vec::clone(&calls))])
    });

    let backends: Vec<_> = results.loads[IDGEN].iter().map(|load| load.backends.to_string()).collect();
    let axis = Axis { name: "ids/s in all (logarithmic)", log: true, from: 1e3, upto: 1e8 };
    draw("backends.svg", (760, 480), &|area| {
        let mut all: Vec<_> = names
            .iter()
            .zip(&results.loads)
            .map(|(name, loads)| Line::Measured(name, rates(loads)))
            .collect();
        all.push(Line::Bound("a shard's ceiling", vec![CEILING; backends.len()]));
        lines(area, "One shard or sequence, max_ahead = 1h", &axis, "backends", &backends, &all)
    });

    let shards: Vec<_> = SHARDS.iter().map(|shards| shards.to_string()).collect();
    let one = results.shards[0].ids_per_s.median;
    let bound: Vec<_> = SHARDS.iter().map(|shards| one * (*shards).min(cores()) as f64).collect();
    let ceiling: Vec<_> = SHARDS.iter().map(|shards| CEILING * *shards as f64).collect();
    let most =
        results.shards.iter().map(|load| load.ids_per_s.greatest).chain(bound.clone()).chain(ceiling.clone());
    let axis = Axis { name: "ids/s in all", log: false, from: 0.0, upto: most.fold(0.0, f64::max) * 1.05 };
    draw("shards.svg", (760, 420), &|area| {
        let all = [
            Line::Measured("not held by the clock", rates(&results.shards)),
            Line::Bound("one shard's, times the cores", bound.clone()),
            Line::Measured("max_ahead = 0", rates(&results.shards_sustained)),
            Line::Bound("the shards' ceiling", ceiling.clone()),
        ];
        lines(area, "A backend for each shard", &axis, "shards, and backends", &shards, &all)
    });

    let mb = |value: fn(&crate::Inserts) -> Spread| -> Vec<f64> {
        results.inserts[..names.len()].iter().map(|inserts| value(inserts).median / 1e6).collect()
    };
    let (index, wal) = (mb(|inserts| inserts.index), mb(|inserts| inserts.wal));
    let upto = index.iter().chain(&wal).fold(0.0f64, |most, value| most.max(*value)) * 1.12;
    let axis = Axis { name: "MB", log: false, from: 0.0, upto };
    draw("size.svg", (760, 110 + 46 * rows), &|area| {
        let kinds = [Bars("index of the keys", index.clone()), Bars("WAL", wal.clone())];
        bars(area, &format!("After an INSERT of {bulk} rows"), &axis, names, &kinds)
    });
}

/// Horizontal bars, the first row on top.
fn bars(area: &Area, title: &str, axis: &Axis, rows: &[&str], kinds: &[Bars]) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .caption(title, TITLE)
        .margin(12)
        .margin_right(60)
        .margin_left(160)
        .x_label_area_size(46)
        .build_cartesian_2d(axis.range(), rows.len() as f64..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .max_light_lines(0)
        .x_desc(axis.name)
        .x_labels(axis.labels())
        .x_label_formatter(&|place| axis.label(*place))
        .label_style(LABEL)
        .draw()?;
    let start = axis.range().start;
    for (row, name) in rows.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(start, row as f64 + 0.5));
        let style = LABEL.into_text_style(area).pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new((*name).to_owned(), (x - 8, y), style))?;
    }
    let height = 0.8 / kinds.len() as f64;
    for (number, Bars(name, values)) in kinds.iter().enumerate() {
        let colour = COLOURS[number];
        let top = |row: usize| row as f64 + 0.1 + height * number as f64;
        let end = |value: &f64| axis.place(*value);
        let drawn = chart.draw_series(values.iter().enumerate().map(|(row, value)| {
            Rectangle::new([(start, top(row)), (end(value), top(row) + height * 0.95)], colour.filled())
        }))?;
        if kinds.len() > 1 {
            let key = move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled());
            drawn.label(*name).legend(key);
        }
        let style = LABEL.into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
        chart.draw_series(values.iter().enumerate().map(|(row, value)| {
            EmptyElement::at((end(value), top(row) + height / 2.0))
                + Text::new(short(*value), (5, 0), style.clone())
        }))?;
    }
    if kinds.len() > 1 {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE)
            .border_style(BLACK)
            .label_font(LABEL)
            .draw()?;
    }
    Ok(())
}

/// Lines over places that are equally far apart.
fn lines(area: &Area, title: &str, axis: &Axis, x_name: &str, places: &[String], all: &[Line]) -> Drawn {
    let (caption, key) = area.split_horizontally(area.dim_in_pixel().0 - KEY_WIDTH);
    let mut chart = ChartBuilder::on(&caption)
        .caption(title, TITLE)
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(70)
        .build_cartesian_2d(-0.2..places.len() as f64 - 0.8, axis.range())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .max_light_lines(0)
        .y_desc(axis.name)
        .y_labels(axis.labels())
        .y_label_formatter(&|place| axis.label(*place))
        .label_style(LABEL)
        .draw()?;
    let middle = LABEL.into_text_style(area).pos(Pos::new(HPos::Center, VPos::Top));
    let bottom = axis.range().start;
    for (place, name) in places.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(place as f64, bottom));
        area.draw(&Text::new(name.clone(), (x, y + 8), middle.clone()))?;
    }
    let (x, y) = chart.backend_coord(&((places.len() - 1) as f64 / 2.0, bottom));
    area.draw(&Text::new(x_name.to_owned(), (x, y + 28), middle))?;
    for (number, line) in all.iter().enumerate() {
        let (Line::Measured(name, values) | Line::Bound(name, values)) = line;
        let colour = COLOURS[number % COLOURS.len()];
        let points = || values.iter().enumerate().map(|(place, value)| (place as f64, axis.place(*value)));
        let y = 60 + 24 * number as i32;
        let sample = [(0, y), (22, y)];
        if let Line::Measured(..) = line {
            chart.draw_series(LineSeries::new(points(), colour.stroke_width(2)))?;
            chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
            key.draw(&PathElement::new(sample, colour.stroke_width(2)))?;
        } else {
            chart.draw_series(DashedLineSeries::new(points(), 6, 4, colour.stroke_width(2)))?;
            key.draw(&DashedPathElement::new(sample, 6, 4, colour.stroke_width(2)))?;
        }
        let style = LABEL.into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
        key.draw(&Text::new((*name).to_owned(), (28, y), style))?;
    }
    Ok(())
}
