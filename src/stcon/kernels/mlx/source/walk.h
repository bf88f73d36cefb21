// What one thread does: read one token from one row's configuration. Behind machine.cuh, in Metal and in CUDA alike.
//
// Statuses are those of `read_class`: ALIVE, DIED, or 1 + the state whose row of edges is not built.
#pragma once

CONSTANT constexpr int HEAD_WORDS = 20;              // of a grammar in `heads`
CONSTANT constexpr int ROW_WORDS = 1 + CONFIG_WORDS;  // a row: its grammar (-1: none), then its configuration
CONSTANT constexpr int END = -1;                      // as a token's length: it ends the output

// The vocabulary: the bytes of token t begin at bytes[starts[t]]; 0 of them: it is never admitted.
struct Vocabulary {
  const DEVICE u8* bytes;
  const DEVICE int* starts;
  const DEVICE int* lengths;
  int size;
};

// Grammar number `index`: where each of its arrays begins in `data`, in bytes, and its numbers. Budgets are the host's.
__device__ inline Grammar grammar_at(const DEVICE int* heads, const DEVICE u8* data, int index) {
  const DEVICE int* head = heads + index * HEAD_WORDS;
  Grammar g;
  g.byte_class = data + head[0];
  g.live = (const DEVICE u64*)(data + head[1]);
  g.first_edge = (const DEVICE int*)(data + head[2]);
  g.edges = data + head[3];
  g.label = data + head[4];
  g.plain = data + head[5];
  g.flags = data + head[6];
  g.bound = data + head[7];
  g.bounds = (const DEVICE Bounds*)(data + head[8]);
  g.actions = (const DEVICE Action*)(data + head[9]);
  g.symbols = (const DEVICE int*)(data + head[10]);
  g.resume_start = (const DEVICE int*)(data + head[11]);
  g.resume = (const DEVICE int*)(data + head[12]);
  g.need = nullptr;
  g.num_classes = head[14], g.live_words = head[15], g.is_wide = head[16], g.num_bytes = head[17];
  return g;
}

// Put the cursor where `config` stands.
__device__ inline void place(THREAD Cursor& c, const DEVICE int* config) {
  c.state = config[0], c.base = config[1], c.counter = config[2], c.own = 0;
}

// Read a token of the vocabulary.
__device__ inline int read_token(const THREAD Grammar& g, const THREAD Vocabulary& v, const DEVICE int* stack,
                                 THREAD Cursor& c, int token) {
  int length = v.lengths[token];
  if (length == END) {
    if (c.state != FINISHED) {
      Cursor copy = c;  // used up
      if (!accepts(g, stack, copy)) return DIED;
    }
    c.state = FINISHED, c.counter = c.base = c.own = 0;
    return ALIVE;
  }
  if (c.state == FINISHED || length == 0) return DIED;
  const DEVICE u8* bytes = v.bytes + v.starts[token];
#pragma unroll 1
  for (int i = 0; i < length; ++i) {
    int status = read_class(g, stack, c, g.byte_class[bytes[i]]);
    if (status != ALIVE) return status;
  }
  return ALIVE;
}

// Whether `token` may come next in `row`.
__device__ inline int token_status(const DEVICE int* heads, const DEVICE u8* data, const THREAD Vocabulary& v,
                                   const DEVICE int* row, int token) {
  if (row[0] < 0) return ALIVE;
  Grammar g = grammar_at(heads, data, row[0]);
  Cursor c;
  place(c, row + 1);
  return read_token(g, v, row + 4, c, token);
}

// Read `count` tokens in `row`, -1 as nothing, and write where it stands then; all are read, or none. The token that
// was not read, or -1, is written to `stopped`.
__device__ inline int advanced(const DEVICE int* heads, const DEVICE u8* data, const THREAD Vocabulary& v,
                               const DEVICE int* row, const DEVICE int* tokens, int count, DEVICE int* out,
                               DEVICE int* stopped) {
  for (int i = 0; i < ROW_WORDS; ++i) out[i] = row[i];
  *stopped = -1;
  if (row[0] < 0) return ALIVE;
  Grammar g = grammar_at(heads, data, row[0]);
  Cursor c;
  place(c, row + 1);
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    int token = tokens[i];
    if (token == -1) continue;
    int status = 0 <= token && token < v.size ? read_token(g, v, row + 4, c, token) : DIED;
    if (status == ALIVE) continue;
    *stopped = token;
    return status;
  }
  out[1] = c.state, out[2] = c.base + c.own, out[3] = c.counter;
  for (int i = 0; i < STACK_CAP; ++i) {
    if (i >= c.base) out[4 + i] = i < c.base + c.own ? c.pushed[i - c.base] : 0;
  }
  return ALIVE;
}
