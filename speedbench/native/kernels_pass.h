/* The whole forward, one parallel region for all layers. */

/* The buffers of a forward over M tokens, side by side in one block. */
struct NAME(buffers) {
  T *x, *normed, *qkv, *queries, *mixed, *both, *gated;
  char *scratch;
};

/* Lays the buffers out from `base`, each at a multiple of 64 bytes; returns their bytes together. */
static int64_t NAME(lay_out)(const struct pass *p, struct NAME(buffers) *to, char *base) {
  const struct window *w = &p->window;
  int64_t tokens = w->batch * w->width, mixed = w->heads * w->size, at = 0;
#define PLACE(field, count)        \
  to->field = (void *)(base + at); \
  at += up_to((count) * (int64_t)sizeof *to->field, 64);
  PLACE(x, tokens * p->hidden)
  PLACE(normed, tokens * p->hidden)
  PLACE(qkv, tokens * (mixed + 2 * w->kv * w->size))
  PLACE(queries, tokens * mixed)
  PLACE(mixed, tokens * mixed)
  PLACE(both, tokens * 2 * p->inner)
  PLACE(gated, tokens * p->inner)
  PLACE(scratch, omp_get_max_threads() * NAME(block_bytes)(w))
#undef PLACE
  return at;
}

static void NAME(embed)(const struct pass *p, T *x) {
#pragma omp for schedule(static)
  for (int64_t t = 0; t < p->window.batch * p->window.width; t++)
    memcpy(x + t * p->hidden, (const T *)p->embedding + p->ids[t] * p->hidden, (size_t)p->hidden * sizeof(T));
}

static void NAME(keep)(const struct pass *p, int64_t layer, const T *x) {
  if (p->taps && p->taps[layer]) {
#pragma omp for schedule(static)
    for (int64_t t = 0; t < p->window.batch * p->window.width; t++)
      memcpy((T *)p->taps[layer] + t * p->hidden, x + t * p->hidden, (size_t)p->hidden * sizeof(T));
  }
}

static void NAME(run_layer)(const struct pass *p, int64_t index, const struct NAME(buffers) *at) {
  const struct layer *layer = p->layer + index;
  const struct window *w = &p->window;
  int64_t tokens = w->batch * w->width;
  T *slots = p->slots[index];
  NAME(norm_rows)(at->x, 0, layer->norm, at->normed, tokens, p->hidden, p->eps);
  NAME(product)(at->normed, &layer->qkv, at->qkv, tokens, 0);
  NAME(turn_all)(w, layer, p->eps, at->qkv, at->queries, slots);
  NAME(attend_all)(w, at->queries, slots, at->scratch, at->mixed);
  NAME(product)(at->mixed, &layer->out, at->x, tokens, 1);
  NAME(norm_rows)(at->x, 0, layer->mlp_norm, at->normed, tokens, p->hidden, p->eps);
  NAME(product)(at->normed, &layer->gate_up, at->both, tokens, 0);
  NAME(swiglu_rows)(at->both, at->gated, tokens, p->inner);
  NAME(product)(at->gated, &layer->down, at->x, tokens, 1);
}

/* Logits of all tokens, or of each row's last one, gathered first. */
static void NAME(finish)(const struct pass *p, const struct NAME(buffers) *at) {
  int64_t batch = p->window.batch, width = p->window.width, tokens = batch * width;
  NAME(norm_rows)(at->x, 0, p->norm, at->normed, tokens, p->hidden, p->eps);
  NAME(keep)(p, p->layers, at->normed);
  if (p->last_only) {
#pragma omp for schedule(static)
    for (int64_t b = 0; b < batch; b++)
      memcpy(at->x + b * p->hidden, at->normed + ((b + 1) * width - 1) * p->hidden, (size_t)p->hidden * sizeof(T));
  }
  NAME(product)(p->last_only ? at->x : at->normed, &p->head, p->logits, p->last_only ? batch : tokens, 0);
}

/* Returns 0; 1 where memory is lacking; 2 where an id or a position is out of range. */
int NAME(forward)(const struct pass *p) {
  struct NAME(buffers) at;
  const struct window *w = &p->window;
  for (int64_t t = 0; t < w->batch * w->width; t++)
    if (p->ids[t] < 0 || p->ids[t] >= p->vocab) return 2;
  for (int64_t b = 0; b < w->batch; b++)
    if (w->start[b] < 0 || w->start[b] + w->width > w->length) return 2;
  char *block = aligned_alloc(64, (size_t)NAME(lay_out)(p, &at, 0));
  if (!block) return 1;
  NAME(lay_out)(p, &at, block);
#pragma omp parallel
  {
    NAME(embed)(p, at.x);
    for (int64_t i = 0; i < p->layers; i++) {
      NAME(keep)(p, i, at.x);
      NAME(run_layer)(p, i, &at);
    }
    NAME(finish)(p, &at);
  }
  free(block);
  return 0;
}
