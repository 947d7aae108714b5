/* The native forward of a Llama-family model on CPU: matrix products over packed weights, the small operations between
 * them, and the whole pass over all layers. One call from Python runs a pass; threads meet at barriers only.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Every part is compiled once for each type: float, and bfloat16 as its upper half. Sums are in float, in an order that
 * depends on nothing but the operands: what a token gets does not depend on the tokens beside it. */

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define WIDEST_HEAD 256

typedef uint16_t bf16;
/* Floats in a vector register, and how many rows of x a tile has, so that its sums fill the registers. */
#if defined(__AVX512F__)
#define LANES 16
#define TILE 12
#elif defined(__AVX__)
#define LANES 8
#define TILE 3
#else
#define LANES 4
#define TILE 3
#endif
typedef float floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));

/* A weight [rows, depth] in panels (product.c), with a bias [rows] or none. */
struct matrix {
  const void *weight, *bias;
  int64_t rows, depth;
};

struct layer {
  const void *norm, *mlp_norm, *q_norm, *k_norm; /* the latter two or none */
  struct matrix qkv, out, gate_up, down;
};

/* Who attends to what: row b's tokens stand at positions start[b] …, which are also their slots. A query sees the slots
 * up to its own. cosine and sine [context, size], sine as (-sin, sin). */
struct window {
  int64_t batch, width, heads, kv, size, length, context;
  const int64_t *start;
  const void *cosine, *sine;
  float scale;
};

/* One forward: ids [batch, width] → logits [batch, width or 1, vocab]; slots[i] [batch, 2·kv, length, size], keys first;
 * taps, where any are wanted: taps[i] [batch·width, hidden] or none, what enters layer i, at last the state after the
 * last norm. */
struct pass {
  struct window window;
  int64_t layers, hidden, inner, vocab, last_only;
  float eps;
  const int64_t *ids;
  const void *embedding, *norm;
  const struct layer *layer;
  struct matrix head;
  void *const *slots, *const *taps;
  void *logits;
};

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

/* e^x within 2 in the last place, 0 below e^-87, without branches, so that loops over it run in vectors. */
static inline float exp_of(float given) {
  float x = given < -87 ? -87 : given > 88 ? 88 : given;
  float n = rintf(x * 1.44269504f), r = x - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  uint32_t power = (uint32_t)((int32_t)n + 127) << 23;
  float scale;
  memcpy(&scale, &power, 4);
  return given < -87 ? 0 : (p * r * r + r + 1) * scale;
}

static inline int64_t up_to(int64_t n, int64_t step) { return (n + step - 1) / step * step; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* As many threads as torch was told to use, whose OpenMP may be another copy. */
void use_threads(int32_t count) { omp_set_num_threads(count); }

/* Whether these products beat oneDNN's on such a machine: not where it has AMX for bfloat16, nor where this was never
 * measured. */
#if defined(__AVX2__) && defined(__FMA__)
int32_t pays_float32(void) { return 1; }
#else
int32_t pays_float32(void) { return 0; }
#endif
#ifdef __AMX_BF16__
int32_t pays_bfloat16(void) { return 0; }
#else
int32_t pays_bfloat16(void) { return pays_float32(); }
#endif

#define T float
#define STEP 1
#define UP(x) (x)
#define DOWN(x) (x)
#define NAME(f) f##_float32
#include "kernels_product.h"
#include "kernels_rows.h"
#include "kernels_attention.h"
#include "kernels_pass.h"
#undef T
#undef STEP
#undef UP
#undef DOWN
#undef NAME
#define T bf16
#define STEP 2
#define UP(x) from_bf16(x)
#define DOWN(x) to_bf16(x)
#define NAME(f) f##_bfloat16
#include "kernels_product.h"
#include "kernels_rows.h"
#include "kernels_attention.h"
#include "kernels_pass.h"
