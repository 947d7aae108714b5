/* Rotary and attention over a slot cache. qkv [batch·width, heads + 2·kv, size]; queries [batch, kv, width, group, size],
 * where group = heads / kv query heads share a key; out [batch·width, heads, size]. A query's result depends on its own
 * slots only: they are taken 32 keys, then SPAN values at a time, whatever stands beside it. */

#ifndef SPAN
#define SPAN 64    /* slots whose values are packed at a time */
#define QUERIES 48 /* rows of queries that share what is packed */

/* Ask for memory that will be read soon. */
static inline void fetch(const void *from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)from + i, 0, 2);
}
#endif

/* Turn one head by the angles of its position, normed first where weight is given. */
static inline void NAME(turn)(const struct window *w, int64_t position, const T *from, const T *weight, float eps,
                              T *to) {
  int64_t size = w->size, half = size / 2, row = least(position, w->context - 1) * size;
  const T *cosine = (const T *)w->cosine + row, *sine = (const T *)w->sine + row;
  T normed[WIDEST_HEAD];
  if (weight) {
    NAME(norm_row)(from, weight, normed, size, eps);
    from = normed;
  }
#pragma omp simd
  for (int64_t i = 0; i < half; i++) {
    float a = UP(from[i]), b = UP(from[i + half]);
    to[i] = DOWN(a * UP(cosine[i]) + b * UP(sine[i]));
    to[i + half] = DOWN(b * UP(cosine[i + half]) + a * UP(sine[i + half]));
  }
}

/* Turn queries and keys; keys and values go into their slots. Inside a parallel region; ends at a barrier. */
static void NAME(turn_all)(const struct window *w, const struct layer *layer, float eps, const T *qkv, T *queries,
                           T *slots) {
  int64_t group = w->heads / w->kv, all = w->heads + 2 * w->kv, size = w->size, width = w->width;
#pragma omp for collapse(2) schedule(static)
  for (int64_t t = 0; t < w->batch * width; t++)
    for (int64_t h = 0; h < all; h++) {
      int64_t b = t / width, place = w->start[b] + t % width, joint = h - w->heads;
      const T *from = qkv + (t * all + h) * size;
      T *slot = slots + ((b * 2 * w->kv + joint) * w->length + place) * size;
      if (joint < 0)
        NAME(turn)(w, place, from, layer->q_norm, eps,
                   queries + (((b * w->kv + h / group) * width + t % width) * group + h % group) * size);
      else if (joint < w->kv)
        NAME(turn)(w, place, from, layer->k_norm, eps, slot);
      else
        memcpy(slot, from, (size_t)size * sizeof(T));
    }
}

/* Scores [count] → weights e^(scale·(score − their largest)), zero up to a multiple of 16; returns the sum. */
static inline float NAME(soften)(float *scores, T *weights, int64_t count, float scale) {
  float most = -INFINITY, sum = 0;
  int64_t full = up_to(count, 16);
  for (int64_t s = count; s < full; s++) scores[s] = -INFINITY;
#pragma omp simd reduction(max : most)
  for (int64_t s = 0; s < full; s++) most = scores[s] > most ? scores[s] : most;
#pragma omp simd reduction(+ : sum)
  for (int64_t s = 0; s < full; s++) {
    float weight = exp_of((scores[s] - most) * scale);
    sum += weight;
    weights[s] = DOWN(weight);
  }
  return sum;
}

/* Two rows entry by entry (one row, where STEP is 1); a constant `columns` makes it a few vector instructions. */
static inline __attribute__((always_inline)) void NAME(pack_step)(const T *restrict even, const T *restrict odd,
                                                                  int64_t columns, T *restrict to) {
  for (int64_t c = 0; c < columns; c++) {
    to[c * STEP] = even[c];
    if (STEP == 2) to[c * STEP + 1] = odd[c];
  }
}

/* Values [count, size] of consecutive slots → panels [up_to(size, PANEL)/PANEL][SPAN/STEP][PANEL][STEP]. */
static void NAME(pack_values)(const T *values, int64_t count, int64_t size, T *to) {
  static const T none[PANEL];
  for (int64_t c = 0; c < size; c += PANEL, to += SPAN * PANEL)
    for (int64_t s = 0; s < count; s += STEP) {
      const T *row = values + s * size + c, *next = s + 1 < count ? row + size : none;
      if (c + PANEL <= size)
        NAME(pack_step)(row, next, PANEL, to + s * PANEL);
      else
        NAME(pack_step)(row, next, size - c, to + s * PANEL);
    }
}

/* A block of queries of one key head: row r belongs to the token at position start + (offset + r) / group. */
struct NAME(block) {
  const T *queries, *keys, *values, *next; /* next: keys that the thread will need after this block, or none */
  int64_t size, group, offset, start, rows, pitch, length;
  float scale, *scores, *mixed;
  T *weights, *packed;
};

static inline int64_t NAME(seen)(const struct NAME(block) *k, int64_t row) {
  return k->start + (k->offset + least(row, k->rows - 1)) / k->group + 1;
}

static void NAME(score)(const struct NAME(block) *k) {
  for (int64_t s = 0; s < NAME(seen)(k, k->rows); s += PANEL) {
    fetch(k->values + s * k->size, PANEL * k->size * (int64_t)sizeof(T));
    NAME(pack_panel)(k->keys + s * k->size, k->size, least(PANEL, k->length - s), k->size, k->packed);
    for (int64_t r = 0; r < k->rows; r += TILE)
      if (s < NAME(seen)(k, r + TILE - 1))
        NAME(tiles)(k->queries + r * k->size, k->size, k->packed, k->size, (int)least(TILE, k->rows - r),
                    k->scores + r * k->pitch + s, k->pitch, 0);
  }
}

static void NAME(mix)(const struct NAME(block) *k) {
  int64_t wide = up_to(k->size, PANEL);
  for (int64_t s = 0; s < NAME(seen)(k, k->rows); s += SPAN) {
    if (k->next) fetch(k->next + s * k->size, SPAN * k->size * (int64_t)sizeof(T));
    NAME(pack_values)(k->values + s * k->size, least(SPAN, NAME(seen)(k, k->rows) - s), k->size, k->packed);
    for (int64_t r = 0; r < k->rows; r += TILE)
      for (int64_t c = 0; c < wide && s < NAME(seen)(k, r + TILE - 1); c += PANEL)
        NAME(tiles)(k->weights + r * k->pitch + s, k->pitch, k->packed + c * SPAN,
                    least(SPAN, NAME(seen)(k, r + TILE - 1) - s), (int)least(TILE, k->rows - r),
                    k->mixed + r * wide + c, wide, s > 0);
  }
}

/* All of a block; out is where the first head of the key head's first token goes, `token` from one token to the next. */
static void NAME(look)(const struct NAME(block) *k, T *out, int64_t token) {
  float sums[QUERIES];
  int64_t most = up_to(NAME(seen)(k, k->rows), STEP), wide = up_to(k->size, PANEL);
  NAME(score)(k);
  for (int64_t r = 0; r < k->rows; r++) {
    T *weights = k->weights + r * k->pitch;
    sums[r] = NAME(soften)(k->scores + r * k->pitch, weights, NAME(seen)(k, r), k->scale);
    for (int64_t s = NAME(seen)(k, r); s < most; s++) weights[s] = 0;
  }
  NAME(mix)(k);
  for (int64_t r = 0; r < k->rows; r++) {
    T *to = out + (k->offset + r) / k->group * token + (k->offset + r) % k->group * k->size;
    for (int64_t i = 0; i < k->size; i++) to[i] = DOWN(k->mixed[r * wide + i] / sums[r]);
  }
}

/* Bytes that a thread's block works in. */
static int64_t NAME(block_bytes)(const struct window *w) {
  int64_t rows = least(QUERIES, w->width * (w->heads / w->kv));
  int64_t pitch = up_to(w->length, SPAN), wide = up_to(w->size, PANEL);
  return up_to(rows * (pitch + wide) * 4 + (rows * pitch + SPAN * wide) * (int64_t)sizeof(T), 64);
}

/* Inside a parallel region; ends at a barrier. scratch: block_bytes for each thread. */
static void NAME(attend_all)(const struct window *w, const T *queries, const T *slots, char *scratch, T *out) {
  int64_t group = w->heads / w->kv, size = w->size, rows = w->width * group, wide = up_to(size, PANEL);
  int64_t pitch = up_to(w->length, SPAN), most = least(QUERIES, rows), blocks = (rows + QUERIES - 1) / QUERIES;
  struct NAME(block) k = {.size = size, .group = group, .pitch = pitch, .length = w->length, .scale = w->scale};
  k.scores = (float *)(scratch + omp_get_thread_num() * NAME(block_bytes)(w));
  k.mixed = k.scores + most * pitch;
  k.weights = (T *)(k.mixed + most * wide);
  k.packed = k.weights + most * pitch;
  int64_t run = blocks > 1 ? 1 : (w->batch * w->kv + omp_get_num_threads() - 1) / omp_get_num_threads();
#pragma omp for collapse(3) schedule(dynamic, run)
  for (int64_t i = 0; i < blocks; i++)
    for (int64_t b = 0; b < w->batch; b++)
      for (int64_t h = 0; h < w->kv; h++) {
        k.offset = (blocks - 1 - i) * QUERIES; /* the longest first */
        k.rows = least(QUERIES, rows - k.offset);
        k.start = w->start[b];
        k.queries = queries + ((b * w->kv + h) * rows + k.offset) * size;
        k.keys = slots + (b * 2 * w->kv + h) * w->length * size;
        k.values = k.keys + w->kv * w->length * size;
        k.next = blocks > 1 ? 0 : k.keys + (h + 1 < w->kv ? 1 : w->kv + 1) * w->length * size;
        NAME(look)(&k, out + (b * w->width * w->heads + h * group) * size, w->heads * size);
      }
}

/* Turn, store and attend; returns 1 where memory is lacking. */
int NAME(attend)(const struct window *w, const T *qkv, T *slots, T *out) {
  static const struct layer plain;
  int64_t queries = up_to(w->batch * w->width * w->heads * w->size * (int64_t)sizeof(T), 64);
  char *block = aligned_alloc(64, (size_t)(queries + omp_get_max_threads() * NAME(block_bytes)(w)));
  if (!block) return 1;
#pragma omp parallel
  {
    NAME(turn_all)(w, &plain, 0, qkv, (T *)block, slots);
    NAME(attend_all)(w, (T *)block, slots, block + queries, out);
  }
  free(block);
  return 0;
}
