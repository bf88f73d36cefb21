// A block's share of a mask: the words of one chunk of token ids, computed in shared memory.
//
// Only tokens that may live are walked. A chunk's tokens lie in three lists, each sorted by one byte, and the block
// first finds which bytes are live in the row's configuration:
//
//   ALL   every token, by its first byte: for structural states, and states that tell plain characters apart
//   REST  the tokens that are not plain, by their first byte: when plain tokens are decided by their length alone
//   TAIL  the same tokens by the first byte that is not plain: when plain characters lead back to the state
//
// A plain token (whole UTF-8 characters, none of them ", \ or a control) is never walked in the last two.
#pragma once
#include "machine.cuh"

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int MAX_CHUNK_WORDS = 512;
constexpr int ALL = 0, REST = 1, TAIL = 2;
constexpr int MAX_ROWS = 1024;
constexpr u32 EVERY_LANE = 0xffffffffu;

// One token in a list.
struct __align__(16) Record {
  u32 place;   // of its bytes in `Tokens::bytes`, in words
  u32 id;      // low half: id within the chunk; high half: length in bytes
  u32 prefix;  // low half: bytes of whole plain characters that it begins with; high half: how many characters
  u32 first;   // its first four bytes
};

// A vocabulary cut into chunks, all fields 8 bytes. `tokens.py` writes it.
struct Tokens {
  const Record* records;
  const int* starts;         // [3, chunks, 257] where each byte's records begin
  const u32* bytes;          // each token's bytes, padded to words
  const int* places;         // [V] where in it each token begins
  const u16* lengths;        // [V] bytes of each token, 0 for those without
  const u32* plain_words;    // [rows, W] plain tokens of at most so many characters
  const int* row_of_run;     // [longest plain + 1]
  const int* end_ids;        // [num_ends]
  i64 num_ends, longest_plain, num_words, size, chunk_words;
};

// The rows of a batch; see docs/gpu.md.
struct Rows {
  int* config;               // [R, CONFIG_WORDS]
  const int* grammar;
  const int* min_bytes;
  int* remaining;
  const int* is_restricted;
  const u32* allowed;        // [R, W]
  const int* num_banned;
  const int* banned;         // [R, banned_stride]
  i64 banned_stride;
  int* missing;
  int* refused;
};

// Kernels take every argument as 8 bytes, one by one.
#define ROWS_PARAMS                                                                                             \
  int *config, const int *grammar, const int *min_bytes, int *remaining, const int *is_restricted,              \
      const u32 *allowed, const int *num_banned, const int *banned, i64 banned_stride, int *missing, int *refused
#define ROWS_ARGS                                                                                               \
  {config, grammar, min_bytes, remaining, is_restricted, allowed, num_banned, banned, banned_stride, missing, refused}

struct Shared {
  u32 words[MAX_CHUNK_WORDS];
  u8 byte_class[256];
  int total[257];            // candidates that come before each byte's
  int begin[256];
  int warp_sum[WARPS];
  u32 equal[MAX_ROWS / 32];  // rows that stand where this one does
  int missing;
};

// Walk one token from byte `position` on. Returns as `read_class` does.
__device__ __forceinline__ int walk_token(const Grammar& g, const Tokens& t, const u8* byte_class, const int* stack,
                                          Cursor& c, const Record& token, int position) {
  int length = token.id >> 16, prefix = token.prefix & 0xffff;
  int loaded = 0;
  u32 word = token.first;
  bool looped = false;
  while (position < length) {
    if (position >> 2 != loaded) {
      loaded = position >> 2;
      word = t.bytes[token.place + loaded];
    }
    int byte = word >> 8 * (position & 3) & 255;
    if (looped && position < prefix && (byte & 0xc0) != 0x80 && (g.flags[c.state] & LOOP)) {
      position = prefix;  // whole plain characters lead back here
      looped = false;
      continue;
    }
    int k = byte_class[byte];
    int edge = edge_at(g, c.state, k);
    if (edge >= 0) {
      looped = edge == c.state;
      c.state = edge;
    } else {
      looped = false;
      int status = read_class(g, stack, c, k);
      if (status != ALIVE) return status;
    }
    ++position;
  }
  return ALIVE;
}

// Read a whole token, an end token too. Returns as `read_class` does.
__device__ inline int read_token(const Grammar& g, const Tokens& t, const int* stack, Cursor& c, int token) {
  if (token < 0 || token >= t.size) return DIED;
  for (int i = 0; i < t.num_ends; ++i)
    if (token == t.end_ids[i]) {
      Cursor copy = c;
      if (c.state != FINISHED && !accepts(g, stack, copy)) return DIED;
      c.state = FINISHED, c.counter = c.base = c.own = 0;
      return ALIVE;
    }
  int length = t.lengths[token], place = t.places[token];
  if (c.state == FINISHED || length == 0) return DIED;
  for (int i = 0; i < length; ++i) {
    int byte = t.bytes[place + (i >> 2)] >> 8 * (i & 3) & 255;
    int status = read_class(g, stack, c, g.byte_class[byte]);
    if (status != ALIVE) return status;
  }
  return ALIVE;
}

// Mark in `s.equal` the rows that have this row's configuration and nothing special. The row itself is one of them.
__device__ inline void find_equal_rows(Shared& s, const Rows& r, int row, int num_rows) {
  const int* mine = r.config + row * CONFIG_WORDS;
  bool special = r.is_restricted[row] || r.num_banned[row];
  for (int other = threadIdx.x; other < num_rows; other += THREADS) {
    const int* theirs = r.config + other * CONFIG_WORDS;
    bool equal = r.grammar[other] == r.grammar[row] && theirs[0] == mine[0] && theirs[1] == mine[1] &&
                 theirs[2] == mine[2] && r.min_bytes[other] == r.min_bytes[row] &&
                 r.remaining[other] == r.remaining[row] && !r.is_restricted[other] && !r.num_banned[other] && !special;
    for (int i = 0; equal && i < mine[1]; ++i) equal = theirs[3 + i] == mine[3 + i];
    if (equal || other == row) atomicOr(&s.equal[other >> 5], 1u << (other & 31));
  }
}

// Whether an earlier row is equal, and so does this one's work.
__device__ inline bool has_leader(const Shared& s, int row) {
  for (int i = 0; i < row >> 5; ++i)
    if (s.equal[i]) return true;
  return s.equal[row >> 5] & ((1u << (row & 31)) - 1);
}

// Inclusive sum over the block of one number a thread, into s.total[1 …]; s.total[0] = 0.
__device__ inline void sum_counts(Shared& s, int count) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  for (int d = 1; d < 32; d <<= 1) {
    int below = __shfl_up_sync(EVERY_LANE, count, d);
    if (lane >= d) count += below;
  }
  if (lane == 31) s.warp_sum[warp] = count;
  __syncthreads();
  for (int i = 0; i < warp; ++i) count += s.warp_sum[i];
  s.total[threadIdx.x + 1] = count;
  if (threadIdx.x == 0) s.total[0] = 0;
  __syncthreads();
}

// The byte whose candidates hold number i: s.total[byte] <= i < s.total[byte + 1].
__device__ __forceinline__ int byte_of(const Shared& s, int i) {
  int byte = 0;
  for (int d = 128; d; d >>= 1)
    if (s.total[byte + d] <= i) byte += d;
  return byte;
}

// What a row's walk starts from, the same in every thread.
struct Start {
  int grammar, state, depth, counter;
  const int* stack;
  bool is_limited;  // a token must leave a completion of at most `limit` tokens
  int limit;
};

__device__ __forceinline__ Start start_of(const Rows& r, int row) {
  const int* config = r.config + row * CONFIG_WORDS;
  return {r.grammar[row], config[0], config[1], config[2], config + 3, false, 0};
}

__device__ __forceinline__ void place(Cursor& c, const Start& at) {
  c.state = at.state, c.counter = at.counter, c.base = at.depth, c.own = 0;
}

// Whether a token that begins (or whose tail begins) with `byte` may live, to be decided by walking it. In TAIL the
// counter on arrival is not known yet, so bounds are left to the walk.
__device__ inline bool may_live(Shared& s, const Grammar& g, const Start& at, int list, int k) {
  int edge = edge_at(g, at.state, k);
  if (edge >= 0) return true;
  if (edge == DEAD && label_of(g, at.state) < 0) return false;
  if (list == TAIL) return true;
  Cursor c;
  place(c, at);
  int status = read_class(g, at.stack, c, k);
  if (status > 0) atomicMax(&s.missing, status - 1);
  return status == ALIVE;
}

// Or into s.words the bits of the tokens of `chunk` that live. Plain tokens of the last two lists are not among them.
__device__ inline void walk_list(Shared& s, const Tokens& t, const Grammar& g, const Start& at, const PlainRun& run,
                                 int list, int chunk, int num_chunks) {
  const int* starts = t.starts + ((i64)list * num_chunks + chunk) * 257;
  int byte = threadIdx.x, begin = starts[byte], count = starts[byte + 1] - begin;
  s.begin[byte] = begin;
  s.byte_class[byte] = g.byte_class[byte];
  if (count && !may_live(s, g, at, list, g.byte_class[byte])) count = 0;
  sum_counts(s, count);
  for (int i = threadIdx.x; i < s.total[256]; i += THREADS) {
    int owner = byte_of(s, i);
    const Record token = t.records[s.begin[owner] + i - s.total[owner]];
    Cursor c;
    place(c, at);
    int position = 0, characters = token.prefix >> 16;
    if (list != ALL) {
      if (characters > run.length) continue;
      if (run.chain >= 0 && characters >= run.chain) {
        c.state = run.state, c.counter = run.counter + (characters - run.chain) * run.step;
        position = token.prefix & 0xffff;
      }
    }
    int status = walk_token(g, t, s.byte_class, at.stack, c, token, position);
    if (status > 0) atomicMax(&s.missing, status - 1);
    if (status != ALIVE || (at.is_limited && g.need[c.state] > at.limit)) continue;
    int id = token.id & 0xffff;
    atomicOr(&s.words[id >> 5], 1u << (id & 31));
  }
}

// Bit i: the chunk's word `word` of ids has an end token at i.
__device__ __forceinline__ u32 end_bits(const Tokens& t, int word) {
  u32 bits = 0;
  for (int i = 0; i < t.num_ends; ++i)
    if (t.end_ids[i] >> 5 == word) bits |= 1u << (t.end_ids[i] & 31);
  return bits;
}

// A word as the row's own limits leave it.
__device__ inline u32 limited(const Tokens& t, const Rows& r, int row, int word, u32 bits, bool accepting) {
  int least = r.min_bytes[row];
  u32 ends = end_bits(t, word);
  if (least > 1)
    for (u32 todo = bits; todo; todo &= todo - 1) {
      int lane = __ffs(todo) - 1;
      if (t.lengths[word * 32 + lane] < least) bits &= ~(1u << lane);
    }
  bits = accepting ? bits | ends : bits & ~ends;
  if (r.is_restricted[row]) bits &= r.allowed[row * t.num_words + word];
  for (int i = 0; i < r.num_banned[row]; ++i) {
    int token = r.banned[row * r.banned_stride + i];
    if (token >> 5 == word) bits &= ~(1u << (token & 31));
  }
  return bits;
}

// The block's words of the row's mask, in s.words; every thread of the block calls it, and may read them afterwards.
// With `num_rows` > 0, rows in the same place are found first; returns false, and does nothing, if another block does
// the work for this row.
__device__ inline bool walk_chunk(Shared& s, const Tokens& t, const Grammar* grammars, const Rows& r, int row, int chunk,
                                  int num_chunks, int num_rows) {
  Start at = start_of(r, row);
  int first = chunk * (int)t.chunk_words;
  int num_words = min((int)t.chunk_words, (int)t.num_words - first);
  for (int i = threadIdx.x; i < MAX_ROWS / 32; i += THREADS) s.equal[i] = 0;
  if (threadIdx.x == 0) s.missing = -1;
  bool is_walked = at.grammar >= 0 && at.state != FINISHED;
  PlainRun run = {MIXED, -1, 0, 0, 0};
  int list = ALL;
  const u32* plain = nullptr;
  Grammar g;
  if (is_walked) {
    g = grammars[at.grammar];
    at.is_limited = g.need != nullptr && r.remaining[row] != 0x7fffffff;
    at.limit = r.remaining[row] - 1;
    if (!at.is_limited) run = plain_run(g, at.state, at.counter, (int)t.longest_plain);
    if (run.length != MIXED) {
      list = run.chain == 0 ? TAIL : REST;
      plain = t.plain_words + t.row_of_run[run.length] * t.num_words + first;
    }
  }
  u32 none = at.grammar < 0 ? 0xffffffffu : 0;
  for (int i = threadIdx.x; i < num_words; i += THREADS) s.words[i] = plain != nullptr ? plain[i] : none;
  __syncthreads();
  if (num_rows) find_equal_rows(s, r, row, num_rows);
  if (is_walked) walk_list(s, t, g, at, run, list, chunk, num_chunks);
  __syncthreads();
  if (num_rows && has_leader(s, row)) return false;
  for (int i = threadIdx.x; i < num_words; i += THREADS) {
    int word = first + i;
    bool accepting = !is_walked;
    if (is_walked && end_bits(t, word)) {
      Cursor c;
      place(c, at);
      accepting = accepts(g, at.stack, c) && r.remaining[row] > 0;
    }
    u32 bits = limited(t, r, row, word, s.words[i], accepting);
    if (word == t.num_words - 1 && (t.size & 31)) bits &= (1u << (t.size & 31)) - 1;
    s.words[i] = bits;
  }
  if (threadIdx.x == 0 && s.missing >= 0) {
    if (!num_rows) atomicMax(&r.missing[row], s.missing);
    for (int other = row; other < num_rows; ++other)
      if (s.equal[other >> 5] >> (other & 31) & 1) atomicMax(&r.missing[other], s.missing);
  }
  __syncthreads();
  return true;
}
