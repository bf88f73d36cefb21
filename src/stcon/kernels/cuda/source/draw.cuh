// One token drawn from each row's mask: temperature, then top-k, top-p and min-p on what is left, then a seeded draw.
//
// The options mean what they mean in `stcon.engine.sampling`, and the randomness is the same number, so a row gives the
// token that the host's sampler gives for the same logits, except where a rounding decides: weights are exp((l - max) /
// temperature) in units of 2^-44 of the greatest, so that sums are integers and do not depend on the order of threads.
// Tokens that weigh nothing in this unit (31 nats below the best) are never drawn.
#pragma once
#include "logits.cuh"
#include "walk.cuh"

#ifndef DRAW_THREADS
#define DRAW_THREADS 1024
#endif
constexpr int DRAW_WARPS = DRAW_THREADS / 32;
constexpr int BINS = 2048, BIN_BITS = 11, BINS_A_THREAD = BINS / DRAW_THREADS;
constexpr double UNIT = 17592186044416.0;  // 2^44: the sum over 2^18 tokens fits in 62 bits

// What a row may draw from, the same in every thread.
struct Draw {
  const void* logits;
  i64 offset;
  int dtype;
  const u32* words;
  int num_words;
  double best, temperature;
  double least;   // scaled logits below this are left out (min-p)
  u32 key;        // tokens with smaller keys are left out (top-k, top-p) ...
  int last_tie;   // ... and, of those with this very key, ids greater than this
};

struct DrawShared {
  u64 bins[BINS];
  u64 of_warp[DRAW_WARPS];
  u64 total;
  u32 low, high;
  int bin;
  int token;
};

__device__ __forceinline__ double scaled(const Draw& d, float logit) {
  return ((double)logit - d.best) / d.temperature;
}

__device__ __forceinline__ u64 weight_of(double scaled_logit) {
  return scaled_logit < -31.0 ? 0 : (u64)(exp(scaled_logit) * UNIT);
}

// The key and weight of token word * 32 + lane; weight 0 if it may not be drawn.
__device__ __forceinline__ u64 weigh(const Draw& d, int word, int lane, u32& key) {
  key = 0;
  if (!(d.words[word] >> lane & 1)) return 0;
  int id = word * 32 + lane;
  float logit = logit_at(d.logits, d.offset + id, d.dtype);
  key = key_of(logit);
  if (key < d.key || (key == d.key && id > d.last_tie)) return 0;
  double s = scaled(d, logit);
  return s < d.least ? 0 : weight_of(s);
}

// The bin of a weight by size, greatest first: 64 a nat, so that tokens spread over many.
__device__ __forceinline__ int bin_of(double scaled_logit) { return min((int)(-scaled_logit * 64.0), BINS - 1); }

// Sum over the block; every thread gets it.
__device__ inline u64 block_sum(DrawShared& s, u64 value) {
  for (int d = 16; d; d >>= 1) value += __shfl_xor_sync(EVERY_LANE, value, d);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) s.of_warp[threadIdx.x >> 5] = value;
  __syncthreads();
  u64 sum = 0;
  for (int i = 0; i < DRAW_WARPS; ++i) sum += s.of_warp[i];
  return sum;
}

// The first bin at which the sum of s.bins, plus `before`, reaches `target`; adds to `before` what comes before it.
__device__ inline int find_bin(DrawShared& s, u64& before, double target) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  if (threadIdx.x == 0) s.bin = BINS - 1, s.total = before;
  __syncthreads();
  u64 mine = 0;
  for (int i = 0; i < BINS_A_THREAD; ++i) mine += s.bins[threadIdx.x * BINS_A_THREAD + i];
  u64 sum = mine;  // inclusive over the warp
  for (int step = 1; step < 32; step <<= 1) {
    u64 below = __shfl_up_sync(EVERY_LANE, sum, step);
    if (lane >= step) sum += below;
  }
  if (lane == 31) s.of_warp[warp] = sum;
  __syncthreads();
  sum += before - mine;
  for (int i = 0; i < warp; ++i) sum += s.of_warp[i];
  if ((double)sum < target && (double)(sum + mine) >= target) {  // in one thread
    int bin = threadIdx.x * BINS_A_THREAD;
    while ((double)(sum + s.bins[bin]) < target) sum += s.bins[bin++];
    s.bin = bin;
    s.total = sum;
  }
  __syncthreads();
  before = s.total;
  int bin = s.bin;
  __syncthreads();
  return bin;
}

__device__ inline void clear_bins(DrawShared& s) {
  for (int i = threadIdx.x; i < BINS; i += DRAW_THREADS) s.bins[i] = 0;
  __syncthreads();
}

// Find, from the greatest logit down, the key at which the mass (1 a token, or its weight) first reaches `target`:
// `before` becomes the mass of greater keys. Bins of the scaled logit first, then digits of the keys in the bin found.
__device__ inline u32 key_at_mass(DrawShared& s, const Draw& d, bool by_weight, double target, u64& before) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  before = 0;
  clear_bins(s);
  for (int word = warp; word < d.num_words; word += DRAW_WARPS) {
    u32 key;
    u64 weight = weigh(d, word, lane, key);
    if (weight) atomicAdd(&s.bins[bin_of(scaled(d, value_of(key)))], by_weight ? weight : 1ull);
  }
  int bin = find_bin(s, before, target);
  if (threadIdx.x == 0) s.low = 0xffffffffu, s.high = 0;
  __syncthreads();
  for (int word = warp; word < d.num_words; word += DRAW_WARPS) {
    u32 key;
    if (!weigh(d, word, lane, key) || bin_of(scaled(d, value_of(key))) != bin) continue;
    atomicMin(&s.low, key);
    atomicMax(&s.high, key);
  }
  __syncthreads();
  u32 low = s.low, high = s.high;  // the key lies in this interval
  while (low < high) {
    int shift = max(0, 32 - __clz(high - low) - BIN_BITS);
    clear_bins(s);
    for (int word = warp; word < d.num_words; word += DRAW_WARPS) {
      u32 key;
      u64 weight = weigh(d, word, lane, key);
      if (weight && low <= key && key <= high) atomicAdd(&s.bins[(high - key) >> shift], by_weight ? weight : 1ull);
    }
    u32 digit = find_bin(s, before, target);
    u32 width = (1u << shift) - 1;
    high -= digit << shift;
    if (high - low > width) low = high - width;
  }
  return low;
}

// Leave out what top-p leaves out: d.key and d.last_tie.
__device__ inline void cut_to_mass(DrawShared& s, Draw& d, double top_p) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  u64 sum = 0;
  u32 key;
  for (int word = warp; word < d.num_words; word += DRAW_WARPS) sum += weigh(d, word, lane, key);
  double target = top_p * (double)block_sum(s, sum);
  u64 before;
  d.key = key_at_mass(s, d, true, target, before);
  u64 weight = weight_of(scaled(d, value_of(d.key)));
  i64 kept = 1;  // of the ties at this key
  while ((double)(before + kept * weight) < target) ++kept;
  // the id of the tie number `kept`: ids are bisected, each time counting the ties up to one
  int low = 0, high = d.num_words * 32 - 1;
  while (low < high) {
    int middle = (low + high) / 2;
    u64 count = 0;
    for (int word = warp; word <= middle >> 5; word += DRAW_WARPS)
      if (weigh(d, word, lane, key) && key == d.key && word * 32 + lane <= middle) ++count;
    if ((i64)block_sum(s, count) >= kept) high = middle;
    else low = middle + 1;
  }
  d.last_tie = low;
}

__device__ __forceinline__ void philox_round(u64 c[4], u64 k0, u64 k1) {
  u64 high0 = __umul64hi(0xD2E7470EE14C6C93ull, c[0]), low0 = 0xD2E7470EE14C6C93ull * c[0];
  u64 high1 = __umul64hi(0xCA5A826395121157ull, c[2]), low1 = 0xCA5A826395121157ull * c[2];
  u64 c1 = c[1], c3 = c[3];
  c[0] = high1 ^ c1 ^ k0, c[1] = low1, c[2] = high0 ^ c3 ^ k1, c[3] = low0;
}

// The number in [0, 1) that numpy's Philox(key=[seed, position]) gives first (Philox 4x64-10).
__device__ inline double uniform(u64 seed, u64 position) {
  u64 c[4] = {1, 0, 0, 0};
  for (int i = 0; i < 10; ++i) {
    philox_round(c, seed, position);
    seed += 0x9E3779B97F4A7C15ull, position += 0xBB67AE8584CAA73Bull;
  }
  return (double)(c[0] >> 11) * (1.0 / 9007199254740992.0);
}

// The token at which the running sum of weights, ids ascending, passes `uniform` times the whole; s.token.
// Each warp owns a run of words.
__device__ inline void pick(DrawShared& s, const Draw& d, double uniform) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int each = (d.num_words + DRAW_WARPS - 1) / DRAW_WARPS;
  int first = warp * each, last = min(first + each, d.num_words);
  u32 key;
  u64 mine = 0;
  for (int word = first; word < last; ++word) mine += weigh(d, word, lane, key);
  u64 sum = block_sum(s, mine), before = 0;
  for (int i = 0; i < warp; ++i) before += s.of_warp[i];
  double target = uniform * (double)sum;
  if ((double)before > target || (double)(before + s.of_warp[warp]) <= target) return;  // the same in all lanes
  for (int word = first; word < last; ++word) {
    u64 running = weigh(d, word, lane, key);
    for (int step = 1; step < 32; step <<= 1) {
      u64 below = __shfl_up_sync(EVERY_LANE, running, step);
      if (lane >= step) running += below;
    }
    u32 passed = __ballot_sync(EVERY_LANE, (double)(before + running) > target);
    if (passed) {
      if (lane == 0) s.token = word * 32 + __ffs(passed) - 1;
      return;
    }
    before += __shfl_sync(EVERY_LANE, running, 31);
  }
}

// Draw each row's token: out[row], or -1 as in `walk_best`, which must have run before with out = null. Then counts
// positions[row] up. Grid: x is the row; DRAW_THREADS threads.
extern "C" __global__ void __launch_bounds__(DRAW_THREADS)
    draw_tokens(const u32* words, i64 num_words, const void* logits, i64 logits_stride, i64 dtype, u64* bests,
         const int* missing, const double* temperature, const int* top_k, const double* top_p, const double* min_p,
         const u64* seeds, u64* positions, int* out) {
  __shared__ DrawShared s;
  int row = blockIdx.x;
  u64 best = bests[row];
  __syncthreads();
  if (threadIdx.x == 0) bests[row] = 0;
  if (missing[row] >= 0 || !is_finite_key(key_in(best))) {
    if (threadIdx.x == 0) out[row] = -1;
    return;
  }
  if (threadIdx.x == 0) s.token = (int)id_in(best);
  __syncthreads();
  if (temperature[row] > 0) {
    Draw d = {logits, row * logits_stride, (int)dtype, words + row * num_words, (int)num_words,
              (double)value_of(key_in(best)), temperature[row], -31.0, 0, 0x7fffffff};
    u64 before;
    i64 k = top_k[row];
    if (k > 0) {
      u64 count = 0;
      u32 key;
      for (int word = threadIdx.x >> 5; word < d.num_words; word += DRAW_WARPS)
        if (weigh(d, word, threadIdx.x & 31, key)) ++count;
      if ((i64)block_sum(s, count) > k) d.key = key_at_mass(s, d, false, (double)k, before);
    }
    if (top_p[row] < 1) cut_to_mass(s, d, top_p[row]);
    if (min_p[row] > 0) d.least = max(d.least, log(min_p[row]));
    pick(s, d, uniform(seeds[row], positions[row]));
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    out[row] = s.token;
    positions[row] += 1;
  }
}
