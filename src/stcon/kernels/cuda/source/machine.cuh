// The control machine on a device: one byte from a configuration. Equal to `Machine.step` bit for bit.
//
// The tables differ from the host's in one way: an edge >= 0 leads to a state that needs nothing done on entry (no
// counter, no bounds, not FINAL); an edge to any other state is an action that pushes nothing. So the common byte costs
// two loads and a comparison, and everything else is on the slow path, `read_class`.
//
// No header is included: NVRTC compiles this text as it is, and so does a C++ compiler behind a small shim in the tests.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

constexpr int DEAD = -1, UNBUILT = -2, ACTION = -3;
constexpr int FINAL = 1, RESET = 2, COUNT = 4, LOOP = 8;
constexpr int MIXED = -2;
constexpr int STACK_CAP = 64, CONFIG_WORDS = 3 + STACK_CAP;
constexpr int FINISHED = -1;  // as a row's state: its text has ended

// status of a step: ALIVE, DIED, or 1 + the state whose row of edges is not built
constexpr int ALIVE = 0, DIED = -1;

// One grammar's tables, all fields 8 bytes. `tables.py` writes it. Arrays marked * hold int16 unless `is_wide`.
struct Grammar {
  const u8* byte_class;      // [256]
  const void* delta;         // * [Q, stride]
  const void* label;         // * [Q]
  const void* plain;         // * [Q] where every plain character leads; DEAD; MIXED
  const u8* flags;           // [Q] FINAL, RESET, COUNT; LOOP: every plain character leads back, nothing counted
  const int* lo;             // [Q] bounds of the counter on entry; null if no state has any
  const int* hi;
  const int* inside_lo;      // [Q] bounds common to the states inside a plain character from here
  const int* inside_hi;
  const int* action_target;  // [A]
  const int* action_start;   // [A + 1]
  const int* symbols;
  const int* resume_start;   // [R]
  const int* resume;
  const int* need;           // [Q] fewest tokens to an accepted text; null: not known for this grammar
  i64 stride;
  i64 is_wide;
};

// A configuration on the way: `base` symbols are left of the row's stack, which is read-only; `own` were pushed since.
// base + own never passes the cap, so `pushed` never overflows.
struct Cursor {
  int state, counter, base, own;
  int pushed[STACK_CAP];
};

__device__ __forceinline__ int narrow(const void* table, i64 i, bool is_wide) {
  return is_wide ? ((const int*)table)[i] : ((const short*)table)[i];
}

__device__ __forceinline__ int edge_at(const Grammar& g, int state, int k) {
  return narrow(g.delta, state * g.stride + k, g.is_wide);
}

__device__ __forceinline__ int label_of(const Grammar& g, int state) { return narrow(g.label, state, g.is_wide); }

__device__ __forceinline__ int height(const Cursor& c) { return c.base + c.own; }

// Pop the top symbol and say where it continues after `label`; may be DEAD.
__device__ __forceinline__ int resumed(const Grammar& g, const int* stack, Cursor& c, int label) {
  int symbol = c.own > 0 ? c.pushed[--c.own] : stack[--c.base];
  return g.resume[g.resume_start[symbol] + label];
}

// Enter `state`: count, then test the counter. False where the step is undefined.
__device__ __forceinline__ bool enter(const Grammar& g, Cursor& c, int state) {
  if (state == DEAD) return false;
  c.state = state;
  int flags = g.flags[state];
  if (flags & RESET) c.counter = 0;
  else if (flags & COUNT) c.counter += 1;
  return g.lo == nullptr || (g.lo[state] <= c.counter && c.counter <= g.hi[state]);
}

// Read one byte of class k.
__device__ inline int read_class(const Grammar& g, const int* stack, Cursor& c, int k) {
  int edge = edge_at(g, c.state, k);
  while (edge == DEAD) {  // a lazy return
    int label = label_of(g, c.state);
    if (label < 0 || height(c) == 0) return DIED;
    if (!enter(g, c, resumed(g, stack, c, label))) return DIED;
    edge = edge_at(g, c.state, k);
  }
  if (edge == UNBUILT) return 1 + c.state;
  if (edge >= 0) {
    c.state = edge;
    return ALIVE;
  }
  int action = ACTION - edge;
  int begin = g.action_start[action], end = g.action_start[action + 1];
  if (height(c) + end - begin > STACK_CAP) return DIED;
  for (int i = begin; i < end; ++i) c.pushed[c.own++] = g.symbols[i];
  if (!enter(g, c, g.action_target[action])) return DIED;
  while ((g.flags[c.state] & FINAL) && height(c) > 0)  // an eager return
    if (!enter(g, c, resumed(g, stack, c, label_of(g, c.state)))) return DIED;
  return ALIVE;
}

// `Machine.accepts`. The cursor is used up.
__device__ inline bool accepts(const Grammar& g, const int* stack, Cursor& c) {
  for (;;) {
    int label = label_of(g, c.state);
    if (label < 0) return false;
    if (height(c) == 0) return true;
    c.state = resumed(g, stack, c, label);
    if (c.state == DEAD) return false;
  }
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
__device__ inline PlainRun plain_run(const Grammar& g, int state, int counter, int longest) {
  PlainRun run = {longest, -1, 0, 0, 0};
  for (int length = 0; length < longest; ++length) {
    int next = narrow(g.plain, state, g.is_wide);
    if (next == MIXED || next == DEAD) {
      run.length = next == DEAD ? length : MIXED;
      return run;
    }
    int step = (g.flags[next] & COUNT) ? 1 : 0;
    int lo = 0, hi = 0x7fffffff, inside_lo = 0, inside_hi = 0x7fffffff;
    if (g.lo != nullptr) {
      lo = g.lo[next], hi = g.hi[next];
      inside_lo = g.inside_lo[state], inside_hi = g.inside_hi[state];
    }
    if (next != state) {
      counter += step;
      if (counter < lo || counter > hi) {
        run.length = length;
        return run;
      }
      if (counter - step < inside_lo || counter - step > inside_hi) {
        run.length = MIXED;
        return run;
      }
      state = next;
      continue;
    }
    // a loop: `may` characters pass the test on entry, `same` of them are treated alike inside
    int left = longest - length, may = left, same = left;
    if (counter + step < lo || counter + step > hi) may = 0;
    else if (step && hi - counter < left) may = hi - counter;
    if (counter < inside_lo || counter > inside_hi) same = 0;
    else if (step && inside_hi - counter < left) same = inside_hi - counter + 1;
    run.length = same < may ? MIXED : length + may;
    run.chain = length, run.state = state, run.counter = counter, run.step = step;
    return run;
  }
  return run;
}
