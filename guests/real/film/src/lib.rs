//! Plays a film: a decoder of motion JPEG, and a film for it to play.
//!
//! `prepare(FRAMES)` draws a scene, encodes a picture of it for each frame, and keeps the pictures
//! one after the other, from `film_start()` to `film_end()`. `decode(FRAME)` decodes one and
//! returns a number that depends on every pixel of it. A host that takes an image of the memory in
//! between can start any number of players from it, which share the decoder's tables and the film.

use std::cell::RefCell;

use jpeg_encoder::{ColorType, Encoder};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;

const WIDTH: u16 = 640;
const HEIGHT: u16 = 360;
/// The quality of the pictures, of 100.
const QUALITY: u8 = 95;
/// Bytes of a pixel.
const RGB: usize = 3;

/// Encoded pictures, and where each ends.
struct Film {
    pictures: Vec<u8>,
    ends: Vec<usize>,
}

thread_local! {
    static FILM: RefCell<Film> = const {
        RefCell::new(Film { pictures: Vec::new(), ends: Vec::new() })
    };
}

/// Makes a film of so many frames. Traps if a picture cannot be encoded; none is known.
#[unsafe(no_mangle)]
pub extern "C" fn prepare(frames: u32) {
    let mut film = Film {
        pictures: Vec::new(),
        ends: Vec::new(),
    };
    let mut picture = vec![0; usize::from(WIDTH) * usize::from(HEIGHT) * RGB];
    for frame in 0..frames {
        draw(frame, &mut picture);
        let encoder = Encoder::new(&mut film.pictures, QUALITY);
        let encoded = encoder.encode(&picture, WIDTH, HEIGHT, ColorType::Rgb);
        encoded.expect("a picture of this size can be encoded");
        film.ends.push(film.pictures.len());
    }
    // No more capacity than needed: the excess would be part of every image.
    film.pictures.shrink_to_fit();
    FILM.set(film);
}

/// Decodes a frame, modulo their number; the sum of all its bytes, each times its place. Traps if
/// there are none, or if one was damaged.
#[unsafe(no_mangle)]
pub extern "C" fn decode(frame: u32) -> u64 {
    FILM.with_borrow(|film| {
        let frame = frame as usize % film.ends.len();
        let start = frame.checked_sub(1).map_or(0, |before| film.ends[before]);
        let picture = &film.pictures[start..film.ends[frame]];
        let pixels = JpegDecoder::new(ZCursor::new(picture)).decode();
        let pixels = pixels.expect("a picture of the film");
        let places = (1u64..).zip(pixels);
        places.fold(0, |sum: u64, (place, byte)| {
            sum.wrapping_add(place.wrapping_mul(byte.into()))
        })
    })
}

/// The address of the first picture.
#[unsafe(no_mangle)]
pub extern "C" fn film_start() -> u32 {
    FILM.with_borrow(|film| film.pictures.as_ptr().addr() as u32)
}

/// The address after the last picture.
#[unsafe(no_mangle)]
pub extern "C" fn film_end() -> u32 {
    FILM.with_borrow(|film| film.pictures.as_ptr_range().end.addr() as u32)
}

/// A sky that changes its colour, a ball that flies across it, and grass, which is never the same;
/// and grain over all of it, as film has.
fn draw(frame: u32, picture: &mut [u8]) {
    const RADIUS: i32 = 40;
    let time = frame as i32;
    let (width, height) = (i32::from(WIDTH), i32::from(HEIGHT));
    let ball = (time * 11 % width, height / 3 + (time * 7 % 80 - 40).abs());
    let mut noise = frame.wrapping_mul(0x9E37_79B9) | 1;
    for (at, pixel) in (0..).zip(picture.chunks_exact_mut(RGB)) {
        let (x, y): (i32, i32) = (at % width, at / width);
        let (dx, dy) = (x - ball.0, y - ball.1);
        noise ^= noise << 13;
        noise ^= noise >> 17;
        noise ^= noise << 5;
        let colour = if dx * dx + dy * dy < RADIUS * RADIUS {
            [230, 200 - dy.abs() * 3, 40 + dx.abs() * 2]
        } else if y > 2 * height / 3 {
            let blade = (noise & 63) as i32;
            [20 + blade / 2, 90 + blade, 20 + blade / 4]
        } else {
            [80 + (x + time) * 60 / width, 120 + y * 90 / height, 220]
        };
        let grain = (noise >> 8 & 31) as i32 - 16;
        for (byte, value) in pixel.iter_mut().zip(colour) {
            *byte = (value + grain).clamp(0, 255) as u8;
        }
    }
}
