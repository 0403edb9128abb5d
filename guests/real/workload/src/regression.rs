//! Training of a logistic regression: examples from a text file, a model into another one (LockScope
//! table 6).

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::random::Random;
use crate::{Outcome, Work};

/// What an example is described by.
const FEATURES: usize = 8;
const EXAMPLES: usize = 500;
/// How often the examples are gone through.
const EPOCHS: usize = 5;
/// How far a weight moves against its gradient.
const RATE: f64 = 0.1;
/// Share of its own examples that a model must get right: they can be told apart by a plane.
const RIGHT: f64 = 0.8;

/// Trains on the examples in a directory.
pub(crate) struct Training {
    directory: PathBuf,
}

struct Example {
    features: [f64; FEATURES],
    label: f64,
}

impl Training {
    pub(crate) fn prepare(directory: &Path) -> Outcome<Self> {
        let mut random = Random::new();
        let plane: [f64; FEATURES] = std::array::from_fn(|_| random.unit());
        let mut file = BufWriter::new(File::create(directory.join("examples.csv"))?);
        for _ in 0..EXAMPLES {
            let features: [f64; FEATURES] = std::array::from_fn(|_| random.unit());
            let label = u8::from(dot(&plane, &features) > 0.0);
            features
                .iter()
                .try_for_each(|value| write!(file, "{value:.6},"))?;
            writeln!(file, "{label}")?;
        }
        file.flush()?;
        Ok(Self {
            directory: directory.to_owned(),
        })
    }
}

impl Work for Training {
    fn round(&mut self) -> Outcome<bool> {
        let examples = read(&self.directory.join("examples.csv"))?;
        let weights = train(&examples);
        let is_right =
            |example: &&Example| (dot(&weights, &example.features) > 0.0) == (example.label > 0.5);
        let right = examples.iter().filter(is_right).count() as f64 / examples.len().max(1) as f64;
        if right < RIGHT {
            return Err(format!("{right} of the examples are told right, expected {RIGHT}").into());
        }
        let lines: Vec<_> = weights.iter().map(f64::to_string).collect();
        fs::write(self.directory.join("model"), lines.join("\n"))?;
        Ok(true)
    }
}

fn read(file: &Path) -> Outcome<Vec<Example>> {
    let mut examples = Vec::new();
    for line in BufReader::new(File::open(file)?).lines() {
        let mut features = [0.0; FEATURES];
        let line = line?;
        let mut values = line.split(',');
        for feature in &mut features {
            *feature = values.next().ok_or("an example is too short")?.parse()?;
        }
        let label = values.next().ok_or("an example has no label")?.parse()?;
        examples.push(Example { features, label });
    }
    Ok(examples)
}

fn train(examples: &[Example]) -> [f64; FEATURES] {
    let mut weights = [0.0; FEATURES];
    for _ in 0..EPOCHS {
        for example in examples {
            let guess = 1.0 / (1.0 + (-dot(&weights, &example.features)).exp());
            let error = example.label - guess;
            for (weight, feature) in weights.iter_mut().zip(example.features) {
                *weight += RATE * error * feature;
            }
        }
    }
    weights
}

fn dot(one: &[f64; FEATURES], two: &[f64; FEATURES]) -> f64 {
    one.iter().zip(two).map(|(one, two)| one * two).sum()
}
