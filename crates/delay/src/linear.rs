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

/// A plane through points of two coordinates and a positive value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaneFit {
    /// The value at the origin, and by how much it grows with each coordinate.
    pub(crate) coefficients: [f64; 3],
    /// Share of the variance that the plane explains.
    pub(crate) r_squared: f64,
}

/// The plane whose squared relative errors are least. A coordinate that is the same in all points
/// has the coefficient 0; `None` without points, and where both coordinates say the same.
pub(crate) fn relative_plane(points: &[(f64, f64, f64)]) -> Option<PlaneFit> {
    /// Below this share of what it could be, a determinant is rounding.
    const SINGULAR: f64 = 1e-9;
    let weight = |value: f64| 1.0 / (value * value).max(f64::MIN_POSITIVE);
    let all: f64 = points.iter().map(|&(_, _, value)| weight(value)).sum();
    let average = |of: &dyn Fn(f64, f64, f64) -> f64| -> f64 {
        points.iter().map(|&(x, z, y)| weight(y) * of(x, z, y)).sum::<f64>() / all
    };
    if points.is_empty() || all <= 0.0 || !all.is_finite() {
        return None;
    }
    let (x0, z0, y0) = (average(&|x, _, _| x), average(&|_, z, _| z), average(&|_, _, y| y));
    let xx = average(&|x, _, _| (x - x0) * (x - x0));
    let zz = average(&|_, z, _| (z - z0) * (z - z0));
    let xz = average(&|x, z, _| (x - x0) * (z - z0));
    let xy = average(&|x, _, y| (x - x0) * (y - y0));
    let zy = average(&|_, z, y| (z - z0) * (y - y0));
    let yy = average(&|_, _, y| (y - y0) * (y - y0));
    let (has_x, has_z) = (xx > SINGULAR * x0 * x0, zz > SINGULAR * z0 * z0);
    let (slope, rise) = match (has_x, has_z) {
        (false, false) => (0.0, 0.0),
        (true, false) => (xy / xx, 0.0),
        (false, true) => (0.0, zy / zz),
        (true, true) => {
            let determinant = xz.mul_add(-xz, xx * zz);
            if determinant <= SINGULAR * xx * zz {
                return None;
            }
            ((xy * zz - zy * xz) / determinant, (zy * xx - xy * xz) / determinant)
        }
    };
    let explained = slope * xy + rise * zy;
    let r_squared = if yy > 0.0 { explained / yy } else { 1.0 };
    let coefficients = [y0 - slope * x0 - rise * z0, slope, rise];
    Some(PlaneFit { coefficients, r_squared })
}
