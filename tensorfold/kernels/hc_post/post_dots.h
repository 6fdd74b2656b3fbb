// The body of a kernel that makes new streams and their partial products in one launch. `P_OWN(row, d)` is the
// kernel's: element d of the sublayer's output, rounded to bfloat16. Knows no sublayer.
//
// Order: those of hc_post and of hc_dots.
// Threads: a threadgroup of 32 G threads makes one chunk of 512 elements of H rows' streams and keeps it; then each
// SIMD group sums B neighbouring places for all H rows, with factors read once. Those of its first places are under way
// from the start. Grid (chunks, R / H).
  const uint width = uint(N * D), chunks = uint((N * D + 511) / 512);
  P_SHARED float held[H * 512];  // the new streams' chunk of H rows
  uint lane = thread_index_in_simdgroup, chunk = threadgroup_position_in_grid.x, first = chunk * 512u;
  uint top = threadgroup_position_in_grid.y * uint(H), start = simdgroup_index_in_threadgroup * uint(B);
  float f[16 * B];
  dots_factors<M, B, N * D>(fn, f, start, first, lane);
  // ---- new streams, rounded, written and kept
  for (uint u = thread_index_in_threadgroup; u < uint(H * 512); u += uint(32 * G)) {
    uint row = top + u / 512u, at = first + u % 512u;
    if (at < width) {
      uint j = at / uint(D), d = at % uint(D);
      float c[N], v[N];
      #pragma unroll
      for (uint i = 0u; i < uint(N); i++) {
        c[i] = p_load(comb[(row * uint(N) + i) * uint(N) + j]);
        v[i] = p_load(x[ulong(row) * width + i * uint(D) + d]);
      }
      float made = p_round_bf(spread<N>(c, v, p_load(post[row * uint(N) + j]), P_OWN(row, d)));
      p_store(out + ulong(row) * width + at, made);
      held[u] = made;
    }
  }
  P_BARRIER();
  // ---- their products with fn, B places at a time
  while (start <= uint(M)) {
    for (uint h = 0u; h < uint(H); h++) {
      float acc[B];
      #pragma unroll
      for (int b = 0; b < B; b++) acc[b] = 0.0f;
      #pragma unroll
      for (uint k = 0u; k < 16u; k++) {
        uint i = k * 32u + lane;
        if (first + i < width) dots_term<M, B>(acc, f + k * uint(B), held[h * 512u + i], start);
      }
      dots_write<M, B>(part + (ulong(top + h) * chunks + chunk) * uint(M + 1), acc, start, lane);
    }
    start += uint(G * B);
    if (start <= uint(M)) dots_factors<M, B, N * D>(fn, f, start, first, lane);
  }
