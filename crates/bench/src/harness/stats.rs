//! Medians and spread of a handful of rounds. Means of noisy machines mean little.

use serde::{Deserialize, Serialize};

/// What several rounds of one measurement gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    values: Vec<f64>,
}

impl Samples {
    /// Adds the value of one more round.
    pub fn push(&mut self, value: f64) {
        self.values.push(value);
    }

    /// Rounds so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// True before the first round.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The middle value; the mean of the two middle ones for an even count; NaN without values.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Smallest value.
    #[must_use]
    pub fn low(&self) -> f64 {
        self.quantile(0.0)
    }

    /// Largest value.
    #[must_use]
    pub fn high(&self) -> f64 {
        self.quantile(1.0)
    }

    /// Half the distance between the extremes, as a share of the median: the +- of the tables.
    #[must_use]
    pub fn spread(&self) -> f64 {
        (self.high() - self.low()) / 2.0 / self.median()
    }

    /// The value below which a share `q` of the values lies, interpolated.
    #[must_use]
    pub fn quantile(&self, q: f64) -> f64 {
        if self.values.is_empty() {
            return f64::NAN;
        }
        let mut sorted = self.values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
        let below = sorted[at.floor() as usize];
        let above = sorted[at.ceil() as usize];
        below + (above - below) * at.fract()
    }
}

#[cfg(test)]
mod tests {
    use super::Samples;

    fn samples(values: &[f64]) -> Samples {
        let mut s = Samples::default();
        values.iter().for_each(|&v| s.push(v));
        s
    }

    #[test]
    fn median_and_spread() {
        let odd = samples(&[9.0, 1.0, 5.0]);
        assert_eq!((odd.median(), odd.low(), odd.high()), (5.0, 1.0, 9.0));
        assert!((odd.spread() - 0.8).abs() < 1e-12);
        assert_eq!(samples(&[1.0, 2.0, 3.0, 10.0]).median(), 2.5);
        assert!(samples(&[]).median().is_nan());
    }
}
