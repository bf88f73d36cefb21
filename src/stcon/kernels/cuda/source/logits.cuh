// Logits in the three types that models give, and their order as integers.
#pragma once
#include "machine.cuh"

constexpr int FLOAT32 = 0, FLOAT16 = 1, BFLOAT16 = 2;
constexpr u32 NAN_KEY = 0xffffffffu;

#ifdef __CUDACC__
__device__ __forceinline__ float half_to_float(u16 bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
#endif

__device__ __forceinline__ float logit_at(const void* logits, i64 i, int dtype) {
  if (dtype == FLOAT32) return ((const float*)logits)[i];
  u16 bits = ((const u16*)logits)[i];
  return dtype == BFLOAT16 ? __uint_as_float((u32)bits << 16) : half_to_float(bits);
}

__device__ __forceinline__ void set_minus_infinity(void* logits, i64 i, int dtype) {
  if (dtype == FLOAT32) ((u32*)logits)[i] = 0xff800000u;
  else ((u16*)logits)[i] = dtype == BFLOAT16 ? 0xff80 : 0xfc00;
}

// Greater floats have greater keys; 0 is no float's; -0 counts as 0, so that ties go by id; NaN is the greatest.
__device__ __forceinline__ u32 key_of(float value) {
  u32 bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return NAN_KEY;
  if (bits == 0x80000000u) bits = 0;
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float value_of(u32 key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

__device__ __forceinline__ bool is_finite_key(u32 key) { return key > 0x007fffffu && key < 0xff800000u; }

// The greatest logit wins, then the lowest id. 0: no token.
__device__ __forceinline__ u64 ballot_of(u32 key, u32 id) { return (u64)key << 32 | (0xffffffffu - id); }
__device__ __forceinline__ u32 key_in(u64 best) { return best >> 32; }
__device__ __forceinline__ u32 id_in(u64 best) { return 0xffffffffu - (u32)best; }
