/* What is done to each row by itself: residual, RMSNorm, SwiGLU. The `_rows` run inside a parallel region and end at a
 * barrier. */

#ifndef BLOCK
#define BLOCK 128 /* columns of SwiGLU that a thread takes at a time, the same whatever the rows */
#endif

/* to [width] = RMSNorm(row) · weight. */
static inline void NAME(norm_row)(const T *row, const T *weight, T *to, int64_t width, float eps) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < width; i++) sum += UP(row[i]) * UP(row[i]);
  float scale = 1 / sqrtf(sum / (float)width + eps);
#pragma omp simd
  for (int64_t i = 0; i < width; i++) to[i] = DOWN(UP(row[i]) * scale * UP(weight[i]));
}

/* x [rows, width] += y where y is given; out = RMSNorm(x) · weight. */
static void NAME(norm_rows)(T *x, const T *y, const T *weight, T *out, int64_t rows, int64_t width, float eps) {
#pragma omp for schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    T *row = x + r * width;
    if (y)
      for (int64_t i = 0; i < width; i++) row[i] = DOWN(UP(row[i]) + UP(y[r * width + i]));
    NAME(norm_row)(row, weight, out + r * width, width, eps);
  }
}

/* both [rows, 2·width]: gate and up side by side; out [rows, width] = silu(gate) · up. */
static void NAME(swiglu_rows)(const T *both, T *out, int64_t rows, int64_t width) {
  int64_t blocks = (width + BLOCK - 1) / BLOCK;
#pragma omp for schedule(static)
  for (int64_t b = 0; b < rows * blocks; b++) {
    int64_t r = b / blocks, first = b % blocks * BLOCK, last = least(width, first + BLOCK);
    const T *gate = both + 2 * r * width, *up = gate + width;
#pragma omp simd
    for (int64_t i = first; i < last; i++) {
      float g = UP(gate[i]);
      out[r * width + i] = DOWN(g / (1 + exp_of(-g)) * UP(up[i]));
    }
  }
}

void NAME(add_norm)(T *x, const T *y, const T *weight, T *out, int64_t rows, int64_t width, float eps) {
#pragma omp parallel if (rows > 8)
  NAME(norm_rows)(x, y, weight, out, rows, width, eps);
}

void NAME(swiglu)(const T *both, T *out, int64_t rows, int64_t width) {
#pragma omp parallel if (rows > 3)
  NAME(swiglu_rows)(both, out, rows, width);
}

/* picks [rows]: where each row of logits [rows, width] is largest, the first of equals: the first block that holds the
 * maximum, then its place in the block. */
void NAME(best)(const T *logits, int64_t *picks, int64_t rows, int64_t width) {
#pragma omp parallel for if (rows > 3)
  for (int64_t r = 0; r < rows; r++) {
    const T *row = logits + r * width;
    float most = -INFINITY;
    int64_t pick = 0;
    for (int64_t from = 0; from < width; from += 512) {
      float here = -INFINITY;
#pragma omp simd reduction(max : here)
      for (int64_t i = from; i < least(width, from + 512); i++) here = UP(row[i]) > here ? UP(row[i]) : here;
      if (here > most) most = here, pick = from;
    }
    while (pick < width - 1 && UP(row[pick]) != most) pick++;
    picks[r] = pick;
  }
}
