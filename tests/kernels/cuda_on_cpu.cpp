// The kernels of stcon/kernels/cuda/source as a shared library for tests: one entry, `launch`.
#include "cuda_on_cpu.h"

#define DRAW_THREADS 128
#include "kernels.cu"

extern "C" int launch(const char* name, const long long* arguments, unsigned x, unsigned y, unsigned threads,
                      int reversed) {
#define KERNEL(kernel) \
  if (!strcmp(name, #kernel)) return launch_grid(kernel, arguments, {x, y, 1}, threads, reversed), 0;
  KERNEL(walk_bitmask)
  KERNEL(walk_mask_logits)
  KERNEL(walk_best)
  KERNEL(advance_rows)
  KERNEL(draw_tokens)
  return 1;
}

extern "C" int draw_threads() { return DRAW_THREADS; }
