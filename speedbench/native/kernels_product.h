/* Matrix products: x [M, depth] · weightᵀ for a weight [rows, depth] that lies in panels of 32 of its rows. In a panel
 * the entries that meet the same entry of x lie side by side, [depth/STEP][32][STEP], so that one load serves a vector
 * of sums; STEP entries of T are 4 bytes; the last panel is filled up with zeros. A tile is up to TILE rows of x by one
 * panel, its sums all in registers. */

#ifndef PANEL
#define PANEL 32
#define CHUNK 96 /* rows of x by one panel that a thread takes at a time */

#ifdef __AVX512F__
/* 16 rows of 16 words, `stride` bytes apart → 16 columns, PANEL words apart, by four rounds of interleaving. */
static inline void transpose(const void *from, int64_t stride, void *to) {
  const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i high = _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
  __m512i a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_si512((const char *)from + i * stride);
#pragma GCC unroll 4
  for (int round = 0; round < 4; round++) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
      b[2 * i] = _mm512_permutex2var_epi32(a[i], low, a[i + 8]);
      b[2 * i + 1] = _mm512_permutex2var_epi32(a[i], high, a[i + 8]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) a[i] = b[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) _mm512_storeu_si512((uint32_t *)to + i * PANEL, a[i]);
}
#endif
#endif

/* Up to PANEL rows [rows, depth], `stride` apart → a panel; depth is a multiple of STEP. */
static void NAME(pack_panel)(const T *from, int64_t stride, int64_t rows, int64_t depth, T *to) {
  int64_t d = 0;
#ifdef __AVX512F__
  for (; rows == PANEL && d + 16 * STEP <= depth; d += 16 * STEP)
    for (int64_t r = 0; r < PANEL; r += 16)
      transpose(from + r * stride + d, stride * (int64_t)sizeof(T), to + d * PANEL + r * STEP);
#endif
  for (; d < depth; d += STEP) {
    for (int64_t r = 0; r < rows; r++) memcpy(to + d * PANEL + r * STEP, from + r * stride + d, 4);
    memset(to + d * PANEL + rows * STEP, 0, (size_t)(4 * (PANEL - rows)));
  }
}

/* A weight [rows, depth] as it comes → panels. */
void NAME(pack)(const T *weight, T *panels, int64_t rows, int64_t depth) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; r += PANEL)
    NAME(pack_panel)(weight + r * depth, depth, least(PANEL, rows - r), depth, panels + r * depth);
}

/* sum += the STEP entries at x times those of LANES panel rows at w. */
static inline __attribute__((always_inline)) floats NAME(multiply_add)(floats sum, const T *x, const T *w) {
#if STEP == 1
  floats weight;
  memcpy(&weight, w, sizeof weight);
  return sum + weight * x[0];
#elif defined(__AVX512BF16__)
  __m512bh weight;
  uint32_t both;
  memcpy(&weight, w, sizeof weight);
  memcpy(&both, x, sizeof both);
  return (floats)_mm512_dpbf16_ps((__m512)sum, weight, (__m512bh)_mm512_set1_epi32((int)both));
#else
  words both;
  memcpy(&both, w, sizeof both);
  sum = sum + (floats)(both << 16) * UP(x[0]);
  return sum + (floats)(both & 0xffff0000) * UP(x[1]);
#endif
}

/* out [rows, PANEL] float, its rows `pitch` apart, = or (`more`) += x [rows, depth], its rows `stride` apart, times one
 * panel. */
static inline __attribute__((always_inline)) void NAME(tile)(const T *x, int64_t stride, const T *panel, int64_t depth,
                                                             int rows, float *out, int64_t pitch, int more) {
  floats sums[TILE][PANEL / LANES] = {{{0}}};
#pragma GCC unroll 12
  for (int r = 0; r < rows; r++) {
    if (more) memcpy(sums[r], out + r * pitch, sizeof sums[r]);
  }
  for (int64_t d = 0; d < depth; d += STEP, panel += PANEL * STEP) {
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
      for (int v = 0; v < PANEL / LANES; v++)
        sums[r][v] = NAME(multiply_add)(sums[r][v], x + r * stride + d, panel + v * LANES * STEP);
  }
#pragma GCC unroll 12
  for (int r = 0; r < rows; r++) memcpy(out + r * pitch, sums[r], sizeof sums[r]);
}

static void NAME(tiles)(const T *x, int64_t stride, const T *panel, int64_t depth, int rows, float *out, int64_t pitch,
                        int more) {
#define ROWS(n)                                               \
  case n:                                                     \
    NAME(tile)(x, stride, panel, depth, n, out, pitch, more); \
    break;
  switch (rows) {
    ROWS(1)
    ROWS(2)
    ROWS(3)
#if TILE == 12
    ROWS(4)
    ROWS(5)
    ROWS(6)
    ROWS(7)
    ROWS(8)
    ROWS(9)
    ROWS(10)
    ROWS(11)
    ROWS(12)
#endif
  }
#undef ROWS
}

/* A tile's sums [rows, PANEL] + bias → the first `columns` of out's rows, which are `pitch` apart. */
static inline __attribute__((always_inline)) void NAME(put)(float (*sums)[PANEL], const T *bias, T *out, int64_t pitch,
                                                            int rows, int64_t columns, int adds) {
  for (int r = 0; r < rows; r++, out += pitch) {
    if (bias)
      for (int64_t c = 0; c < columns; c++) sums[r][c] += UP(bias[c]);
    if (adds)
      for (int64_t c = 0; c < columns; c++) sums[r][c] += UP(out[c]);
    for (int64_t c = 0; c < columns; c++) out[c] = DOWN(sums[r][c]);
  }
}

/* out [rows, m.rows] = or += x [rows, m.depth] · mᵀ + bias. Inside a parallel region; ends at a barrier. */
static void NAME(product)(const T *x, const struct matrix *m, T *out, int64_t rows, int adds) {
  const T *weight = m->weight, *bias = m->bias;
  int64_t panels = (m->rows + PANEL - 1) / PANEL, chunks = (rows + CHUNK - 1) / CHUNK;
#pragma omp for schedule(static)
  for (int64_t i = 0; i < panels * chunks; i++) {
    int64_t at = i / chunks * PANEL, columns = least(PANEL, m->rows - at);
    int64_t end = least(rows, (i % chunks + 1) * CHUNK);
    for (int64_t r = i % chunks * CHUNK; r < end; r += TILE) {
      float sums[TILE][PANEL];
      int count = (int)least(TILE, end - r);
      T *to = out + r * m->rows + at;
      NAME(tiles)(x + r * m->depth, m->depth, weight + at * m->depth, m->depth, count, sums[0], PANEL, 0);
      if (columns == PANEL)
        NAME(put)(sums, bias ? bias + at : 0, to, m->rows, count, PANEL, adds);
      else
        NAME(put)(sums, bias ? bias + at : 0, to, m->rows, count, columns, adds);
    }
  }
}

/* out [rows, m.rows] = x [rows, m.depth] · mᵀ + bias. */
void NAME(linear)(const T *x, const struct matrix *m, T *out, int64_t rows) {
#pragma omp parallel
  NAME(product)(x, m, out, rows, 0);
}
