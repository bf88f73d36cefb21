// The kernels. Grids: x is the chunk of token ids, y the row, unless said otherwise.
//
// Nothing here waits for the host, and every address is an argument, so that launches can be captured in a graph.
#include "walk.cuh"
#include "logits.cuh"
#include "draw.cuh"

#ifndef MIN_BLOCKS  // of a multiprocessor: few rows are faster with more registers, many with more blocks
#define MIN_BLOCKS 2
#endif

// Write each row's mask: out[row * out_stride + word], bit t % 32 of word t / 32 for token t.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    walk_bitmask(const Tokens* tokens, const Grammar* grammars, ROWS_PARAMS, u32* out, i64 out_stride) {
  __shared__ Shared s;
  Tokens t = *tokens;
  Rows r = ROWS_ARGS;
  int row = blockIdx.y, num_rows = gridDim.y;
  if (!walk_chunk(s, t, grammars, r, row, blockIdx.x, gridDim.x, num_rows)) return;
  int first = blockIdx.x * (int)t.chunk_words, num_words = min((int)t.chunk_words, (int)t.num_words - first);
#pragma unroll 1
  for (int other = row; other < num_rows; ++other) {
    if (other > row && !(s.equal[other >> 5] >> (other & 31) & 1)) continue;
    for (int i = threadIdx.x; i < num_words; i += THREADS) out[other * out_stride + first + i] = s.words[i];
  }
}

// Write -inf over the logits of the tokens that the mask leaves out, and of columns past the vocabulary.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    walk_mask_logits(const Tokens* tokens, const Grammar* grammars, ROWS_PARAMS, void* logits, i64 logits_stride,
                     i64 columns, i64 dtype) {
  __shared__ Shared s;
  Tokens t = *tokens;
  Rows r = ROWS_ARGS;
  int row = blockIdx.y, chunk = blockIdx.x;
  walk_chunk(s, t, grammars, r, row, chunk, gridDim.x, 0);
  i64 first = chunk * t.chunk_words * 32, last = min(first + t.chunk_words * 32, columns);
  if (chunk == (int)gridDim.x - 1) last = columns;
  for (i64 i = first + threadIdx.x; i < last; i += THREADS) {
    int local = (int)(i - first);
    bool allowed = i < t.size && (s.words[local >> 5] >> (local & 31) & 1);
    if (!allowed) set_minus_infinity(logits, row * logits_stride + i, (int)dtype);
  }
}

// The best admissible token of the block's words, the same in thread 0 as if all threads had looked at all of them.
__device__ inline u64 best_of_chunk(const Shared& s, const Tokens& t, int chunk, const void* logits, i64 offset,
                                    int dtype) {
  constexpr int AHEAD = 8;  // loads under way in each thread
  __shared__ u64 of_warp[WARPS];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int first = chunk * (int)t.chunk_words, num_words = min((int)t.chunk_words, (int)t.num_words - first);
  u64 best = 0;
  for (int begin = warp; begin < num_words; begin += WARPS * AHEAD) {
    u32 keys[AHEAD];
#pragma unroll
    for (int j = 0; j < AHEAD; ++j) {
      int word = begin + j * WARPS;
      bool allowed = word < num_words && (s.words[word] >> lane & 1);
      keys[j] = allowed ? key_of(logit_at(logits, offset + (i64)(first + word) * 32 + lane, dtype)) : 0;
    }
#pragma unroll
    for (int j = 0; j < AHEAD; ++j)
      if (keys[j]) best = max(best, ballot_of(keys[j], (first + begin + j * WARPS) * 32 + lane));
  }
  for (int d = 16; d; d >>= 1) best = max(best, __shfl_xor_sync(EVERY_LANE, best, d));
  if (lane == 0) of_warp[warp] = best;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 1; i < WARPS; ++i) best = max(best, of_warp[i]);
  return best;
}

// The best admissible token of each row: out[row] = its id, or -1: none, a logit that is not finite, or a row stalled.
// With `words` the masks are written as well, and if `out` is null the bests are left in `bests` for `draw_tokens`.
// `bests` and `tickets` hold 0 before, and again afterwards.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    walk_best(const Tokens* tokens, const Grammar* grammars, ROWS_PARAMS, const void* logits, i64 logits_stride,
              i64 dtype, u64* bests, u32* tickets, int* out, u32* words) {
  __shared__ Shared s;
  Tokens t = *tokens;
  Rows r = ROWS_ARGS;
  int row = blockIdx.y, chunk = blockIdx.x;
  walk_chunk(s, t, grammars, r, row, chunk, gridDim.x, 0);
  if (words != nullptr) {
    int first = chunk * (int)t.chunk_words, num_words = min((int)t.chunk_words, (int)t.num_words - first);
    for (int i = threadIdx.x; i < num_words; i += THREADS) words[row * t.num_words + first + i] = s.words[i];
  }
  u64 best = best_of_chunk(s, t, chunk, logits, row * logits_stride, (int)dtype);
  if (threadIdx.x != 0) return;
  if (best) atomicMax(&bests[row], best);
  if (out == nullptr) return;
  __threadfence();
  if (atomicInc(&tickets[row], gridDim.x - 1) != gridDim.x - 1) return;  // the last block of the row answers
  __threadfence();
  best = atomicExch(&bests[row], 0ull);
  bool is_stalled = atomicMax(&r.missing[row], -1) >= 0;
  out[row] = is_stalled || !is_finite_key(key_in(best)) ? -1 : (int)id_in(best);
}

// Read tokens[row * tokens_stride + 0 … count - 1] in each row; -1 is read as nothing. All are read or none: on a token
// that may not follow, `refused` says which; on a row of edges that is not built, `missing` says of which state.
// Grid: x is the row; one warp each.
extern "C" __global__ void advance_rows(const Tokens* tokens_of, const Grammar* grammars, ROWS_PARAMS, const int* tokens,
                                   i64 tokens_stride, i64 count) {
  __shared__ Cursor c;
  __shared__ int is_moved;
  Rows r = ROWS_ARGS;
  int row = blockIdx.x, lane = threadIdx.x;
  int* words = r.config + row * CONFIG_WORDS;
  if (r.grammar[row] < 0 || r.missing[row] >= 0) return;
  int depth = words[1];
  if (lane == 0) {
    const Grammar& g = grammars[r.grammar[row]];
    const Tokens& t = *tokens_of;
    c.state = words[0], c.counter = words[2], c.base = depth, c.own = 0;
    is_moved = 1;
    int num_read = 0;
    for (int i = 0; i < count && is_moved; ++i) {
      int token = tokens[row * tokens_stride + i];
      if (token == -1) continue;
      ++num_read;
      int status = read_token(g, t, words + 3, c, token);
      if (status == ALIVE) continue;
      is_moved = 0;
      if (status == DIED) r.refused[row] = token;
      else r.missing[row] = status - 1;
    }
    is_moved = is_moved && num_read;
    if (is_moved && r.remaining[row] != 0x7fffffff) r.remaining[row] = max(r.remaining[row] - num_read, 0);
  }
  __syncwarp();
  if (!is_moved) return;
  int base = c.base, after = c.base + c.own;
  for (int i = base + lane; i < max(depth, after); i += 32) words[3 + i] = i < after ? c.pushed[i - base] : 0;
  if (lane == 0) words[0] = c.state, words[1] = after, words[2] = c.counter;
}
