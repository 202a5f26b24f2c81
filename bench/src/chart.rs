//! Curves as SVG.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::{
    BLACK, ChartBuilder, Circle, DrawingArea, IntoDrawingArea, IntoLogRange, LineSeries, Palette,
    Palette99, PathElement, SVGBackend, WHITE,
};
use plotters::style::Color;
use std::error::Error;

/// One line of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// What the legend calls it.
    pub name: String,
    /// x and y of each point, in the order of x.
    pub points: Vec<(f64, f64)>,
}

/// A sheet of curves.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What it shows; also part of the file's name.
    pub title: String,
    /// What x is, with its unit.
    pub x: String,
    /// What y is, with its unit.
    pub y: String,
    /// The lines.
    pub curves: Vec<Curve>,
}

/// How the axes are divided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Scales {
    /// x by its logarithm; else from 0.
    pub log_x: bool,
    /// y by its logarithm; else from 0.
    pub log_y: bool,
}

impl Default for Scales {
    fn default() -> Self {
        Self { log_x: true, log_y: false }
    }
}

const SIZE: (u32, u32) = (800, 480);

type Area<'svg> = DrawingArea<SVGBackend<'svg>, Shift>;

impl Chart {
    /// The chart as SVG text.
    pub(crate) fn draw(&self, scales: Scales) -> Result<String, Box<dyn Error + Send + Sync>> {
        let mut svg = String::new();
        self.draw_into(&mut svg, scales).map_err(|error| error.to_string())?;
        Ok(svg)
    }

    fn draw_into(&self, svg: &mut String, scales: Scales) -> Result<(), Box<dyn Error + '_>> {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::EPSILON, f64::max);
        let (left, right) =
            (least(&mut points().map(|point| point.0)), most(&mut points().map(|point| point.0)));
        let (bottom, top) =
            (least(&mut points().map(|point| point.1)), most(&mut points().map(|point| point.1)));
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(|error| error.to_string())?;
        match (scales.log_x, scales.log_y) {
            (true, true) => {
                let (x, y) = ((left..right).log_scale(), (bottom..top * 1.5).log_scale());
                self.draw_on(&area, x, y)?;
            }
            (true, false) => self.draw_on(&area, (left..right).log_scale(), 0.0..top * 1.1)?,
            (false, true) => self.draw_on(&area, 0.0..right, (bottom..top * 1.5).log_scale())?,
            (false, false) => self.draw_on(&area, 0.0..right, 0.0..top * 1.1)?,
        }
        area.present().map_err(|error| error.to_string())?;
        Ok(())
    }

    fn draw_on<X, Y>(&self, area: &Area<'_>, x: X, y: Y) -> Result<(), String>
    where
        X: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
        Y: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
    {
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 22))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)
            .map_err(|error| error.to_string())?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x).y_desc(&self.y).draw().map_err(|error| error.to_string())?;
        for (number, curve) in self.curves.iter().enumerate() {
            let colour = Palette99::pick(number);
            let style = colour.stroke_width(2);
            let line = LineSeries::new(curve.points.iter().copied(), style);
            chart
                .draw_series(line)
                .map_err(|error| error.to_string())?
                .label(&curve.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
            let dots = curve.points.iter().map(|&point| Circle::new(point, 3, colour.filled()));
            chart.draw_series(dots).map_err(|error| error.to_string())?;
        }
        let mut legend = chart.configure_series_labels();
        legend.border_style(BLACK).background_style(WHITE.mix(0.8));
        legend.draw().map_err(|error| error.to_string())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_is_an_svg_with_its_words() {
        let curve = Curve { name: "ours".to_owned(), points: vec![(1e3, 5.0), (1e6, 40.0)] };
        let (x, y) = ("routes".to_owned(), "ns".to_owned());
        let chart = Chart { title: "lookup".to_owned(), x, y, curves: vec![curve] };
        for (log_x, log_y) in [(true, false), (false, true), (true, true), (false, false)] {
            let svg = chart.draw(Scales { log_x, log_y }).unwrap();
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            for word in ["lookup", "routes", "ns", "ours"] {
                assert!(svg.contains(word), "{word} is missing");
            }
        }
    }
}
