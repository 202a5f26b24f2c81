//! The linear model S(b) = a + c·b by least squares.

use crate::mean;
use serde::{Deserialize, Serialize};

/// A line through points of size and service time.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct LinearFit {
    /// a: the time that does not depend on the size.
    pub intercept: f64,
    /// c: the time of each octet.
    pub slope: f64,
    /// Share of the variance that the line explains.
    pub r_squared: f64,
    /// Number of points.
    pub count: usize,
}

impl LinearFit {
    /// S(b).
    pub fn at(&self, octets: f64) -> f64 {
        self.slope.mul_add(octets, self.intercept)
    }
}

/// The line of least squares; `None` for fewer than two sizes.
pub fn least_squares(points: &[(f64, f64)]) -> Option<LinearFit> {
    let (x, y): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let (mean_x, mean_y) = (mean(&x)?, mean(&y)?);
    let sum = |value: &dyn Fn(f64, f64) -> f64| -> f64 {
        points.iter().map(|&(x, y)| value(x - mean_x, y - mean_y)).sum()
    };
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    if xx <= 0.0 {
        return None;
    }
    let slope = xy / xx;
    let r_squared = if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 };
    let intercept = slope.mul_add(-mean_x, mean_y);
    Some(LinearFit { intercept, slope, r_squared, count: points.len() })
}
