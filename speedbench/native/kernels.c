/* The small operations between a Llama layer's matrix products, for few rows on CPU: residual and RMSNorm, rotary with
 * attention over a slot cache, and SwiGLU. Each replaces a dozen torch operators whose cost is their number.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The file includes itself once for each type: float, and bfloat16 as its upper half. Sums are in float; what a row
 * gets does not depend on the rows beside it. */

#ifndef T

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef uint16_t bf16;

static inline float from_bf16(bf16 x) {
  uint32_t bits = (uint32_t)x << 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

static inline bf16 to_bf16(float f) { /* to nearest, ties to even */
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return (bf16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

#define T float
#define UP(x) (x)
#define DOWN(x) (x)
#define NAME(f) f##_float32
#include __FILE__
#undef T
#undef UP
#undef DOWN
#undef NAME
#define T bf16
#define UP(x) from_bf16(x)
#define DOWN(x) to_bf16(x)
#define NAME(f) f##_bfloat16
#include __FILE__

#else

/* x [rows, width] += y where y is given; out = RMSNorm(x) * weight. */
void NAME(add_norm)(T *x, const T *y, const T *weight, T *out, long rows, long width, float eps) {
#pragma omp parallel for if (rows > 8)
  for (long r = 0; r < rows; r++) {
    T *row = x + r * width, *to = out + r * width;
    if (y)
      for (long i = 0; i < width; i++) row[i] = DOWN(UP(row[i]) + UP(y[r * width + i]));
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (long i = 0; i < width; i++) sum += UP(row[i]) * UP(row[i]);
    float scale = 1 / sqrtf(sum / width + eps);
    for (long i = 0; i < width; i++) to[i] = DOWN(UP(row[i]) * scale * UP(weight[i]));
  }
}

/* both [rows, 2·width]: gate and up side by side; out [rows, width] = silu(gate) * up. */
void NAME(swiglu)(const T *both, T *out, long rows, long width) {
#pragma omp parallel for if (rows > 3)
  for (long r = 0; r < rows; r++) {
    const T *gate = both + 2 * r * width, *up = gate + width;
#pragma omp simd
    for (long i = 0; i < width; i++) {
      float g = UP(gate[i]);
      out[r * width + i] = DOWN(g / (1 + expf(-g)) * UP(up[i]));
    }
  }
}

/* Turn one head by the angles of its position. */
static inline void NAME(turn)(const T *in, const T *cosine, const T *sine, float *out, long size) {
  long half = size / 2;
  for (long i = 0; i < half; i++) {
    float a = UP(in[i]), b = UP(in[i + half]);
    out[i] = a * UP(cosine[i]) - b * UP(sine[i + half]);
    out[i + half] = b * UP(cosine[i + half]) + a * UP(sine[i + half]);
  }
}

/* One query over the slots 0 … count-1 of a head; scores is scratch for count floats. */
static inline void NAME(look)(const float *query, const T *keys, const T *values, float *scores, T *out, long count,
                              long size, float scale) {
  float most = -INFINITY, sum = 0, mixed[256];
  for (long s = 0; s < count; s++) {
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (long i = 0; i < size; i++) dot += query[i] * UP(keys[s * size + i]);
    scores[s] = dot * scale;
    most = scores[s] > most ? scores[s] : most;
  }
#pragma omp simd reduction(+ : sum)
  for (long s = 0; s < count; s++) {
    scores[s] = expf(scores[s] - most);
    sum += scores[s];
  }
  for (long i = 0; i < size; i++) mixed[i] = 0;
  for (long s = 0; s < count; s++) {
    float weight = scores[s] / sum;
#pragma omp simd
    for (long i = 0; i < size; i++) mixed[i] += weight * UP(values[s * size + i]);
  }
  for (long i = 0; i < size; i++) out[i] = DOWN(mixed[i]);
}

/* qkv [batch, width, heads + 2·kv, size], not yet turned; cosine and sine [batch, width, size], sine as
 * (-sin, sin); slots [batch, 2·kv, length, size], keys first; place [batch, width]: the slot of each token;
 * scratch [threads, length]; out [batch, width, heads, size]. A query sees the slots up to its own. */
void NAME(attend)(const T *qkv, const T *cosine, const T *sine, T *slots, const int64_t *place, float *scratch, T *out,
                  long batch, long width, long heads, long kv, long size, long length, float scale) {
  long all = heads + 2 * kv, group = heads / kv;
  for (long t = 0; t < batch * width; t++)
    for (long h = 0; h < kv; h++) {
      T *base = slots + (t / width) * 2 * kv * length * size + place[t] * size;
      float turned[256];
      NAME(turn)(qkv + (t * all + heads + h) * size, cosine + t * size, sine + t * size, turned, size);
      T *key = base + h * length * size;
      for (long i = 0; i < size; i++) key[i] = DOWN(turned[i]);
      memcpy(base + (kv + h) * length * size, qkv + (t * all + heads + kv + h) * size, size * sizeof(T));
    }
#pragma omp parallel for collapse(2) schedule(dynamic, 1)
  for (long b = 0; b < batch; b++)
    for (long h = 0; h < heads; h++) {
      const T *keys = slots + (b * 2 * kv + h / group) * length * size, *values = keys + kv * length * size;
      for (long w = 0; w < width; w++) {
        long t = b * width + w;
        float query[256];
        NAME(turn)(qkv + (t * all + h) * size, cosine + t * size, sine + t * size, query, size);
        NAME(look)(query, keys, values, scratch + (b * heads + h) * length, out + (t * heads + h) * size,
                   place[t] + 1, size, scale);
      }
    }
}

#endif
