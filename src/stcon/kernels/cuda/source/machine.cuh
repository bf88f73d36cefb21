// The control machine on a device: one byte from a configuration. Equal to `Machine.step` bit for bit.
//
// The tables differ from the host's in two ways. An edge >= 0 leads to a state that needs nothing done on entry (no
// counter, no bounds, not FINAL); an edge to any other state is an action that pushes nothing. And a row of edges holds
// the live ones alone, found by counting bits: most states spell a key or a literal and have one. So a grammar is small
// enough to be copied into a block's shared memory, where a step costs tens of cycles, not hundreds.
//
// No header is included: NVRTC compiles this text as it is, and so does a C++ compiler behind a small shim in the tests.
// Metal's compiler takes it too (stcon/kernels/mlx): there every pointer and reference names its address space.
#pragma once

#ifdef __METAL_VERSION__
#define DEVICE device
#define THREAD thread
#define CONSTANT constant
#define __device__
#define __forceinline__ inline
#define __align__(bytes) alignas(bytes)
#define __popcll(bits) ((int)popcount(bits))
typedef unsigned long u64;
typedef long i64;
#else
#define DEVICE
#define THREAD
#define CONSTANT
typedef unsigned long long u64;
typedef long long i64;
#endif
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

CONSTANT constexpr int DEAD = -1, UNBUILT = -2, ACTION = -3;
CONSTANT constexpr int FINAL = 1, RESET = 2, COUNT = 4;
CONSTANT constexpr int TEXT = 8;      // every plain character leads back to this state
CONSTANT constexpr int BOUNDED = 16;  // the counter is tested on entry
CONSTANT constexpr int FREE = 32;     // TEXT, and neither this state nor those inside characters are bounded
CONSTANT constexpr int MIXED = -2;
CONSTANT constexpr int STACK_CAP = 64, CONFIG_WORDS = 3 + STACK_CAP;
CONSTANT constexpr int FINISHED = -1;  // as a row's state: its text has ended

// status of a step: ALIVE, DIED, or 1 + the state whose row of edges is not built
CONSTANT constexpr int ALIVE = 0, DIED = -1;

// Bounds of the counter: on entry, and common to the states inside a plain character from here.
struct __align__(16) Bounds {
  int lo, hi, inside_lo, inside_hi;
};

// What an action does, and all that entering its target asks for.
struct __align__(16) Action {
  int target;
  int begin, end;  // of the symbols pushed
  int entry;       // the target's flags, and its label in the upper 24 bits
  Bounds bounds;   // the target's
};

// One grammar's tables. `tables.py` writes it. Arrays marked * hold int16 unless `is_wide`.
struct Grammar {
  const DEVICE u8* byte_class;     // [256]
  const DEVICE u64* live;          // [Q, live_words] bit k: class k has an edge
  const DEVICE int* first_edge;    // [Q] where its edges begin; UNBUILT
  const DEVICE void* edges;        // * the live edges, state by state, class by class
  const DEVICE void* label;        // * [Q]
  const DEVICE void* plain;        // * [Q] where every plain character leads; DEAD; MIXED
  const DEVICE u8* flags;          // [Q]
  const DEVICE void* bound;        // * [Q] which of `bounds`
  const DEVICE Bounds* bounds;
  const DEVICE Action* actions;    // [A]
  const DEVICE int* symbols;
  const DEVICE int* resume_start;  // [R]
  const DEVICE int* resume;
  const DEVICE int* need;          // [Q] fewest tokens to an accepted text; null: not known for this grammar
  int num_classes, live_words, is_wide;
  int num_bytes;            // of all these arrays, which begin at `byte_class`
};

// A configuration on the way: `base` symbols are left of the row's stack, which is read-only; `own` were pushed since.
// base + own never passes the cap, so `pushed` never overflows.
//
// A tracked cursor also notes for which other start counters its steps would have been the same: those in
// [least, most]; then its counter would differ by as much, if `is_relative`.
struct Cursor {
  int state, counter, base, own;
  int start, least, most;
  bool is_relative;
  int pushed[STACK_CAP];
};

__device__ __forceinline__ int narrow(const DEVICE void* table, u32 i, int is_wide) {
  return is_wide ? ((const DEVICE int*)table)[i] : ((const DEVICE short*)table)[i];
}

__device__ __forceinline__ int edge_at(const THREAD Grammar& g, int state, int k) {
  const DEVICE u64* live = g.live + (u32)(state * g.live_words);
  int index = g.first_edge[state];
  u64 word = live[k >> 6];
  if (index == UNBUILT) return UNBUILT;
  if (!(word >> (k & 63) & 1)) return DEAD;
#pragma unroll 1
  for (int i = 0; i < k >> 6; ++i) index += __popcll(live[i]);
  return narrow(g.edges, index + __popcll(word & (((u64)1 << (k & 63)) - 1)), g.is_wide);
}

__device__ __forceinline__ int label_of(const THREAD Grammar& g, int state) { return narrow(g.label, state, g.is_wide); }

__device__ __forceinline__ Bounds bounds_of(const THREAD Grammar& g, int state) {
  return g.bounds[narrow(g.bound, state, g.is_wide)];
}

__device__ __forceinline__ int height(const THREAD Cursor& c) { return c.base + c.own; }

// Pop the top symbol and say where it continues after `label`; may be DEAD.
__device__ __forceinline__ int resumed(const THREAD Grammar& g, const DEVICE int* stack, THREAD Cursor& c, int label) {
  int symbol = c.own > 0 ? c.pushed[--c.own] : stack[--c.base];
  return g.resume[g.resume_start[symbol] + label];
}

// Enter `state`, which has these flags and bounds: count, then test the counter. False where the step is undefined.
template <bool TRACKED>
__device__ __forceinline__ bool enter(THREAD Cursor& c, int state, int flags, const THREAD Bounds& b) {
  c.state = state;
  if (flags & RESET) {
    c.counter = 0;
    if (TRACKED) c.is_relative = false;
  } else if (flags & COUNT) c.counter += 1;
  if (TRACKED && c.is_relative) {
    c.least = max(c.least, b.lo - (c.counter - c.start));
    c.most = b.hi == 0x7fffffff ? c.most : min(c.most, b.hi - (c.counter - c.start));
  }
  return b.lo <= c.counter && c.counter <= b.hi;
}

// Pop, and enter what follows after `label`; `flags` become those of the state entered.
template <bool TRACKED>
__device__ __forceinline__ bool enter_resumed(const THREAD Grammar& g, const DEVICE int* stack, THREAD Cursor& c,
                                              int label, THREAD int& flags) {
  int state = resumed(g, stack, c, label);
  if (state == DEAD) return false;
  flags = g.flags[state];
  Bounds b = {0, 0x7fffffff, 0, 0};
  if (flags & BOUNDED) b = bounds_of(g, state);
  return enter<TRACKED>(c, state, flags, b);
}

// Where an action has led: the flags of the state if that is known, else 0, and its bounds.
struct Arrival {
  int flags;
  Bounds bounds;
};

// Read one byte of class k, whose edge from here is `edge`.
template <bool TRACKED>
__device__ __forceinline__ int read_edge(const THREAD Grammar& g, const DEVICE int* stack, THREAD Cursor& c, int k,
                                         int edge, THREAD Arrival& arrival) {
  arrival.flags = 0;
  int flags;
#pragma unroll 1
  while (edge == DEAD) {  // a lazy return
    int label = label_of(g, c.state);
    if (label < 0 || height(c) == 0) return DIED;
    if (!enter_resumed<TRACKED>(g, stack, c, label, flags)) return DIED;
    edge = edge_at(g, c.state, k);
  }
  if (edge == UNBUILT) return 1 + c.state;
  if (edge >= 0) {
    c.state = edge;
    return ALIVE;
  }
  const DEVICE Action& action = g.actions[ACTION - edge];
  int begin = action.begin, end = action.end, entry = action.entry;
  arrival.bounds = action.bounds;
  if (height(c) + end - begin > STACK_CAP) return DIED;
#pragma unroll 1
  for (int i = begin; i < end; ++i) c.pushed[c.own++] = g.symbols[i];
  if (!enter<TRACKED>(c, action.target, entry & 255, arrival.bounds)) return DIED;
  arrival.flags = flags = entry & 255;
  int label = entry >> 8;
#pragma unroll 1
  while ((flags & FINAL) && height(c) > 0) {  // an eager return
    arrival.flags = 0;
    if (!enter_resumed<TRACKED>(g, stack, c, label, flags)) return DIED;
    if (flags & FINAL) label = label_of(g, c.state);
  }
  return ALIVE;
}

__device__ inline int read_class(const THREAD Grammar& g, const DEVICE int* stack, THREAD Cursor& c, int k) {
  Arrival arrival;
  return read_edge<false>(g, stack, c, k, edge_at(g, c.state, k), arrival);
}

// `Machine.accepts`. The cursor is used up.
__device__ inline bool accepts(const THREAD Grammar& g, const DEVICE int* stack, THREAD Cursor& c) {
#pragma unroll 1
  for (;;) {
    int label = label_of(g, c.state);
    if (label < 0) return false;
    if (height(c) == 0) return true;
    c.state = resumed(g, stack, c, label);
    if (c.state == DEAD) return false;
  }
}

// How many of `n` plain characters can be read from a state that is TEXT, whichever they are; MIXED if that depends.
__device__ __forceinline__ int loop_length(int flags, const THREAD Bounds& b, int counter, int n) {
  if (flags & FREE) return n;
  int step = flags & COUNT ? 1 : 0, may = n, same = n;
  if (counter + step < b.lo || counter + step > b.hi) may = 0;  // what the test on entry admits
  else if (step && b.hi - counter < n) may = b.hi - counter;
  if (counter < b.inside_lo || counter > b.inside_hi) same = 0;  // what is treated alike by the states inside
  else if (step && b.inside_hi - counter < n) same = b.inside_hi - counter + 1;
  return same < may ? MIXED : may;
}

// How many plain characters can be read in a row, whichever they are, and where they lead.
struct PlainRun {
  int length;   // MIXED: it depends on the characters
  int chain;    // after so many characters the state is `state` and stays; -1: it never does
  int state;
  int counter;  // then
  int step;     // what each further character adds to it
};

// The same answer as `stcon.kernels.plain.run`, with a loop's steps taken at once.
__device__ inline PlainRun plain_run(const THREAD Grammar& g, int state, int counter, int longest) {
  PlainRun run = {longest, -1, 0, 0, 0};
#pragma unroll 1
  for (int length = 0; length < longest; ++length) {
    int next = narrow(g.plain, state, g.is_wide), flags = g.flags[state];  // of a loop both are wanted
    if (next == MIXED || next == DEAD) {
      run.length = next == DEAD ? length : MIXED;
      return run;
    }
    if (next == state) {
      int may = loop_length(flags, bounds_of(g, state), counter, longest - length);
      run.length = may == MIXED ? MIXED : length + may;
      run.chain = length, run.state = state, run.counter = counter, run.step = flags & COUNT ? 1 : 0;
      return run;
    }
    int before = counter;
    flags = g.flags[next];
    if (flags & COUNT) ++counter;
    Bounds here = bounds_of(g, state), there = bounds_of(g, next);
    if (counter < there.lo || counter > there.hi) {
      run.length = length;
      return run;
    }
    if (before < here.inside_lo || before > here.inside_hi) {
      run.length = MIXED;
      return run;
    }
    state = next;
  }
  return run;
}
