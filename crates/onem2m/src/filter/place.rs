//! Geo-queries: conditions on the attribute location. Three criteria together give the geometry and
//! its relation to the location.

use super::Steps;
use crate::geometry::{Geometry, GeometryType, SpatialFunction};
use crate::status::Refusal;

/// `gmty`, `geom` and `gsf`, as far as they are given.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PlaceQuery {
    kind: Option<GeometryType>,
    coordinates: Option<String>,
    function: Option<SpatialFunction>,
    /// The values of the first two.
    geometry: Option<Geometry>,
}

impl PlaceQuery {
    /// Takes one of the three by its short name.
    ///
    /// # Errors
    ///
    /// 4000 if it is none of its kind.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        let number = value.parse().ok();
        match name {
            "gmty" => {
                let kind = number.and_then(GeometryType::from_number);
                self.kind = Some(kind.ok_or_else(|| Refusal::bad("gmty is from 1 to 6"))?);
            }
            "gsf" => {
                let function = number.and_then(SpatialFunction::from_number);
                self.function = Some(function.ok_or_else(|| Refusal::bad("gsf is from 1 to 3"))?);
            }
            _ => self.coordinates = Some(value.to_owned()),
        }
        if let (Some(kind), Some(coordinates)) = (self.kind, &self.coordinates) {
            self.geometry = Some(Geometry::read(kind, coordinates)?);
        }
        Ok(())
    }

    /// Whether any criterion is given.
    pub fn is_given(&self) -> bool {
        *self != Self::default()
    }

    /// Whether all three are there, or none.
    ///
    /// # Errors
    ///
    /// 4000 if one is missing.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        if self.is_given() && (self.geometry.is_none() || self.function.is_none()) {
            return Err(Refusal::bad("gmty, geom and gsf are given together"));
        }
        Ok(())
    }

    /// The criteria by their short names.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&'static str, String)> {
        [
            ("gmty", self.kind.map(|kind| kind.number().to_string())),
            ("geom", self.coordinates.clone()),
            ("gsf", self.function.map(|function| function.number().to_string())),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }

    /// Whether the geometry of the query has the required relation to `location`: `gsf` is said of
    /// the former, so 1 finds what it is within, and 2 what is within it.
    ///
    /// # Errors
    ///
    /// 5207 if it would take more steps than there are.
    pub fn holds(&self, location: &Geometry, steps: &mut Steps) -> Result<bool, Refusal> {
        match (&self.geometry, self.function) {
            (Some(geometry), Some(function)) => geometry.lies(function, location, steps),
            _ => Ok(false),
        }
    }
}
