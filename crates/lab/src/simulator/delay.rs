//! Distributions of message delays.

use crate::simulator::rng::Rng;
use crate::simulator::time::{Time, TimeError};
use std::fmt;
use std::sync::Arc;

/// A distribution of delays, or of the durations of critical sections.
#[derive(Clone, Debug, PartialEq)]
pub enum Delay {
    /// Always the same time.
    Constant(Time),
    /// Uniform between two times.
    Uniform(Time, Time),
    /// Exponential with the given mean.
    Exponential(Time),
    /// Log-normal with the given mean; sigma is the standard deviation of the logarithm.
    LogNormal {
        /// The mean.
        mean: Time,
        /// The standard deviation of the logarithm.
        sigma: f64,
    },
    /// A constant for each pair of sites.
    Matrix(Arc<Matrix>),
}

impl Delay {
    /// The delay of one T.
    pub const UNIT: Self = Self::Constant(Time::UNIT);

    /// Draws the delay of a message between two sites.
    #[inline]
    pub fn draw(&self, from: usize, to: usize, rng: &mut Rng) -> Time {
        match self {
            Self::Constant(time) => *time,
            Self::Uniform(low, high) => *low + Time::clamped((*high - *low).as_t() * rng.unit()),
            Self::Exponential(mean) => Time::clamped(rng.exponential(mean.as_t())),
            Self::LogNormal { mean, sigma } => {
                let log_mean = libm::log(mean.as_t()) - sigma * sigma / 2.0;
                Time::clamped(libm::exp(log_mean + sigma * rng.normal()))
            }
            Self::Matrix(matrix) => matrix.between(from, to),
        }
    }

    /// The mean, which corresponds to T in the papers' formulas. `None` for a matrix, which has no single T.
    pub fn mean(&self) -> Option<Time> {
        match self {
            Self::Constant(time) | Self::Exponential(time) | Self::LogNormal { mean: time, .. } => {
                Some(*time)
            }
            Self::Uniform(low, high) => Some(Time::from_ticks((low.ticks() + high.ticks()) / 2)),
            Self::Matrix(_) => None,
        }
    }

    /// A typical delay, for the choice of time scales.
    pub fn typical(&self) -> Time {
        match self {
            Self::Matrix(matrix) => matrix.largest(),
            other => other.mean().unwrap_or(Time::UNIT),
        }
    }

    /// Whether messages of one channel always arrive in the order sent.
    pub fn keeps_order(&self) -> bool {
        matches!(self, Self::Constant(_) | Self::Matrix(_))
    }

    /// Parses `constant:1`, `uniform:0.5..1.5`, `exponential:1`, `lognormal:1,0.5`, `matrix:FILE` or a plain
    /// number. A matrix is checked against the number of sites later, by [`Delay::fits`].
    pub fn parse(text: &str) -> Result<Self, DelayError> {
        let (kind, rest) = match text.split_once(':') {
            Some(parts) => parts,
            None => return Ok(Self::Constant(Time::parse(text)?)),
        };
        match kind {
            "constant" => Ok(Self::Constant(Time::parse(rest)?)),
            "uniform" => {
                let (low, high) =
                    rest.split_once("..").ok_or_else(|| DelayError::Uniform { text: rest.into() })?;
                let (low, high) = (Time::parse(low)?, Time::parse(high)?);
                if low > high {
                    return Err(DelayError::EmptyUniform { low, high });
                }
                Ok(Self::Uniform(low, high))
            }
            "exponential" => Ok(Self::Exponential(Time::parse(rest)?)),
            "lognormal" => {
                let (mean, sigma) =
                    rest.split_once(',').ok_or_else(|| DelayError::LogNormal { text: rest.into() })?;
                let mean = Time::parse(mean)?;
                let sigma: f64 =
                    sigma.trim().parse().map_err(|_| DelayError::Sigma { text: sigma.into() })?;
                if !(0.0..=10.0).contains(&sigma) || mean == Time::ZERO {
                    return Err(DelayError::LogNormalRange);
                }
                Ok(Self::LogNormal { mean, sigma })
            }
            "matrix" => Ok(Self::Matrix(Arc::new(Matrix::read(rest)?))),
            other => Err(DelayError::Unknown { kind: other.into() }),
        }
    }

    /// Whether the delay is defined for every pair of `processes` processes.
    pub fn fits(&self, processes: usize) -> Result<(), MatrixError> {
        match self {
            Self::Matrix(matrix) => matrix.fits(processes),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(time) => write!(f, "constant:{time}"),
            Self::Uniform(low, high) => write!(f, "uniform:{low}..{high}"),
            Self::Exponential(mean) => write!(f, "exponential:{mean}"),
            Self::LogNormal { mean, sigma } => write!(f, "lognormal:{mean},{sigma}"),
            Self::Matrix(matrix) => write!(f, "matrix:{}", matrix.file),
        }
    }
}

/// One-way delays between regions, or between single sites.
///
/// The text file has a row of numbers for each sender and a column for each receiver, separated by blanks or
/// commas; `#` starts a comment. If the first line contains names and each row starts with its name, it is a
/// matrix of regions: sites are assigned to them in turn (S1 to the first region, S2 to the second, …).
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    file: String,
    size: usize,
    regions: Vec<String>,
    delays: Vec<Time>,
}

impl Matrix {
    const LARGEST_FILE: u64 = 64 << 20;

    fn read(file: &str) -> Result<Self, MatrixError> {
        let unreadable = |source: std::io::Error| MatrixError::Read { file: file.into(), source };
        if std::fs::metadata(file).map_err(unreadable)?.len() > Self::LARGEST_FILE {
            return Err(MatrixError::TooLarge { file: file.into() });
        }
        Self::parse(file, &std::fs::read_to_string(file).map_err(unreadable)?)
    }

    /// Parses the text of a matrix; `file` is its name, for errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, MatrixError> {
        let rows: Vec<(usize, Vec<&str>)> = text
            .lines()
            .enumerate()
            .map(|(number, line)| {
                let line = line.split('#').next().unwrap_or("");
                let cells = line.split([',', ' ', '\t']).filter(|cell| !cell.is_empty()).collect();
                (number + 1, cells)
            })
            .filter(|(_, cells): &(usize, Vec<&str>)| !cells.is_empty())
            .collect();
        let Some((_, first)) = rows.first() else {
            return Err(MatrixError::Empty { file: file.into() });
        };
        let named = first[0].parse::<f64>().is_err();
        let regions: Vec<String> =
            if named { first.iter().map(ToString::to_string).collect() } else { vec![] };
        let size = first.len();
        let body = &rows[usize::from(named)..];
        if body.len() != size {
            return Err(MatrixError::NotSquare { file: file.into(), rows: body.len(), columns: size });
        }
        let mut delays = Vec::with_capacity(size * size);
        for (row, (line, cells)) in body.iter().enumerate() {
            let wrong = |source| MatrixError::Row { file: file.into(), line: *line, source };
            let cells = if named {
                if cells[0] != regions[row] {
                    let (expected, given) = (regions[row].clone(), cells[0].into());
                    return Err(wrong(RowError::Region { expected, given }));
                }
                &cells[1..]
            } else {
                &cells[..]
            };
            if cells.len() != size {
                return Err(wrong(RowError::Length { delays: cells.len(), expected: size }));
            }
            for cell in cells {
                delays.push(Time::parse(cell).map_err(|error| wrong(error.into()))?);
            }
        }
        Ok(Self { file: file.into(), size, regions, delays })
    }

    fn between(&self, from: usize, to: usize) -> Time {
        self.delays[(from % self.size) * self.size + to % self.size]
    }

    fn largest(&self) -> Time {
        self.delays.iter().copied().max().unwrap_or_default()
    }

    fn fits(&self, processes: usize) -> Result<(), MatrixError> {
        if self.regions.is_empty() && self.size != processes {
            return Err(MatrixError::WrongSize { file: self.file.clone(), size: self.size, processes });
        }
        Ok(())
    }
}

/// The reason why a text is not a delay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DelayError {
    /// There is no distribution of this name.
    #[error(
        "there is no delay '{kind}': there is constant:T, uniform:A..B, exponential:MEAN, lognormal:MEAN,SIGMA and \
         matrix:FILE"
    )]
    Unknown {
        /// The name.
        kind: String,
    },
    /// A uniform distribution does not have two bounds.
    #[error("uniform takes two times, as in uniform:0.5..1.5, not '{text}'")]
    Uniform {
        /// The text after the colon.
        text: String,
    },
    /// The bounds of a uniform distribution are in the wrong order.
    #[error("uniform takes the smaller time first: {low}..{high} is empty")]
    EmptyUniform {
        /// The first bound.
        low: Time,
        /// The second bound.
        high: Time,
    },
    /// A log-normal distribution does not have two parameters.
    #[error("lognormal takes MEAN,SIGMA, as in lognormal:1,0.5, not '{text}'")]
    LogNormal {
        /// The text after the colon.
        text: String,
    },
    /// The sigma of a log-normal distribution is not a number.
    #[error("'{text}' is not a number")]
    Sigma {
        /// The text.
        text: String,
    },
    /// A parameter of a log-normal distribution is out of range.
    #[error("lognormal takes a mean above 0 and a sigma between 0 and 10")]
    LogNormalRange,
    /// A time is invalid.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// The matrix is invalid.
    #[error(transparent)]
    Matrix(#[from] MatrixError),
}

/// The reason why a delay matrix cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MatrixError {
    /// The file cannot be read.
    #[error("cannot read the delay matrix {file}: {source}")]
    Read {
        /// The name of the file.
        file: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is too large.
    #[error("the delay matrix {file} is larger than 64 MiB")]
    TooLarge {
        /// The name of the file.
        file: String,
    },
    /// The file has no rows.
    #[error("the delay matrix {file} is empty")]
    Empty {
        /// The name of the file.
        file: String,
    },
    /// The number of rows is not the number of columns.
    #[error("the delay matrix {file} has {rows} rows and {columns} columns: it must be square")]
    NotSquare {
        /// The name of the file.
        file: String,
        /// The number of rows.
        rows: usize,
        /// The number of columns.
        columns: usize,
    },
    /// A row is invalid.
    #[error("the delay matrix {file}, line {line}: {source}")]
    Row {
        /// The name of the file.
        file: String,
        /// The number of the line, from 1.
        line: usize,
        /// The reason.
        source: RowError,
    },
    /// A matrix of single sites has another number of rows than there are processes.
    #[error(
        "the delay matrix {file} is for {size} processes, and there are {processes} (the sites, and the coordinator \
         if it is separate); give one row and column for each, or name the rows and columns to assign the sites to \
         regions"
    )]
    WrongSize {
        /// The name of the file.
        file: String,
        /// The number of rows and columns.
        size: usize,
        /// The number of processes.
        processes: usize,
    },
}

/// The reason why a row of a delay matrix is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowError {
    /// The row starts with the name of another region.
    #[error("the row should start with '{expected}', not '{given}'")]
    Region {
        /// The region of this row.
        expected: String,
        /// The first cell.
        given: String,
    },
    /// The number of delays is not the number of columns.
    #[error("{delays} delays, where {expected} were expected")]
    Length {
        /// The number of delays.
        delays: usize,
        /// The number of columns.
        expected: usize,
    },
    /// A delay is invalid.
    #[error(transparent)]
    Delay(#[from] TimeError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::rng::Purpose;

    #[test]
    fn every_form_survives_display_and_parse() {
        for text in ["constant:1", "uniform:0.5..1.5", "exponential:2", "lognormal:1,0.5"] {
            assert_eq!(Delay::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Delay::parse("0.25").unwrap(), Delay::Constant(Time::from_t(0.25).unwrap()));
    }

    #[test]
    fn invalid_delays_are_rejected() {
        for text in [
            "constant:-1",
            "constant:NaN",
            "uniform:2..1",
            "uniform:1",
            "lognormal:0,1",
            "gauss:1",
            "matrix:/no",
        ] {
            let error = Delay::parse(text).unwrap_err().to_string();
            assert!(error.len() > 20, "{text}: {error}");
        }
    }

    #[test]
    fn drawn_delays_have_the_expected_mean() {
        let mut rng = Rng::new(3, Purpose::Network);
        for text in ["uniform:0.5..1.5", "exponential:1", "lognormal:1,0.8"] {
            let delay = Delay::parse(text).unwrap();
            let sum: f64 = (0..200_000).map(|_| delay.draw(0, 1, &mut rng).as_t()).sum();
            assert!((sum / 200_000.0 - 1.0).abs() < 0.02, "{text}: {}", sum / 200_000.0);
        }
    }

    #[test]
    fn sites_are_assigned_to_regions_in_turn() {
        let text = "      eu  us\n eu  0.1 2 # near\n us  3, 0.2\n";
        let matrix = Matrix::parse("wan", text).unwrap();
        assert!(matrix.fits(5).is_ok());
        assert_eq!(matrix.between(0, 2).as_t(), 0.1, "S1 and S3 are both in the first region");
        assert_eq!(matrix.between(0, 1).as_t(), 2.0);
        assert_eq!(matrix.between(1, 4).as_t(), 3.0);
    }

    #[test]
    fn matrix_of_the_wrong_size_is_rejected() {
        let fits = |text, processes| Matrix::parse("m", text).and_then(|matrix| matrix.fits(processes));
        let wrong = |text, processes| fits(text, processes).unwrap_err();
        assert!(matches!(wrong("0 1\n1 0\n", 3), MatrixError::WrongSize { size: 2, processes: 3, .. }));
        let short = RowError::Length { delays: 1, expected: 2 };
        assert!(matches!(wrong("0 1\n1\n", 2), MatrixError::Row { line: 2, source, .. } if source == short));
        assert!(matches!(wrong("0 1\n", 2), MatrixError::NotSquare { rows: 1, columns: 2, .. }));
        let other = RowError::Region { expected: "b".into(), given: "c".into() };
        let row = wrong("a b\na 0 1\nc 1 0\n", 2);
        assert!(matches!(row, MatrixError::Row { line: 3, source, .. } if source == other));
        assert!(matches!(wrong("", 2), MatrixError::Empty { .. }));
    }
}
