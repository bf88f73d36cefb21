// Just enough of CUDA to run a grid on one CPU thread: each thread of a block is a fibre that runs until it meets a
// barrier or a warp operation, in ascending or, with `reversed`, descending order. A barrier that not all reach aborts.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>
#include <setjmp.h>
#include <ucontext.h>

#define __global__ __attribute__((visibility("hidden")))  // no name of a system library is taken for it
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

using std::exp;
using std::fabs;
using std::log;
using std::min;
using std::max;
using std::min;

struct Index3 {
  unsigned x, y, z;
};

enum Waiting { RUNS, AT_BLOCK, AT_WARP, DONE };

struct Fibre {
  jmp_buf place;
  Waiting waiting;
  int parity;
};

constexpr size_t MAX_THREADS = 1024, STACK_BYTES = 64 << 10;

inline Fibre fibres[MAX_THREADS];
inline size_t num_fibres;  // made so far; they are used again for every block
inline jmp_buf scheduler;
inline unsigned current_thread;
inline Index3 blockIdx, gridDim;
inline unsigned long long exchanged[2][MAX_THREADS / 32][32];
inline void (*body)(void*);
inline void* body_argument;

struct CurrentThread {
  struct X {
    operator unsigned() const { return current_thread; }
  } x;
};
inline CurrentThread threadIdx;

// Switching by setjmp: unlike swapcontext it makes no system call.
inline void wait_for(Waiting what) {
  fibres[current_thread].waiting = what;
  if (!_setjmp(fibres[current_thread].place)) _longjmp(scheduler, 1);
}

inline void resume(unsigned thread) {
  current_thread = thread;
  if (!_setjmp(scheduler)) _longjmp(fibres[thread].place, 1);
}

inline ucontext_t maker;

inline void run_fibre() {
  Fibre& mine = fibres[current_thread];
  if (!_setjmp(mine.place)) setcontext(&maker);
  for (;;) {
    body(body_argument);
    wait_for(DONE);
  }
}

inline void make_fibre(unsigned thread) {
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = malloc(STACK_BYTES);
  context.uc_stack.ss_size = STACK_BYTES;
  context.uc_link = nullptr;
  makecontext(&context, run_fibre, 0);
  current_thread = thread;
  swapcontext(&maker, &context);
}

inline void __syncthreads() { wait_for(AT_BLOCK); }
inline void __syncwarp() { wait_for(AT_WARP); }
inline void __threadfence() {}

inline bool release(Waiting what, size_t begin, size_t end) {
  bool any = false;
  for (size_t i = begin; i < end; ++i) {
    if (fibres[i].waiting == DONE) continue;
    if (fibres[i].waiting != what) return false;
    any = true;
  }
  for (size_t i = begin; any && i < end; ++i)
    if (fibres[i].waiting == what) fibres[i].waiting = RUNS;
  return any;
}

inline void run_block(unsigned threads, bool reversed) {
  while (num_fibres < threads) make_fibre(num_fibres++);
  for (unsigned i = 0; i < threads; ++i) fibres[i].waiting = RUNS, fibres[i].parity = 0;
  for (;;) {
    bool moved = false, done = true;
    for (unsigned n = 0; n < threads; ++n) {
      unsigned i = reversed ? threads - 1 - n : n;
      if (fibres[i].waiting == RUNS) {
        resume(i);
        moved = true;
      }
      done = done && fibres[i].waiting == DONE;
    }
    if (done) return;
    for (unsigned i = 0; i < threads; i += 32) moved |= release(AT_WARP, i, std::min(threads, i + 32));
    moved |= release(AT_BLOCK, 0, threads);
    if (!moved) {
      fprintf(stderr, "threads wait at different barriers\n");
      abort();
    }
  }
}

// One slot a lane, two sets used in turn: no lane is two operations ahead of another.
template <class T>
T exchange(T value, unsigned from, bool is_valid = true) {
  Fibre& f = fibres[current_thread];
  auto& slots = exchanged[f.parity ^= 1][current_thread / 32];
  unsigned long long raw = 0;
  memcpy(&raw, &value, sizeof value);
  slots[current_thread % 32] = raw;
  wait_for(AT_WARP);
  if (is_valid) memcpy(&value, &slots[from], sizeof value);
  return value;
}

template <class T>
T __shfl_up_sync(unsigned, T value, int delta) {
  int from = (int)(current_thread % 32) - delta;
  return exchange(value, from < 0 ? 0 : from, from >= 0);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) { return exchange(value, (current_thread % 32) ^ mask); }
template <class T>
T __shfl_sync(unsigned, T value, int from) { return exchange(value, from); }

inline unsigned __ballot_sync(unsigned, bool bit) {
  Fibre& f = fibres[current_thread];
  auto& slots = exchanged[f.parity ^= 1][current_thread / 32];
  slots[current_thread % 32] = bit;
  wait_for(AT_WARP);
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i) bits |= (unsigned)slots[i] << i;
  return bits;
}

template <class T, class U>
T atomicOr(T* at, U value) { T old = *at; *at = old | value; return old; }
template <class T, class U>
T atomicAdd(T* at, U value) { T old = *at; *at = old + value; return old; }
template <class T, class U>
T atomicMax(T* at, U value) { T old = *at; *at = std::max<T>(old, value); return old; }
template <class T, class U>
T atomicMin(T* at, U value) { T old = *at; *at = std::min<T>(old, value); return old; }
template <class T, class U>
T atomicExch(T* at, U value) { T old = *at; *at = value; return old; }
inline unsigned atomicInc(unsigned* at, unsigned last) { unsigned old = *at; *at = old >= last ? 0 : old + 1; return old; }

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(unsigned bits) { return __builtin_ffs((int)bits); }
inline int __clz(unsigned bits) { return bits ? __builtin_clz(bits) : 32; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline float __uint_as_float(unsigned bits) { float value; memcpy(&value, &bits, 4); return value; }
inline unsigned __float_as_uint(float value) { unsigned bits; memcpy(&bits, &value, 4); return bits; }

inline float half_to_float(unsigned short bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float value = exponent == 31  ? (fraction ? NAN : INFINITY)
                : exponent == 0 ? std::ldexp((float)fraction, -24)
                                : std::ldexp((float)(fraction + 1024), exponent - 25);
  return bits & 0x8000 ? -value : value;
}

// Call kernel f with its arguments given as 8-byte words.
template <class... A, size_t... I>
void call_with(void (*f)(A...), const long long* words, std::index_sequence<I...>) { f((A)words[I]...); }

template <class... A>
void launch_grid(void (*f)(A...), const long long* words, Index3 grid, unsigned threads, bool reversed) {
  struct Call {
    void (*f)(A...);
    const long long* words;
  } call = {f, words};
  body_argument = &call;
  body = [](void* p) { call_with(((Call*)p)->f, ((Call*)p)->words, std::index_sequence_for<A...>{}); };
  gridDim = grid;
  for (unsigned n = 0; n < grid.x * grid.y; ++n) {
    unsigned i = reversed ? grid.x * grid.y - 1 - n : n;
    blockIdx = {i % grid.x, i / grid.x, 0};
    run_block(threads, reversed);
  }
}
