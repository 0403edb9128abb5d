//! Makes a thumbnail. `thumbnail [WIDTH] <image.png >small.ppm`
//!
//! Reads a PNG image from standard input and writes it to standard output as a portable pixmap,
//! scaled down to WIDTH pixels (64 unless told) in proportion. Each pixel is the mean of those
//! that it stands for. An image that is narrower keeps its size; transparency is dropped.
//!
//! Exit code 0, 1 if the image cannot be read, 2 if the arguments make no sense.

use std::env;
use std::error::Error;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::num::NonZeroUsize;
use std::process::ExitCode;

use png::{BitDepth, ColorType, Decoder, Limits, Transformations};

/// Bytes that the decoder may allocate: an absurd header is an error, not an exhausted memory.
const DECODER_BYTES: usize = 256 << 20;

fn main() -> ExitCode {
    let width = env::args()
        .nth(1)
        .map_or(NonZeroUsize::new(64), |argument| argument.parse().ok());
    let Some(width) = width else {
        eprintln!("usage: thumbnail [WIDTH] <image.png >small.ppm");
        return ExitCode::from(2);
    };
    match thumbnail(io::stdin().lock(), io::stdout().lock(), width.get()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("thumbnail: {error}");
            ExitCode::FAILURE
        }
    }
}

fn thumbnail(input: impl Read, output: impl Write, width: usize) -> Result<(), Box<dyn Error>> {
    let image = Image::decode(input)?;
    let width = width.min(image.width);
    let height = (image.height * width / image.width).max(1);
    Ok(image.scaled(width, height).write(output)?)
}

/// Red, green and blue of every pixel, row by row.
struct Image {
    width: usize,
    height: usize,
    pixels: Vec<[u8; 3]>,
}

impl Image {
    fn decode(input: impl Read) -> Result<Image, Box<dyn Error>> {
        // The decoder wants to seek.
        let mut bytes = Vec::new();
        BufReader::new(input).read_to_end(&mut bytes)?;
        let limits = Limits {
            bytes: DECODER_BYTES,
        };
        let mut decoder = Decoder::new_with_limits(io::Cursor::new(bytes), limits);
        decoder.set_transformations(Transformations::normalize_to_color8());
        let mut reader = decoder.read_info()?;
        let size = reader
            .output_buffer_size()
            .filter(|&size| size <= DECODER_BYTES);
        let mut samples = vec![0; size.ok_or("the image is too large")?];
        let frame = reader.next_frame(&mut samples)?;
        if frame.bit_depth != BitDepth::Eight {
            return Err("the image has not 8 bits a sample".into());
        }
        samples.truncate(frame.buffer_size());
        let pixels = match frame.color_type {
            ColorType::Grayscale => samples.iter().map(|&gray| [gray; 3]).collect(),
            ColorType::GrayscaleAlpha => samples
                .chunks_exact(2)
                .map(|sample| [sample[0]; 3])
                .collect(),
            ColorType::Rgb => samples.chunks_exact(3).map(color).collect(),
            ColorType::Rgba => samples.chunks_exact(4).map(color).collect(),
            ColorType::Indexed => return Err("the image's palette was not resolved".into()),
        };
        Ok(Image {
            width: frame.width as usize,
            height: frame.height as usize,
            pixels,
        })
    }

    /// The image in no more than its own width and height.
    fn scaled(&self, width: usize, height: usize) -> Image {
        let mut pixels = Vec::with_capacity(width * height);
        for row in 0..height {
            let rows = row * self.height / height..(row + 1) * self.height / height;
            for column in 0..width {
                let columns = column * self.width / width..(column + 1) * self.width / width;
                let area = rows.clone().flat_map(|y| {
                    let start = y * self.width;
                    &self.pixels[start + columns.start..start + columns.end]
                });
                pixels.push(mean(area));
            }
        }
        Image {
            width,
            height,
            pixels,
        }
    }

    fn write(&self, output: impl Write) -> io::Result<()> {
        let mut output = BufWriter::new(output);
        write!(output, "P6\n{} {}\n255\n", self.width, self.height)?;
        output.write_all(self.pixels.as_flattened())?;
        output.flush()
    }
}

fn color(sample: &[u8]) -> [u8; 3] {
    [sample[0], sample[1], sample[2]]
}

fn mean<'a>(pixels: impl Iterator<Item = &'a [u8; 3]>) -> [u8; 3] {
    let mut sums = [0_u64; 3];
    let mut count = 0;
    for pixel in pixels {
        for (sum, sample) in sums.iter_mut().zip(pixel) {
            *sum += u64::from(*sample);
        }
        count += 1;
    }
    sums.map(|sum| (sum / count) as u8)
}
