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
constexpr int MAX_CHUNK_WORDS = 512, WORDS_A_THREAD = MAX_CHUNK_WORDS / THREADS;
constexpr int STAGE_BYTES = 12 << 10;  // a grammar of no more bytes is copied into shared memory; more would not pay
constexpr int ALL = 0, REST = 1, TAIL = 2;
constexpr int MAX_ROWS = 1024;
constexpr u32 EVERY_LANE = 0xffffffffu;

// One token in a list.
struct __align__(16) Record {
  u32 place;   // of its bytes in `Tokens::bytes`, in words
  u32 id;      // low half: id within the chunk; high half: length in bytes
  u32 runs;    // a byte each: bytes of whole plain characters that it begins with; how many characters they are;
               // begin and end of its longest run of plain characters below 128
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

constexpr int KEPT = 3;  // pushes of a first byte that are kept

// A byte that is live in the row's configuration, and where it leads.
struct FirstByte {
  int total;  // ALL: candidates that come before this byte's
  int begin;  // ALL: its first record
  int state, counter, base;
  int least, most;  // start counters for which this holds; least > most: it has to be walked
  short own;
  u8 is_relative, is_live;
  int flags;  // of the state, if it was entered by an action
  int pushed[KEPT];
};

struct Shared {
  u32 words[MAX_CHUNK_WORDS];
  u8 byte_class[256];
  int stack[STACK_CAP];
  FirstByte first[256];  // by byte; in ALL the live ones, in a row
  int warp_sum[WARPS];
  u32 equal[MAX_ROWS / 32];  // rows that stand where this one does
  int missing;
  uint4 room[STAGE_BYTES / 16];  // for a grammar
};

// The plain characters from byte `position` of a token on, as far as they are known: how many, and in `end` where they
// end. 0 inside a character.
__device__ __forceinline__ int plain_ahead(const Record& token, int position, int& end) {
  int prefix = token.runs & 255, begin = token.runs >> 16 & 255;
  if (position < prefix && position < 4) {  // of the first four bytes it is seen which begin a character
    u32 following = token.first >> 7 & ~(token.first >> 6) & 0x01010101u;  // bytes that do not begin a character
    if (following >> 8 * position & 1) return 0;
    end = prefix;
    return (int)(token.runs >> 8 & 255) - (position - __popc(following & ((1u << 8 * position) - 1)));
  }
  end = token.runs >> 24;
  return begin <= position && position < end ? end - position : 0;
}

// Take a run of plain characters at once, from a state with these flags and bounds. ALIVE, also if it was not taken.
__device__ __forceinline__ int take_plain(Cursor& c, int flags, const Bounds& b, const Record& token, int& position) {
  int end, count = plain_ahead(token, position, end);
  if (count == 0) return ALIVE;
  int taken = loop_length(flags, b, c.counter, count);
  if (taken == MIXED) return ALIVE;
  if (taken < count) return DIED;
  if (flags & COUNT) c.counter += count;
  position = end;
  return ALIVE;
}

// Walk one token from byte `position` on. Returns as `read_class` does.
__device__ __forceinline__ int walk_token(const Grammar& g, const Tokens& t, const u8* byte_class, const int* stack,
                                          Cursor& c, const Record& token, int position) {
  int length = token.id >> 16;
  int loaded = 0;
  u32 word = token.first;
#pragma unroll 1
  while (position < length) {
    if (position >> 2 != loaded) {
      loaded = position >> 2;
      word = t.bytes[token.place + loaded];
    }
    int k = byte_class[word >> 8 * (position & 3) & 255];
    int edge = edge_at(g, c.state, k);
    ++position;
    Arrival arrival = {0, {}};
    if (edge < 0) {
      int status = read_edge<false>(g, stack, c, k, edge, arrival);
      if (status != ALIVE) return status;
    } else {
      if (edge == c.state && position < length) arrival = {g.flags[edge], bounds_of(g, edge)};
      c.state = edge;
    }
    if ((arrival.flags & TEXT) && take_plain(c, arrival.flags, arrival.bounds, token, position) == DIED) return DIED;
  }
  return ALIVE;
}

// Read a whole token, an end token too. Returns as `read_class` does.
__device__ inline int read_token(const Grammar& g, const Tokens& t, const int* stack, Cursor& c, int token) {
  if (token < 0 || token >= t.size) return DIED;
#pragma unroll 1
  for (int i = 0; i < t.num_ends; ++i)
    if (token == t.end_ids[i]) {
      Cursor copy = c;
      if (c.state != FINISHED && !accepts(g, stack, copy)) return DIED;
      c.state = FINISHED, c.counter = c.base = c.own = 0;
      return ALIVE;
    }
  int length = t.lengths[token], place = t.places[token];
  if (c.state == FINISHED || length == 0) return DIED;
#pragma unroll 1
  for (int i = 0; i < length; ++i) {
    int byte = t.bytes[place + (i >> 2)] >> 8 * (i & 3) & 255;
    int status = read_class(g, stack, c, g.byte_class[byte]);
    if (status != ALIVE) return status;
  }
  return ALIVE;
}

// What a row's walk starts from, the same in every thread.
struct Start {
  int grammar, state, depth, counter;
  const int* stack;
  int min_bytes, remaining, is_restricted, num_banned;
  bool is_limited;  // a token must leave a completion of less than `remaining` tokens
};

__device__ __forceinline__ Start start_of(const Rows& r, int row) {
  const int* config = r.config + row * CONFIG_WORDS;
  return {r.grammar[row],   config[0],        config[1],            config[2],         config + 3,
          r.min_bytes[row], r.remaining[row], r.is_restricted[row], r.num_banned[row], false};
}

__device__ __forceinline__ void place(Cursor& c, const Start& at) {
  c.state = at.state, c.counter = at.counter, c.base = at.depth, c.own = 0;
}

// Mark in `s.equal` the rows that have this row's configuration and nothing special. The row itself is one of them.
__device__ inline void find_equal_rows(Shared& s, const Rows& r, const Start& at, int row, int num_rows) {
#pragma unroll 1
  for (int other = threadIdx.x; other < num_rows; other += THREADS) {
    Start there = start_of(r, other);  // all at once: one wait for memory
    int differs = (there.grammar ^ at.grammar) | (there.state ^ at.state) | (there.depth ^ at.depth) |
                  (there.counter ^ at.counter) | (there.min_bytes ^ at.min_bytes) | (there.remaining ^ at.remaining) |
                  there.is_restricted | there.num_banned | at.is_restricted | at.num_banned;
#pragma unroll 1
    for (int i = 0; !differs && i < at.depth; ++i) differs = there.stack[i] ^ at.stack[i];
    if (!differs || other == row) atomicOr(&s.equal[other >> 5], 1u << (other & 31));
  }
}

// Whether an earlier row is equal, and so does this one's work.
__device__ inline bool has_leader(const Shared& s, int row) {
#pragma unroll 1
  for (int i = 0; i < row >> 5; ++i)
    if (s.equal[i]) return true;
  return s.equal[row >> 5] & ((1u << (row & 31)) - 1);
}

// Sum over the block of one number a thread, up to and without this one; the whole in `sum`.
__device__ inline int sum_before(Shared& s, int mine, int& sum) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, running = mine;
  for (int d = 1; d < 32; d <<= 1) {
    int below = __shfl_up_sync(EVERY_LANE, running, d);
    if (lane >= d) running += below;
  }
  if (lane == 31) s.warp_sum[warp] = running;
  __syncthreads();
  sum = 0;
  int before = running - mine;
  for (int i = 0; i < WARPS; ++i) {
    if (i < warp) before += s.warp_sum[i];
    sum += s.warp_sum[i];
  }
  return before;
}

// Read the byte of this thread, and say in `first` where it leads, as far as that is known: in TAIL the counter on
// arrival differs by token.
__device__ inline void read_first_byte(Shared& s, const Grammar& g, const Start& at, bool is_tail, FirstByte& first) {
  Cursor c;
  place(c, at);
  c.start = at.counter, c.least = 0, c.most = 0x7fffffff, c.is_relative = true;
  int k = s.byte_class[threadIdx.x], edge = edge_at(g, at.state, k);
  bool may_return = edge != DEAD || label_of(g, at.state) >= 0;
  Arrival arrival = {0, {}};
  int status = may_return ? read_edge<true>(g, at.stack, c, k, edge, arrival) : DIED;
  first.flags = arrival.flags;
  if (status > 0) atomicMax(&s.missing, status - 1);
  first.is_live = status == ALIVE || (status == DIED && may_return && is_tail);
  first.state = c.state, first.counter = c.counter, first.base = c.base;
  first.own = c.own, first.is_relative = c.is_relative;
  bool is_known = status == ALIVE && c.own <= KEPT;
  first.least = is_known ? c.least : 1, first.most = is_known ? c.most : 0;
#pragma unroll
  for (int i = 0; i < KEPT; ++i) first.pushed[i] = is_known && i < c.own ? c.pushed[i] : 0;
}

// The byte, of `num_live`, to which candidate number i belongs.
__device__ __forceinline__ int owner_of(const Shared& s, int num_live, int i) {
  int low = 0, high = num_live - 1;
#pragma unroll 1
  while (low < high) {
    int middle = (low + high + 1) >> 1;
    if (s.first[middle].total <= i) low = middle;
    else high = middle - 1;
  }
  return low;
}

// Where candidate `token` is to be walked from: past its first byte where that is known. False: it is dead.
__device__ __forceinline__ bool set_out(const Grammar& g, Cursor& c, int& position, const FirstByte& first, const Record& token,
                                        const Start& at, const PlainRun& run, int list, int longest) {
  place(c, at);
  position = 0;
  int characters = token.runs >> 8 & 255;
  if (list != ALL) {
    if (characters > run.length) return run.length == longest;  // more than can be read, or than was asked for
    if (run.chain >= 0 && characters >= run.chain) {
      c.state = run.state, c.counter = run.counter + (characters - run.chain) * run.step;
      position = token.runs & 255;
      if (list == REST && position > 0) return true;
    }
  }
  if (c.counter < first.least || c.counter > first.most) return true;
  c.counter = first.counter + (first.is_relative ? c.counter - at.counter : 0);
  c.state = first.state, c.base = first.base, c.own = first.own;
#pragma unroll
  for (int i = 0; i < KEPT; ++i) c.pushed[i] = first.pushed[i];
  ++position;
  return !(first.flags & TEXT) || take_plain(c, first.flags, bounds_of(g, c.state), token, position) == ALIVE;
}

// Or into s.words the token's bit if it lives.
__device__ __forceinline__ void try_token(Shared& s, const Tokens& t, const Grammar& g, const Start& at,
                                          const PlainRun& run, int list, const FirstByte& first, const Record& token) {
  Cursor c;
  int position;
  if (!set_out(g, c, position, first, token, at, run, list, (int)t.longest_plain)) return;
  int status = walk_token(g, t, s.byte_class, at.stack, c, token, position);
  if (status > 0) atomicMax(&s.missing, status - 1);
  if (status != ALIVE || (at.is_limited && g.need[c.state] >= at.remaining)) return;
  int id = token.id & 0xffff;
  atomicOr(&s.words[id >> 5], 1u << (id & 31));
}

// A list of a chunk, as one thread sees it.
struct List {
  int kind;          // ALL, REST or TAIL
  int begin, count;  // all its records
  int begin_of_byte, count_of_byte;  // those of this thread's byte
  Record mine;       // the record of this thread's number; not in ALL
};

// Or into s.words the bits of the tokens of `list` that live. In ALL the candidates are numbered first, so that threads
// get those alone whose first byte is live; the other lists are short, and every record is looked at.
//
// There is one copy of the code that reads a byte for the first bytes, and one for all lists: a block runs through it
// once, so it waits for instructions more than for data where there are more of them.
__device__ __forceinline__ void walk_list(Shared& s, const Tokens& t, const Grammar& g, const Start& at,
                                          const PlainRun& run, const List& list) {
  FirstByte first;
  first.is_live = 0;
  if (list.count_of_byte) read_first_byte(s, g, at, list.kind == TAIL, first);
  int slot = threadIdx.x, num_live = 0, num_candidates = list.count;
  if (list.kind == ALL) {
    int sum, before = sum_before(s, first.is_live ? 1 << 16 | list.count_of_byte : 0, sum);  // two sums in one
    slot = before >> 16, first.total = before & 0xffff, first.begin = list.begin_of_byte;
    num_live = sum >> 16, num_candidates = sum & 0xffff;
  }
  if (first.is_live || list.kind != ALL) s.first[slot] = first;
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < num_candidates; i += THREADS) {
    Record token = list.mine;
    const FirstByte* owner;
    if (list.kind == ALL) {
      owner = &s.first[owner_of(s, num_live, i)];
      token = t.records[owner->begin + i - owner->total];
    } else {
      if (i >= THREADS) token = t.records[list.begin + i];
      int position = list.kind == TAIL ? token.runs & 255 : 0;
      u32 word = position < 4 ? token.first : t.bytes[token.place + (position >> 2)];
      owner = &s.first[word >> 8 * (position & 3) & 255];
      if (!owner->is_live) continue;
    }
    try_token(s, t, g, at, run, list.kind, *owner, token);
  }
}

#ifdef __CUDACC__
// Copy 16 bytes to shared memory without passing through a register, so that all copies are under way together.
__device__ __forceinline__ void copy_async(uint4* to, const uint4* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from));
}

__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#else
inline void copy_async(uint4* to, const uint4* from) { *to = *from; }
inline void wait_for_copies() {}
#endif

// Let `g` refer to a copy of its tables in `stage`, in the block's shared memory, if they fit. Needs a barrier before they are read.
__device__ __forceinline__ void stage(Grammar& g, uint4* stage) {
  if (g.num_bytes > STAGE_BYTES) return;
  const uint4* from = (const uint4*)g.byte_class;
  int count = g.num_bytes >> 4;
#pragma unroll 1
  for (int i = threadIdx.x; i < count; i += THREADS) copy_async(stage + i, from + i);
  wait_for_copies();
  i64 moved = (const char*)stage - (const char*)from;
  g.byte_class += moved;
  g.live = (const u64*)((const char*)g.live + moved);
  g.first_edge = (const int*)((const char*)g.first_edge + moved);
  g.edges = (const char*)g.edges + moved;
  g.label = (const char*)g.label + moved;
  g.plain = (const char*)g.plain + moved;
  g.flags += moved;
  g.actions = (const Action*)((const char*)g.actions + moved);
  g.symbols = (const int*)((const char*)g.symbols + moved);
  g.resume_start = (const int*)((const char*)g.resume_start + moved);
  g.resume = (const int*)((const char*)g.resume + moved);
  g.bound = (const char*)g.bound + moved;
  g.bounds = (const Bounds*)((const char*)g.bounds + moved);
  if (g.need != nullptr) g.need = (const int*)((const char*)g.need + moved);
}

// A word as the row's own limits leave it. End tokens have no bytes, and are never too short.
__device__ inline u32 limited(const Tokens& t, const Rows& r, const Start& at, int row, int word, u32 bits) {
  if (at.min_bytes > 1)
#pragma unroll 1
    for (u32 todo = bits; todo; todo &= todo - 1) {
      int lane = __ffs(todo) - 1, length = t.lengths[word * 32 + lane];
      if (length && length < at.min_bytes) bits &= ~(1u << lane);
    }
  if (at.is_restricted) bits &= r.allowed[row * t.num_words + word];
#pragma unroll 1
  for (int i = 0; i < at.num_banned; ++i) {
    int token = r.banned[row * r.banned_stride + i];
    if (token >> 5 == word) bits &= ~(1u << (token & 31));
  }
  return bits;
}

// The block's words of the row's mask, in s.words; every thread of the block calls it, and may read them afterwards.
// With `num_rows` > 1, rows in the same place are found first; returns false, and does nothing, if another block does
// the work for this row.
//
// What counts is how often memory is waited for, one after the other: loads that do not depend on each other are
// issued together, ahead of their use.
__device__ __forceinline__ bool walk_chunk(Shared& s, const Tokens& t, const Grammar* grammars, const Rows& r,
                                  int row, int chunk, int num_chunks, int num_rows) {
  Start at = start_of(r, row);
  int byte = threadIdx.x, first = chunk * (int)t.chunk_words;
  int num_words = min((int)t.chunk_words, (int)t.num_words - first);
  int begins[3], counts[3], begin_of_list[3], count_of_list[3];  // looked up before it is known which is wanted
#pragma unroll
  for (int list = 0; list < 3; ++list) {
    const int* starts = t.starts + ((i64)list * num_chunks + chunk) * 257;
    begins[list] = starts[byte], counts[list] = starts[byte + 1] - begins[list];
    begin_of_list[list] = starts[0], count_of_list[list] = starts[256] - begin_of_list[list];
  }
  Record rest = {}, tail = {};
  if (byte < count_of_list[REST]) {
    rest = t.records[begin_of_list[REST] + byte];
    tail = t.records[begin_of_list[TAIL] + byte];
  }
  int end_id = byte < t.num_ends ? t.end_ids[byte] - first * 32 : -1;
  for (int i = threadIdx.x; i < MAX_ROWS / 32; i += THREADS) s.equal[i] = 0;
  if (byte < STACK_CAP) s.stack[byte] = at.stack[byte];
  at.stack = s.stack;
  if (threadIdx.x == 0) s.missing = -1;
  bool is_walked = at.grammar >= 0 && at.state != FINISHED;
  for (int i = threadIdx.x; i < num_words; i += THREADS) {
    bool is_last = first + i == t.num_words - 1 && (t.size & 31);
    s.words[i] = at.grammar >= 0 ? 0 : is_last ? (1u << (t.size & 31)) - 1 : 0xffffffffu;
  }
  Grammar g;
  if (is_walked) {
    g = grammars[at.grammar];
    at.is_limited = g.need != nullptr && at.remaining != 0x7fffffff;
    s.byte_class[byte] = g.byte_class[byte];
    stage(g, s.room);
  }
  __syncthreads();
  if (num_rows > 1) {
    find_equal_rows(s, r, at, row, num_rows);
    __syncthreads();
    if (has_leader(s, row)) return false;
  }
  u32 plain[WORDS_A_THREAD] = {};  // wanted at the end: not waited for here
  if (is_walked) {
    PlainRun run = {MIXED, -1, 0, 0, 0};
    if (!at.is_limited) run = plain_run(g, at.state, at.counter, (int)t.longest_plain);
    List list = {ALL, 0, 0, begins[ALL], counts[ALL], rest};
    if (run.length != MIXED) {
      const u32* words = t.plain_words + t.row_of_run[run.length] * t.num_words + first;
#pragma unroll
      for (int j = 0; j < WORDS_A_THREAD; ++j)
        if (byte + j * THREADS < num_words) plain[j] = words[byte + j * THREADS];
      bool is_tail = run.chain == 0;
      list.kind = is_tail ? TAIL : REST;
      list.begin = is_tail ? begin_of_list[TAIL] : begin_of_list[REST], list.count = count_of_list[REST];
      list.count_of_byte = is_tail ? counts[TAIL] : counts[REST];
      if (is_tail) list.mine = tail;
    }
    walk_list(s, t, g, at, run, list);
  }
  if (0 <= end_id && end_id < num_words * 32) {
    Cursor c;
    place(c, at);
    if (!is_walked || (at.remaining > 0 && accepts(g, at.stack, c)))
      atomicOr(&s.words[end_id >> 5], 1u << (end_id & 31));
  }
  __syncthreads();
  bool has_limits = at.min_bytes > 1 || at.is_restricted || at.num_banned;
#pragma unroll
  for (int j = 0; j < WORDS_A_THREAD; ++j) {
    int i = byte + j * THREADS;
    if (i >= num_words) break;
    u32 bits = s.words[i] | plain[j];
    s.words[i] = has_limits ? limited(t, r, at, row, first + i, bits) : bits;
  }
  if (threadIdx.x == 0 && s.missing >= 0) {
    atomicMax(&r.missing[row], s.missing);
#pragma unroll 1
    for (int other = row + 1; other < num_rows; ++other)
      if (s.equal[other >> 5] >> (other & 31) & 1) atomicMax(&r.missing[other], s.missing);
  }
  __syncthreads();
  return true;
}
