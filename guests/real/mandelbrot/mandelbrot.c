/* Computes the Mandelbrot set: mandelbrot [SIZE [ITERATIONS [IMAGES]]]
 *
 * Draws SIZE by SIZE pixels (256 unless told, at most 8,192), each the number of iterations until
 * escape (at most ITERATIONS, 255 unless told, modulo 256), and prints the image's header as a
 * portable graymap would have it and the FNV-1a hash of its pixels. Only additions and
 * multiplications of doubles: every host computes the same image. Told how many IMAGES, it draws
 * that many, and says of each when it was done: nanoseconds since 1970.
 *
 * Exit code 0, or 2 if the arguments make no sense.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_SIZE = 8192, MAX_ITERATIONS = 1000000, MAX_IMAGES = 1000000000 };

static int escape(double x0, double y0, int iterations)
{
    double x = 0, y = 0;
    for (int i = 0; i < iterations; i++) {
        double xx = x * x, yy = y * y;
        if (xx + yy > 4)
            return i;
        y = 2 * x * y + y0;
        x = xx - yy + x0;
    }
    return iterations;
}

static uint64_t draw(int size, int iterations)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int row = 0; row < size; row++) {
        for (int column = 0; column < size; column++) {
            int pixel = escape(3.0 * column / size - 2.25, 3.0 * row / size - 1.5, iterations);
            hash = (hash ^ (uint8_t)pixel) * UINT64_C(0x100000001b3);
        }
    }
    return hash;
}

/* The number that the argument is, or 0 if it is none between 1 and max. */
static int number(const char *argument, int max)
{
    char *end;
    long value = strtol(argument, &end, 10);
    return *end == '\0' && value >= 1 && value <= max ? (int)value : 0;
}

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int main(int argc, char **argv)
{
    int size = argc > 1 ? number(argv[1], MAX_SIZE) : 256;
    int iterations = argc > 2 ? number(argv[2], MAX_ITERATIONS) : 255;
    int images = argc > 3 ? number(argv[3], MAX_IMAGES) : 1;
    if (argc > 4 || size == 0 || iterations == 0 || images == 0) {
        fputs("usage: mandelbrot [SIZE [ITERATIONS [IMAGES]]]\n", stderr);
        return 2;
    }
    for (int image = 0; image < images; image++) {
        printf("P5 %d %d 255 fnv1a %016" PRIx64, size, size, draw(size, iterations));
        if (argc > 3)
            printf(" at %" PRId64, nanoseconds());
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
