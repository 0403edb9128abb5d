//! Image processing: a picture with several effects applied, each result written (LockScope table 6).

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};

use png::{BitDepth, ColorType, Decoder, Encoder};

use crate::random::Random;
use crate::{Outcome, Work};

/// Width and height of the picture.
const SIDE: usize = 128;

/// Applies the effects to a picture in a directory.
pub(crate) struct Processing {
    directory: PathBuf,
}

impl Processing {
    pub(crate) fn prepare(directory: &Path) -> Outcome<Self> {
        let mut random = Random::new();
        let shade = |at: usize, noise: u64| (at * 255 / SIDE) as u8 ^ (noise as u8 & 0x0f);
        let pixel = |at: usize| {
            let (row, column) = (at / SIDE, at % SIDE);
            [
                shade(row, random.next()),
                shade(column, random.next()),
                shade((row + column) / 2, 0),
            ]
        };
        let pixels = (0..SIDE * SIDE).map(pixel).collect();
        let picture = Picture {
            width: SIDE,
            height: SIDE,
            pixels,
        };
        picture.write(&directory.join("picture.png"))?;
        Ok(Self {
            directory: directory.to_owned(),
        })
    }
}

impl Work for Processing {
    fn round(&mut self) -> Outcome<bool> {
        let picture = Picture::read(&self.directory.join("picture.png"))?;
        let results = [
            ("turned.png", picture.turned()),
            ("grey.png", picture.grey()),
            ("blurred.png", picture.blurred()),
            ("small.png", picture.small()),
        ];
        for (name, result) in results {
            result.write(&self.directory.join(name))?;
        }
        Ok(true)
    }
}

/// Red, green and blue of every pixel, row by row.
struct Picture {
    width: usize,
    height: usize,
    pixels: Vec<[u8; 3]>,
}

impl Picture {
    fn read(file: &Path) -> Outcome<Self> {
        let mut reader = Decoder::new(BufReader::new(File::open(file)?)).read_info()?;
        let size = reader
            .output_buffer_size()
            .ok_or("the picture is too large")?;
        let mut samples = vec![0; size];
        let frame = reader.next_frame(&mut samples)?;
        if (frame.color_type, frame.bit_depth) != (ColorType::Rgb, BitDepth::Eight) {
            return Err("the picture has not three samples of 8 bits".into());
        }
        let (pixels, _) = samples[..frame.buffer_size()].as_chunks();
        Ok(Self {
            width: frame.width as usize,
            height: frame.height as usize,
            pixels: pixels.to_vec(),
        })
    }

    fn write(&self, file: &Path) -> Outcome<()> {
        let output = BufWriter::new(File::create(file)?);
        let mut encoder = Encoder::new(output, self.width as u32, self.height as u32);
        encoder.set_color(ColorType::Rgb);
        encoder.set_depth(BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(self.pixels.as_flattened())?;
        Ok(writer.finish()?)
    }

    fn at(&self, column: usize, row: usize) -> [u8; 3] {
        self.pixels[row * self.width + column]
    }

    /// Of the given size, with each pixel made from its place.
    fn made(width: usize, height: usize, pixel: impl Fn(usize, usize) -> [u8; 3]) -> Self {
        let places = (0..height).flat_map(|row| (0..width).map(move |column| (column, row)));
        let pixels = places.map(|(column, row)| pixel(column, row)).collect();
        Self {
            width,
            height,
            pixels,
        }
    }

    fn turned(&self) -> Self {
        Self::made(self.height, self.width, |column, row| {
            self.at(row, self.height - 1 - column)
        })
    }

    fn grey(&self) -> Self {
        Self::made(self.width, self.height, |column, row| {
            let sum: u16 = self.at(column, row).map(u16::from).iter().sum();
            [(sum / 3) as u8; 3]
        })
    }

    /// The mean of a square around each pixel.
    fn blurred(&self) -> Self {
        const AROUND: usize = 2;
        Self::made(self.width, self.height, |column, row| {
            let rows = row.saturating_sub(AROUND)..(row + AROUND + 1).min(self.height);
            self.mean(
                column.saturating_sub(AROUND)..(column + AROUND + 1).min(self.width),
                rows,
            )
        })
    }

    /// Half as wide and high.
    fn small(&self) -> Self {
        Self::made(self.width / 2, self.height / 2, |column, row| {
            self.mean(2 * column..2 * column + 2, 2 * row..2 * row + 2)
        })
    }

    fn mean(&self, columns: std::ops::Range<usize>, rows: std::ops::Range<usize>) -> [u8; 3] {
        let count = (columns.len() * rows.len()).max(1) as u32;
        let mut sums = [0u32; 3];
        for row in rows {
            for column in columns.clone() {
                for (sum, sample) in sums.iter_mut().zip(self.at(column, row)) {
                    *sum += u32::from(sample);
                }
            }
        }
        sums.map(|sum| (sum / count) as u8)
    }
}
