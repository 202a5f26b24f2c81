//! Student's t distribution with a whole number of degrees of freedom.

use super::real;
use std::f64::consts::PI;

/// The value that |T| stays below with probability `level`, for `freedom` degrees of freedom.
pub fn student_t(level: f64, freedom: usize) -> f64 {
    let mut high = 1.0;
    while probability(high, freedom) < level && high < 1e12 {
        high *= 2.0;
    }
    let mut low = 0.0;
    // Each step halves what is left: beyond 60 there is no number between.
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if probability(middle, freedom) < level {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// P(|T| ≤ t) (Abramowitz and Stegun, 26.7.3 and 26.7.4): a series in cos² of atan(t / √ν).
fn probability(t: f64, freedom: usize) -> f64 {
    let angle = (t / real(freedom).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let is_odd = freedom % 2 == 1;
    let (mut term, mut sum) = if is_odd { (cosine, 0.0) } else { (1.0, 0.0) };
    // The terms' powers of the cosine go up to ν - 2.
    let mut power = usize::from(is_odd);
    while power + 2 <= freedom {
        sum += term;
        term *= real(power + 1) / real(power + 2) * cosine * cosine;
        power += 2;
    }
    if is_odd { 2.0 / PI * (angle + sine * sum) } else { sine * sum }
}
