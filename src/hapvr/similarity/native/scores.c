/* Scores of one query with many videos, from vectors of one byte a number, for CPUs that multiply bytes (VNNI).

   compare_frames: the frame matrix. Region products are reduced to maxima in registers; they are never stored as a whole.
   look_up_words:  codes of three bits a number, as a library keeps them, to bytes.
   score_videos:   that matrix, psi and the temporal aggregation of one video after the other, all in a core's cache.

   hapvr.similarity.int8 computes the same in torch and says what it means; hapvr.similarity.native calls this file. It is
   compiled once for each width of vectors: LANES is 16 (AVX-512 VNNI) or 8 (AVX-VNNI). Shapes: H query frames, W target
   frames, D dims; a "lane" is a region of a query frame. Nothing is shared between calls: they may run in any threads. */

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define REGIONS 9
#define MAX_CHUNK 24 /* target frames */
#define INLINE static inline __attribute__((always_inline))
/* Sums are variables with names, not arrays in loops: compilers keep those in registers. */
#define EACH_REGION(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#define EACH_PIXEL(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

#if LANES == 16
typedef __m512i Ints;
typedef __m512 Floats;
#define WIDE 3   /* vectors of lanes multiplied at a time: 9 x 3 sums, and what is multiplied, fill the registers */
#define PIXELS 8 /* of a convolution at a time, by 2 vectors of output channels */
#define add_byte_products _mm512_dpbusd_epi32
#define load_ints(p) _mm512_loadu_si512(p)
#define spread_int(x) _mm512_set1_epi32(x)
#define load _mm512_loadu_ps
#define store _mm512_storeu_ps
#define spread _mm512_set1_ps
#define multiply _mm512_mul_ps
#define add _mm512_add_ps
#define multiply_add _mm512_fmadd_ps
#define maximum _mm512_max_ps
#define to_floats _mm512_cvtepi32_ps
#define sum_ints _mm512_reduce_add_epi32
#define sum_floats _mm512_reduce_add_ps
#define max_floats _mm512_reduce_max_ps
INLINE void store_bytes(uint8_t *out, Floats x) { _mm_storeu_si128((void *)out, _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(x))); }
#else
typedef __m256i Ints;
typedef __m256 Floats;
#define WIDE 1
#define PIXELS 4
#ifdef __AVXVNNI__
#define add_byte_products _mm256_dpbusd_avx_epi32
#else /* the same instructions as AVX-512 encodes them: for tests on CPUs without AVX-VNNI */
#define add_byte_products _mm256_dpbusd_epi32
#endif
#define load_ints(p) _mm256_loadu_si256((const void *)(p))
#define spread_int(x) _mm256_set1_epi32(x)
#define load _mm256_loadu_ps
#define store _mm256_storeu_ps
#define spread _mm256_set1_ps
#define multiply _mm256_mul_ps
#define add _mm256_add_ps
#define multiply_add _mm256_fmadd_ps
#define maximum _mm256_max_ps
#define to_floats _mm256_cvtepi32_ps
INLINE int32_t sum_ints(Ints x) {
    int32_t part[8], sum = 0;
    _mm256_storeu_si256((void *)part, x);
    for (int i = 0; i < 8; i++) sum += part[i];
    return sum;
}
INLINE float sum_floats(Floats x) {
    float part[8];
    store(part, x);
    return ((part[0] + part[4]) + (part[1] + part[5])) + ((part[2] + part[6]) + (part[3] + part[7]));
}
INLINE float max_floats(Floats x) {
    float part[8], best;
    store(part, x);
    best = part[0];
    for (int i = 1; i < 8; i++) best = MAX(best, part[i]);
    return best;
}
INLINE void store_bytes(uint8_t *out, Floats x) {
    Ints whole = _mm256_cvtps_epi32(x);
    __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64((void *)out, _mm_packus_epi16(words, words));
}
#endif

int runs_here(void) {
#if LANES == 16
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
#elif defined(__AVXVNNI__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("avxvnni");
#else
    return __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
#endif
}

int lanes(void) { return LANES; }

INLINE int32_t load_int(const void *bytes) {
    int32_t value;
    memcpy(&value, bytes, 4);
    return value;
}

/* Words of 12 bits, two in three bytes, by a table of four bytes a word: [count, 3] bytes to [count, 2] entries. */
void look_up_words(const uint8_t *bytes, int64_t count, const uint32_t *table, uint32_t *entries) {
    for (int64_t i = 0; i < count; i++, bytes += 3) {
        uint32_t both = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16;
        entries[2 * i] = table[both & 0xFFF];
        entries[2 * i + 1] = table[both >> 12];
    }
}

/* ---- frame matrix ------------------------------------------------------------------------------------------------- */

/* A query as it is multiplied: lane r * H + h holds region r of frame h. Lanes lie in blocks of WIDE vectors:
   [blocks][D / 4][vectors of the block][LANES][4], as numbers from 1 to 255 (128 is added to each). With it the room for
   products of `chunk` target frames: these meet a block of the query while that is in the nearest cache. */
typedef struct {
    int64_t frames, dims, lanes, vectors, stride, chunk; /* lanes are filled up to whole vectors, rows to one more */
    int both_ways;
    uint8_t *codes;
    float *scales, *best, *products; /* [stride], [chunk, stride], and with both_ways [chunk, REGIONS, stride] */
} Query;

/* A video, or videos laid end to end: codes [W, 9, D], scales [W, 1 or 9]. */
typedef struct {
    const int8_t *codes;
    const float *scales;
    int64_t scales_a_frame, frames;
} Video;

/* Packs a query; gives the memory it lies in, NULL if there is not enough. */
static void *pack_query(Query *query, const Video *video, int64_t dims, int both_ways) {
    int64_t frames = video->frames;
    *query = (Query){.frames = frames, .dims = dims, .lanes = frames * REGIONS, .both_ways = both_ways};
    query->vectors = (query->lanes + LANES - 1) / LANES;
    query->stride = (query->vectors + 1) * LANES; /* rows are read a vector beyond their end */
    query->chunk = MAX(4, MIN(MAX_CHUNK, 6144 / query->stride)); /* products stay in the second cache */
    size_t packed = (size_t)(query->vectors * LANES * dims);
    size_t floats = (size_t)(query->stride * (1 + query->chunk * (both_ways ? REGIONS + 1 : 1)));
    uint8_t *memory = aligned_alloc(64, (packed + floats * sizeof(float) + 63) / 64 * 64);
    if (!memory) return NULL;
    query->codes = memory;
    query->scales = (float *)(memory + packed);
    query->best = query->scales + query->stride;
    query->products = both_ways ? query->best + query->chunk * query->stride : NULL;
    memset(query->codes, 128, packed);
    memset(query->scales, 0, floats * sizeof(float));
    for (int64_t lane = 0; lane < query->lanes; lane++) {
        int64_t region = lane / frames, frame = lane % frames, vector = lane / LANES, block = vector / WIDE;
        int64_t wide = MIN(WIDE, query->vectors - block * WIDE);
        const int8_t *from = video->codes + (frame * REGIONS + region) * dims;
        uint8_t *to = query->codes + block * WIDE * LANES * dims + ((vector % WIDE) * LANES + lane % LANES) * 4;
        for (int64_t k = 0; k < dims; k += 4, to += wide * LANES * 4) {
            int32_t four = load_int(from + k) ^ (int32_t)0x80808080;
            memcpy(to, &four, 4);
        }
        query->scales[lane] = video->scales[frame * video->scales_a_frame + (video->scales_a_frame > 1 ? region : 0)];
    }
    return memory;
}

/* Products of `wide` vectors of lanes with the regions of a target frame. `best` gets the largest of a lane's products,
   `products` [REGIONS][stride] all of them unless it is NULL. `offsets`: what 128 more in each query number adds. */
INLINE void multiply_block(int wide, const uint8_t *query, const float *query_scales, const int8_t *target,
                           const int32_t *offsets, const float *target_scales, int64_t scales_a_frame, int64_t dims,
                           float *best, float *products, int64_t stride) {
    Ints zero = spread_int(0), sums[3][REGIONS];
#define BEGIN(s) Ints a##s = spread_int(offsets[s]), b##s = a##s, c##s = a##s;
#define ADD(s)                                                                                                            \
    {                                                                                                                     \
        Ints four = spread_int(load_int(target + s * dims + k));                                                          \
        a##s = add_byte_products(a##s, one, four);                                                                        \
        if (wide > 1) b##s = add_byte_products(b##s, two, four);                                                          \
        if (wide > 2) c##s = add_byte_products(c##s, three, four);                                                        \
    }
#define END(s) sums[0][s] = a##s, sums[1][s] = b##s, sums[2][s] = c##s;
    EACH_REGION(BEGIN)
    for (int64_t k = 0; k < dims; k += 4, query += wide * LANES * 4) {
        Ints one = load_ints(query), two = wide > 1 ? load_ints(query + LANES * 4) : zero;
        Ints three = wide > 2 ? load_ints(query + 2 * LANES * 4) : zero;
        EACH_REGION(ADD)
    }
    EACH_REGION(END)
    for (int v = 0; v < wide; v++) {
        Floats own = load(query_scales + v * LANES), most = spread(-INFINITY);
        for (int s = 0; s < REGIONS; s++) {
            Floats scale = multiply(own, spread(target_scales[scales_a_frame > 1 ? s : 0]));
            Floats product = multiply(to_floats(sums[v][s]), scale);
            if (products) store(products + s * stride + v * LANES, product);
            most = maximum(most, product);
        }
        store(best + v * LANES, most);
    }
}

/* One row of the matrix: the mean over query regions of `best`, and with `products` the mean of that and of the mean over
   target regions of the largest product with a query region. Both are [.., stride], read in whole vectors. */
INLINE void reduce_lanes(const float *best, const float *products, int64_t frames, int64_t stride, float *row) {
    float part[LANES];
    for (int64_t h = 0; h < frames; h += LANES) {
        Floats forth = load(best + h);
        for (int r = 1; r < REGIONS; r++) forth = add(forth, load(best + r * frames + h));
        if (products) {
            for (int s = 0; s < REGIONS; s++) {
                const float *of_region = products + s * stride + h;
                Floats most = load(of_region);
                for (int r = 1; r < REGIONS; r++) most = maximum(most, load(of_region + r * frames));
                forth = add(forth, most);
            }
        }
        store(part, multiply(forth, spread(products ? 0.5f / REGIONS : 1.0f / REGIONS)));
        memcpy(row + h, part, (size_t)MIN(LANES, frames - h) * sizeof(float));
    }
}

/* The frame matrix, target frames in rows: matrix [W, H]. */
static void fill_matrix(const Query *query, const Video *video, float *matrix) {
    int64_t dims = query->dims, stride = query->stride;
    int32_t offsets[MAX_CHUNK][REGIONS];
    for (int64_t left = 0; left < video->frames; left += query->chunk) {
        int64_t count = MIN(query->chunk, video->frames - left);
        for (int64_t w = 0; w < count; w++) {
            for (int s = 0; s < REGIONS; s++) {
                Ints sum = spread_int(0);
                const int8_t *vector = video->codes + ((left + w) * REGIONS + s) * dims;
                for (int64_t k = 0; k < dims; k += LANES * 4)
                    sum = add_byte_products(sum, spread_int(0x01010101), load_ints(vector + k));
                offsets[w][s] = -128 * sum_ints(sum);
            }
        }
        for (int64_t first = 0; first < query->vectors; first += WIDE) {
            int64_t wide = MIN(WIDE, query->vectors - first), lane = first * LANES;
            for (int64_t w = 0; w < count; w++) {
#define BLOCK(n)                                                                                                          \
    multiply_block(n, query->codes + lane * dims, query->scales + lane, video->codes + (left + w) * REGIONS * dims,       \
                   offsets[w], video->scales + (left + w) * video->scales_a_frame, video->scales_a_frame, dims,           \
                   query->best + w * stride + lane,                                                                       \
                   query->both_ways ? query->products + w * REGIONS * stride + lane : NULL, stride)
                if (wide == WIDE) BLOCK(WIDE);
#if WIDE > 1
                else if (wide == 2) BLOCK(2);
                else BLOCK(1);
#endif
            }
        }
        for (int64_t w = 0; w < count; w++)
            reduce_lanes(query->best + w * stride, query->both_ways ? query->products + w * REGIONS * stride : NULL,
                         query->frames, stride, matrix + (left + w) * query->frames);
    }
}

/* The frame matrix of two videos, target frames in rows: matrix [W, H]. D is a multiple of 64. Returns 0, or 1 if there is
   not enough memory. */
int compare_frames(const Video *query, const Video *target, int64_t dims, int both_ways, float *matrix) {
    Query packed;
    void *memory = pack_query(&packed, query, dims, both_ways);
    if (!memory) return 1;
    fill_matrix(&packed, target, matrix);
    free(memory);
    return 0;
}

/* ---- psi ---------------------------------------------------------------------------------------------------------- */

#define C1 32
#define C2 64
#define C3 128

/* Target frames are rows of the pictures that are convolved, query frames their columns: taps are in that order. The second
   and third convolution multiply bytes: weights are stored as such, with a scale for each output, and those of 2 vectors of
   outputs lie together. */
typedef struct {
    const float *weight1, *bias1;                                          /* [9, 32], [32] */
    const int8_t *weight2; const float *scale2, *bias2;                    /* [64 / 2 LANES, 9, 8, 2 LANES, 4], [64], [64] */
    const int8_t *weight3; const float *scale3, *bias3;                    /* the same: 128, 16 */
    const float *last;                                                     /* [128] */
    float bias, slope;   /* `slope`: of values below 0 */
    int32_t residual;
} Psi;

/* What psi needs for a picture of `cells` cells with `edge` cells around the borders of what is convolved. */
typedef struct {
    float *picture, *first, *second, *values; /* the picture with a border of zeros; activations; results */
    uint8_t *bytes;                           /* activations as whole numbers, with a border of zeros */
    int64_t *windows;                         /* where in `bytes` the window of each pixel begins */
} Room;

/* 3x3 sums of PIXELS pixels and 2 vectors of output channels; `at`: where each pixel's window begins. */
INLINE void convolve_bytes(const uint8_t *bytes, const int64_t *at, int64_t row, int channels, const int8_t *weight,
                           Ints sums[PIXELS][2]) {
#define BEGIN_PIXEL(p)                                                                                                    \
    Ints a##p = spread_int(0), b##p = a##p;                                                                               \
    const uint8_t *at##p = bytes + at[p < PIXELS ? p : 0];
#define ADD_PIXEL(p)                                                                                                      \
    if (p < PIXELS) {                                                                                                     \
        Ints four = spread_int(load_int(at##p + window));                                                                  \
        a##p = add_byte_products(a##p, four, one);                                                                        \
        b##p = add_byte_products(b##p, four, other);                                                                      \
    }
#define END_PIXEL(p)                                                                                                      \
    if (p < PIXELS) sums[p][0] = a##p, sums[p][1] = b##p;
#define ADD_ROW                                                                                                           \
    for (const int8_t *end = weight + 3 * channels * 2 * LANES; weight < end; weight += 8 * LANES, window += 4) {         \
        Ints one = load_ints(weight), other = load_ints(weight + 4 * LANES);                                              \
        EACH_PIXEL(ADD_PIXEL)                                                                                             \
    }
    int64_t window = 0; /* a row of it holds the numbers of three pixels, one after the other */
    EACH_PIXEL(BEGIN_PIXEL)
    ADD_ROW
    window = row;
    ADD_ROW
    window = 2 * row;
    ADD_ROW
    EACH_PIXEL(END_PIXEL)
}

/* First convolution, ReLU and pooling: picture [2 rows + 2.., row] to first [rows, columns, 32]; gives the largest value. */
static float convolve_picture(const Psi *psi, const float *picture, int64_t row, int64_t rows, int64_t columns, float *out) {
    Floats largest = spread(0);
    for (int c = 0; c < C1; c += 2 * LANES) {
        Floats bias[2] = {load(psi->bias1 + c), load(psi->bias1 + c + LANES)};
        for (int64_t y = 0; y < rows; y++) {
            for (int64_t x = 0; x < columns; x++) {
                const float *window = picture + 2 * y * row + 2 * x;
                Floats a0 = spread(0), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
#define ADD_CELL(p)                                                                                                       \
    cell = spread(window[(tap / 3 + p / 2) * row + tap % 3 + p % 2]);                                                     \
    a##p = multiply_add(cell, one, a##p), b##p = multiply_add(cell, other, b##p);
                for (int tap = 0; tap < 9; tap++) {
                    Floats one = load(psi->weight1 + tap * C1 + c), other = load(psi->weight1 + tap * C1 + c + LANES), cell;
                    ADD_CELL(0) ADD_CELL(1) ADD_CELL(2) ADD_CELL(3)
                }
                Floats most[2] = {maximum(maximum(a0, a1), maximum(a2, a3)), maximum(maximum(b0, b1), maximum(b2, b3))};
                for (int v = 0; v < 2; v++) {
                    Floats active = maximum(add(most[v], bias[v]), spread(0));
                    largest = maximum(largest, active);
                    store(out + (y * columns + x) * C1 + c + v * LANES, active);
                }
            }
        }
    }
    return max_floats(largest);
}

/* Activations [rows, columns, channels] times a factor, as bytes with a border of zeros: [rows + 2, columns + 2, channels]. */
static void round_bytes(const float *values, int64_t rows, int64_t columns, int64_t channels, float factor, uint8_t *bytes) {
    int64_t row = (columns + 2) * channels;
    memset(bytes, 0, (size_t)row);
    memset(bytes + (rows + 1) * row, 0, (size_t)row);
    for (int64_t y = 0; y < rows; y++) {
        uint8_t *to = bytes + (y + 1) * row;
        memset(to, 0, (size_t)channels);
        memset(to + row - channels, 0, (size_t)channels);
        const float *from = values + y * columns * channels;
        for (int64_t i = 0; i < columns * channels; i += LANES)
            store_bytes(to + channels + i, multiply(load(from + i), spread(factor)));
    }
}

/* Where the windows of rows x columns blocks of side x side pixels begin in bytes with rows of `row` numbers, one block after
   the other; some beyond the last are those of the first, so that pixels can be taken by PIXELS. */
static void find_windows(int64_t rows, int64_t columns, int side, int64_t row, int channels, int64_t *windows) {
    int64_t *next = windows;
    for (int64_t y = 0; y < rows * side; y += side)
        for (int64_t x = 0; x < columns * side; x += side)
            for (int p = 0; p < side * side; p++) *next++ = (y + p / side) * row + (x + p % side) * channels;
    for (int p = 0; p < PIXELS; p++) next[p] = windows[0];
}

/* Second convolution, ReLU and pooling of `pixels` blocks of 2 x 2: bytes of [.., 32] to out [pixels, 64]; gives the largest
   value. */
static float convolve_second(const Psi *psi, const uint8_t *bytes, int64_t row, const int64_t *windows, float scale,
                             int64_t pixels, float *out) {
    Floats largest = spread(0);
    for (int c = 0; c < C2; c += 2 * LANES) {
        for (int64_t place = 0; place < pixels; place += PIXELS / 4) {
            int blocks = (int)MIN(PIXELS / 4, pixels - place);
            const int64_t *at = windows + 4 * place;
            Ints sums[PIXELS][2];
            convolve_bytes(bytes, at, row, C1, psi->weight2 + 9 * C1 * c, sums);
            for (int b = 0; b < blocks; b++) {
                for (int v = 0; v < 2; v++) {
                    Floats most = spread(-INFINITY);
                    for (int p = 0; p < 4; p++) most = maximum(most, to_floats(sums[4 * b + p][v]));
                    int channel = c + v * LANES;
                    Floats factor = multiply(load(psi->scale2 + channel), spread(scale));
                    most = maximum(multiply_add(most, factor, load(psi->bias2 + channel)), spread(0));
                    largest = maximum(largest, most);
                    store(out + (place + b) * C2 + channel, most);
                }
            }
        }
    }
    return max_floats(largest);
}

/* Third convolution, ReLU and the last one: bytes of [.., 64] to values [pixels]. */
static void convolve_third(const Psi *psi, const uint8_t *bytes, int64_t row, const int64_t *windows, float scale,
                           int64_t pixels, float *values) {
    for (int64_t i = 0; i < pixels; i++) values[i] = psi->bias;
    for (int c = 0; c < C3; c += 2 * LANES) {
        for (int64_t place = 0; place < pixels; place += PIXELS) {
            int count = (int)MIN(PIXELS, pixels - place);
            const int64_t *at = windows + place;
            Ints sums[PIXELS][2];
            convolve_bytes(bytes, at, row, C2, psi->weight3 + 9 * C2 * c, sums);
            for (int p = 0; p < count; p++) {
                Floats sum = spread(0);
                for (int v = 0; v < 2; v++) {
                    int channel = c + v * LANES;
                    Floats factor = multiply(load(psi->scale3 + channel), spread(scale));
                    Floats active = maximum(multiply_add(to_floats(sums[p][v]), factor, load(psi->bias3 + channel)), spread(0));
                    sum = multiply_add(active, load(psi->last + channel), sum);
                }
                values[place + p] += sum_floats(sum);
            }
        }
    }
}

/* What the picture says by itself in each block of 4 x 4: the mean over query frames of the largest cell. */
static float measure_block(const float *block, int64_t row) {
    float sum = 0;
    for (int x = 0; x < 4; x++) {
        const float *cell = block + x;
        sum += MAX(MAX(cell[0], cell[row]), MAX(cell[2 * row], cell[3 * row]));
    }
    return sum / 4;
}

/* psi of a picture [height, width] with a border of zeros, rows of `row` cells: room->values [height / 4, width / 4]. */
static void run_psi(const Psi *psi, const Room *room, int64_t row, int64_t height, int64_t width) {
    int64_t rows = height / 2, columns = width / 2, ends = rows / 2, wide = columns / 2;
    float most = convolve_picture(psi, room->picture, row, rows, columns, room->first);
    float step = most > 0 ? most / 255 : 1;
    round_bytes(room->first, rows, columns, C1, 1 / step, room->bytes);
    find_windows(ends, wide, 2, (columns + 2) * C1, C1, room->windows);
    most = convolve_second(psi, room->bytes, (columns + 2) * C1, room->windows, step, ends * wide, room->second);
    step = most > 0 ? most / 255 : 1;
    round_bytes(room->second, ends, wide, C2, 1 / step, room->bytes);
    find_windows(ends, wide, 1, (wide + 2) * C2, C2, room->windows);
    convolve_third(psi, room->bytes, (wide + 2) * C2, room->windows, step, ends * wide, room->values);
    for (int64_t y = 0; y < ends; y++) {
        for (int64_t x = 0; x < wide; x++) {
            float *value = room->values + y * wide + x;
            if (psi->residual) *value += measure_block(room->picture + (4 * y + 1) * row + 4 * x + 1, row);
            *value = MIN(1, MAX(-1, *value));
            if (*value < 0) *value *= psi->slope;
        }
    }
}

/* ---- time --------------------------------------------------------------------------------------------------------- */

/* The mean over `lines` of the mean of the `keep` largest of their `count` cells; `best` holds `keep` numbers. */
static float average_best(const float *values, int64_t lines, int64_t next, int64_t count, int64_t step, int64_t keep,
                          float *best) {
    double total = 0;
    for (int64_t line = 0; line < lines; line++) {
        const float *cell = values + line * next;
        int64_t held = 0; /* the largest come first */
        for (int64_t i = 0; i < count; i++, cell += step) {
            if (held == keep && *cell <= best[keep - 1]) continue;
            int64_t place = held < keep ? held++ : keep - 1;
            for (; place > 0 && best[place - 1] < *cell; place--) best[place] = best[place - 1];
            best[place] = *cell;
        }
        double sum = 0;
        for (int64_t i = 0; i < held; i++) sum += best[i];
        total += sum / (double)keep;
    }
    return (float)(total / (double)lines);
}

/* What is compared: target videos and how. Lengths after short videos were doubled are `doubled` and `doubled_query`;
   `keeps` and `keep_query` say how many of the cells of a line are kept, in a line of target and of query frames. */
typedef struct {
    const Video *query, *videos;
    const Psi *psi; /* NULL: the matrix itself is aggregated */
    int64_t count, dims, both_ways, doubled_query, keep_query;
    const int64_t *doubled, *keeps;
} Work;

/* Scores [count]: `forth`, how much of the query is in each video, and `back`, with both_ways, how much of the video is in
   the query. Returns 0, or 1 if there is not enough memory. */
int score_videos(const Work *work, float *forth, float *back) {
    const Psi *psi = work->psi;
    int64_t frames = work->query->frames, longest = 0, most_kept = work->keep_query;
    for (int64_t v = 0; v < work->count; v++) {
        longest = MAX(longest, work->doubled[v]);
        most_kept = MAX(most_kept, work->keeps[v]);
    }
    int64_t row = work->doubled_query + 2, rows = longest / 2, columns = work->doubled_query / 2;
    size_t matrix = (size_t)(longest * frames), picture = (size_t)(row * (longest + 2));
    size_t first = psi ? (size_t)(rows * columns * C1) : 0, values = psi ? (size_t)((rows / 2) * (columns / 2)) : 0;
    size_t bytes = psi ? (size_t)MAX((rows + 2) * (columns + 2) * C1, (rows / 2 + 2) * (columns / 2 + 2) * C2) : 0;
    size_t windows = 4 * values + PIXELS, floats = matrix + picture + first + (C2 + 1) * values + (size_t)most_kept;
    Query query;
    void *packed = pack_query(&query, work->query, work->dims, (int)work->both_ways);
    uint8_t *memory = malloc(windows * sizeof(int64_t) + floats * sizeof(float) + bytes);
    if (!packed || !memory) {
        free(packed), free(memory);
        return 1;
    }
    float *cells = (float *)(memory + windows * sizeof(int64_t)), *best = cells + matrix;
    Room room = {.windows = (int64_t *)memory, .picture = best + most_kept};
    room.first = room.picture + picture;
    room.second = room.first + first;
    room.values = room.second + C2 * values;
    room.bytes = (uint8_t *)(room.values + values);
    for (int64_t v = 0; v < work->count; v++) {
        const Video *video = work->videos + v;
        fill_matrix(&query, video, cells);
        int64_t height = work->doubled[v], width = work->doubled_query, line = row;
        memset(room.picture, 0, (size_t)((height + 2) * row) * sizeof(float));
        for (int64_t y = 0; y < height; y++)
            for (int64_t x = 0; x < width; x += frames)
                memcpy(room.picture + (y + 1) * row + 1 + x, cells + y % video->frames * frames,
                       (size_t)frames * sizeof(float));
        const float *found = room.picture + row + 1;
        if (psi) {
            run_psi(psi, &room, row, height, width);
            found = room.values, height /= 4, width /= 4, line = width;
        }
        forth[v] = average_best(found, width, 1, height, line, work->keeps[v], best);
        if (work->both_ways) back[v] = average_best(found, height, line, width, 1, work->keep_query, best);
    }
    free(packed), free(memory);
    return 0;
}
