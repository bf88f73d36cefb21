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
constexpr int BINS = 2048, BINS_A_THREAD = BINS / DRAW_THREADS, DIGITS = 256, DIGIT_BITS = 8;
constexpr int LISTED = 3072;             // keys of one bin that are kept at hand
constexpr int AHEAD_WORDS = 8;           // loads under way in each thread
constexpr double UNIT = 17592186044416.0;  // 2^44: the sum over 2^18 tokens fits in 62 bits
constexpr double LEAST = -31.0;          // a scaled logit below this weighs nothing

// What a row may draw from, the same in every thread. A warp owns a run of words.
struct Draw {
  const void* logits;
  i64 offset;
  int dtype;
  const u32* words;
  int num_words;
  double best, temperature, inverse;  // inverse of the temperature
  double least;  // scaled logits below this are left out (min-p)
  u32 key;       // tokens with smaller keys are left out (top-k, top-p) ...
  i64 ties;      // ... and, of those with this very key, all but the first so many
};

// Mass, in both measures.
struct Mass {
  u64 weight;
  i64 count;
};

struct DrawShared {
  u64 weights[BINS];
  u32 counts[BINS];
  u64 digit_weights[DIGITS];
  u32 digit_counts[DIGITS];
  u32 keys[LISTED];
  u64 warp_weights[DRAW_WARPS];
  u32 warp_counts[DRAW_WARPS];
  Mass before;
  int bin;
  u32 num_listed, low, high;
  int token;
};

__device__ __forceinline__ double scaled(const Draw& d, u32 key) {
  return ((double)value_of(key) - d.best) * d.inverse;
}

// exp in float, corrected for what the argument lost: double exp would take longer than all the rest.
__device__ __forceinline__ u64 weight_of(double x) {
  if (x < LEAST) return 0;
  float rounded = (float)x;
  return (u64)((double)expf(rounded) * (1.0 + (x - rounded)) * UNIT);
}

// The bin of a scaled logit, greatest first: 64 a nat, so that tokens spread over many.
__device__ __forceinline__ int bin_of(double x) { return min((int)(-x * 64.0), BINS - 1); }

// visit(word, key) for the warp's words that have a token, ascending, with the key of token word * 32 + lane, or 0 where
// the mask leaves it out; all lanes together, until one visit gives true.
template <class Visit>
__device__ __forceinline__ void for_each(const Draw& d, Visit visit) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int each = (d.num_words + DRAW_WARPS - 1) / DRAW_WARPS, first = warp * each, last = min(first + each, d.num_words);
  for (int base = first; base < last; base += 32) {
    u32 mine = base + lane < last ? d.words[base + lane] : 0;
    u32 busy = __ballot_sync(EVERY_LANE, mine != 0);
    while (busy) {
      int word[AHEAD_WORDS];
      u32 key[AHEAD_WORDS];
#pragma unroll
      for (int j = 0; j < AHEAD_WORDS; ++j) {
        int which = __ffs(busy) - 1;
        busy &= busy - 1;
        word[j] = which < 0 ? -1 : base + which;
        u32 bits = __shfl_sync(EVERY_LANE, mine, which & 31);
        bool is_in = which >= 0 && (bits >> lane & 1);
        key[j] = is_in ? key_of(logit_at(d.logits, d.offset + (i64)word[j] * 32 + lane, d.dtype)) : 0;
      }
#pragma unroll
      for (int j = 0; j < AHEAD_WORDS; ++j)
        if (word[j] >= 0 && visit(word[j], key[j])) return;
    }
  }
}

// Sums over the block of what the threads before this one hold; `all` is the whole.
__device__ inline Mass mass_before(DrawShared& s, u64 weight, u32 count, Mass& all) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  u64 weights = weight;
  u32 counts = count;
  for (int step = 1; step < 32; step <<= 1) {
    u64 more = __shfl_up_sync(EVERY_LANE, weights, step);
    u32 further = __shfl_up_sync(EVERY_LANE, counts, step);
    if (lane >= step) weights += more, counts += further;
  }
  __syncthreads();
  if (lane == 31) s.warp_weights[warp] = weights, s.warp_counts[warp] = counts;
  __syncthreads();
  Mass before = {weights - weight, (i64)counts - count};
  all = {0, 0};
  for (int i = 0; i < DRAW_WARPS; ++i) {
    if (i < warp) before.weight += s.warp_weights[i], before.count += s.warp_counts[i];
    all.weight += s.warp_weights[i], all.count += s.warp_counts[i];
  }
  return before;
}

__device__ __forceinline__ bool reaches(Mass before, u64 weight, u32 count, bool by_weight, double target) {
  return (by_weight ? (double)(before.weight + weight) : (double)(before.count + count)) >= target;
}

// The first of `size` bins at which the mass, with what is `before` all of them, reaches `target`; `before` becomes the
// mass before that bin. The last bin if none does. `all` is the mass of all bins.
__device__ inline int find_bin(DrawShared& s, const u64* weights, const u32* counts, int size, bool by_weight,
                               double target, Mass& before, Mass& all) {
  int each = (size + DRAW_THREADS - 1) / DRAW_THREADS, first = threadIdx.x * each;
  u64 weight = 0;
  u32 count = 0;
  for (int i = first; i < first + each && i < size; ++i) weight += weights[i], count += counts[i];
  Mass here = mass_before(s, weight, count, all);
  here.weight += before.weight, here.count += before.count;
  if (threadIdx.x == 0) s.bin = size - 1, s.before = before;
  __syncthreads();
  if (first < size && !reaches(here, 0, 0, by_weight, target) && reaches(here, weight, count, by_weight, target)) {
    int bin = first;  // in one thread
    for (; !reaches(here, weights[bin], counts[bin], by_weight, target); ++bin)
      here.weight += weights[bin], here.count += counts[bin];
    s.bin = bin, s.before = here;
  }
  __syncthreads();
  before = s.before;
  int bin = s.bin;
  __syncthreads();
  return bin;
}

// Keys that hold the bin's, and few others: so that most tokens are passed over without their scaled logit.
__device__ __forceinline__ void keys_around(const Draw& d, int bin, u32& low, u32& high) {
  double top = d.best - bin / 64.0 * d.temperature, bottom = top - d.temperature / 64.0;
  double slack = 1e-6 * (fabs(d.best) + fabs(bottom) + d.temperature);  // more than any rounding here
  low = bin == BINS - 1 ? 0 : key_of((float)(bottom - slack));
  high = key_of((float)(top + slack));
}

// visit(key) for every token of a bin: from the list if they are listed, else by looking at all tokens again.
template <class Visit>
__device__ __forceinline__ void for_bin(DrawShared& s, const Draw& d, int bin, bool is_listed, Visit visit) {
  if (is_listed) {
    for (u32 i = threadIdx.x; i < s.num_listed; i += DRAW_THREADS) visit(s.keys[i]);
    return;
  }
  u32 low, high;
  keys_around(d, bin, low, high);
  for_each(d, [&](int, u32 key) {
    if (key == 0 || key < low || key > high) return false;
    double x = scaled(d, key);
    if (x >= LEAST && bin_of(x) == bin && weight_of(x)) visit(key);
    return false;
  });
}

// The key of `bin` at which the mass reaches `target`, `before` being the mass of greater bins and then of greater keys;
// and how many tokens have that key.
__device__ inline u32 key_in_bin(DrawShared& s, const Draw& d, int bin, bool by_weight, double target, Mass& before,
                                 i64& ties) {
  bool is_listed = s.counts[bin] <= LISTED;
  if (threadIdx.x == 0) s.num_listed = 0, s.low = 0xffffffffu, s.high = 0;
  __syncthreads();
  for_bin(s, d, bin, false, [&](u32 key) {
    atomicMin(&s.low, key);
    atomicMax(&s.high, key);
    if (is_listed) s.keys[atomicAdd(&s.num_listed, 1u)] = key;
  });
  __syncthreads();
  u32 low = s.low, high = s.high;
  for (bool is_first = true; is_first || low < high; is_first = false) {
    int shift = max(0, 32 - __clz(high - low) - DIGIT_BITS);
    for (int i = threadIdx.x; i < DIGITS; i += DRAW_THREADS) s.digit_weights[i] = 0, s.digit_counts[i] = 0;
    __syncthreads();
    for_bin(s, d, bin, is_listed, [&](u32 key) {
      if (key < low || key > high) return;
      u32 digit = (high - key) >> shift;
      atomicAdd(&s.digit_weights[digit], weight_of(scaled(d, key)));
      atomicAdd(&s.digit_counts[digit], 1u);
    });
    __syncthreads();
    Mass all;
    u32 digit = find_bin(s, s.digit_weights, s.digit_counts, DIGITS, by_weight, target, before, all);
    ties = s.digit_counts[digit];
    u32 width = (1u << shift) - 1;
    high -= digit << shift;
    low = high - low > width ? high - width : low;
  }
  __syncthreads();
  return low;
}

// Leave out what top-k and top-p leave out.
__device__ inline void cut(DrawShared& s, Draw& d, i64 top_k, double top_p) {
  for (int i = threadIdx.x; i < BINS; i += DRAW_THREADS) s.weights[i] = 0, s.counts[i] = 0;
  __syncthreads();
  for_each(d, [&](int, u32 key) {
    double x = key ? scaled(d, key) : LEAST - 1;
    u64 weight = weight_of(x);
    if (weight) {
      atomicAdd(&s.weights[bin_of(x)], weight);
      atomicAdd(&s.counts[bin_of(x)], 1u);
    }
    return false;
  });
  __syncthreads();
  Mass all, before = {0, 0};
  int bin = find_bin(s, s.weights, s.counts, BINS, false, (double)top_k, before, all);
  u64 kept = all.weight;
  i64 ties;
  if (top_k > 0 && all.count > top_k) {
    d.key = key_in_bin(s, d, bin, false, (double)top_k, before, ties);
    kept = before.weight + ties * weight_of(scaled(d, d.key));
  }
  if (top_p >= 1) return;
  double target = top_p * (double)kept;
  before = {0, 0};
  bin = find_bin(s, s.weights, s.counts, BINS, true, target, before, all);
  d.key = key_in_bin(s, d, bin, true, target, before, ties);
  u64 weight = weight_of(scaled(d, d.key));
  d.ties = max((i64)1, (i64)((target - (double)before.weight) / (double)weight) - 1);  // then by exact steps
  while ((double)(before.weight + d.ties * weight) < target && d.ties < ties) ++d.ties;
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
__device__ inline void pick(DrawShared& s, const Draw& d, double uniform) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  u64 mine = 0;
  u32 num_ties = 0;
  for_each(d, [&](int, u32 key) {
    if (key > d.key) {
      double x = scaled(d, key);
      if (x >= d.least) mine += weight_of(x);
    }
    if (key == d.key && key) ++num_ties;
    return false;
  });
  for (int step = 16; step; step >>= 1) {
    mine += __shfl_xor_sync(EVERY_LANE, mine, step);
    num_ties += __shfl_xor_sync(EVERY_LANE, num_ties, step);
  }
  __syncthreads();
  if (lane == 0) s.warp_weights[warp] = mine, s.warp_counts[warp] = num_ties;
  __syncthreads();
  double x_tie = d.key ? scaled(d, d.key) : LEAST - 1;
  u64 tie_weight = x_tie >= d.least ? weight_of(x_tie) : 0;
  i64 left = d.ties, ties_here = 0;
  u64 sum = 0, before = 0, here = 0;
  for (int i = 0; i < DRAW_WARPS; ++i) {
    i64 taken = min(left, (i64)s.warp_counts[i]);
    u64 weight = s.warp_weights[i] + taken * tie_weight;
    if (i == warp) before = sum, here = weight, ties_here = left;
    left -= taken;
    sum += weight;
  }
  double target = uniform * (double)sum;
  if ((double)before > target || (double)(before + here) <= target) return;  // the same in all lanes
  for_each(d, [&](int word, u32 key) {
    if (!__ballot_sync(EVERY_LANE, key >= d.key && key)) return false;
    double x = key ? scaled(d, key) : LEAST - 1;
    u32 tied = __ballot_sync(EVERY_LANE, key == d.key && key != 0);
    bool is_kept = key > d.key || __popc(tied & ((1u << lane) - 1)) < ties_here;
    u64 running = key >= d.key && key && is_kept && x >= d.least ? weight_of(x) : 0;
    ties_here -= __popc(tied);
    for (int step = 1; step < 32; step <<= 1) {
      u64 below = __shfl_up_sync(EVERY_LANE, running, step);
      if (lane >= step) running += below;
    }
    u32 passed = __ballot_sync(EVERY_LANE, (double)(before + running) > target);
    if (passed && lane == 0) s.token = word * 32 + __ffs(passed) - 1;
    before += __shfl_sync(EVERY_LANE, running, 31);
    return passed != 0;
  });
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
    double heat = max(temperature[row], 1e-300);  // so that its inverse is finite
    Draw d = {logits, row * logits_stride, (int)dtype, words + row * num_words, (int)num_words,
              (double)value_of(key_in(best)), heat, 1 / heat, LEAST, 0, 0x7fffffffffffffff};
    if (top_k[row] > 0 || top_p[row] < 1) cut(s, d, top_k[row], top_p[row]);
    if (min_p[row] > 0) d.least = max(d.least, log(min_p[row]));
    pick(s, d, uniform(seeds[row], positions[row]));
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    out[row] = s.token;
    positions[row] += 1;
  }
}
