  // The body of a kernel of gathered experts, after `pairs`, `pair`, `tile`, `matrix`, `matrices`, `share` and `y` are
  // set: y[pair, n] = sum over k of w[n, k] x[pair / share, k], w the matrix of expert ids[pair] read at its place in
  // the shard. Knows no layout of pairs.
  //
  // Order, from K alone: blocks of 32 neighbours of K; p = code x of the first, then fma upwards. A running sum v = 0
  // .. LK - 1 takes blocks v, v + LK, ... as fma(p, 2^s, sum), flushed, from +0; the LK sums as a tree, neighbours
  // first, each addition flushed. LK is the largest power of two that divides K / 32, 32 at most. One rounding. The
  // bits are equal on every device for x zero, NaN or 2^-100 .. 2^100 in magnitude: what act_quant_fp8 gives is 2^-31
  // at least.
  // Threads: a lane holds sum `kl` of TN rows, a threadgroup has WN SIMD groups. The threadgroups of the first pair
  // that names an expert compute all pairs of that expert, RG of them from one read of a weight; the others leave.
  // ---- this lane's rows of the matrix, and where the matrix lies
  const uint C = uint(K) / 32u, STEPS = C / uint(LK);
  uint lane = thread_index_in_simdgroup, kl = lane % uint(LK);
  uint first = (tile * uint(WN) + simdgroup_index_in_threadgroup) * uint(32 / LK * TN);
  if (first >= uint(N)) return;
  first = first + lane / uint(LK) * uint(TN);
  int expert = ids[pair];
  uint entry = (uint(expert) * matrices + matrix) * 2u;
  ulong weights_at = place[entry] - origin[0], factors_at = place[entry + 1u] - origin[0];
  const P_DEV uchar* weights = shard + weights_at;
  const P_DEV uchar* factors = shard + factors_at;
  // ---- the pairs of this expert, 32 looked at a time; a later pair's threadgroups leave
  for (uint base = 0u; base < pairs; base += 32u) {
    uint hits = p_laneor(base + lane < pairs && ids[base + lane] == expert ? 1u << lane : 0u);
    uint below = pair >= base + 32u ? 0xffffffffu : pair > base ? (1u << (pair - base)) - 1u : 0u;
    if ((hits & below) != 0u) return;
    while (hits != 0u) {
      uint mine[RG];
      uint count = 0u;
      #pragma unroll
      for (int g = 0; g < RG; g++) {
        mine[g] = hits != 0u ? base + p_ctz(hits) : pair;
        count += hits != 0u ? 1u : 0u;
        hits = hits & (hits - 1u);
      }
      // ---- RG pairs together: PF blocks of codes loaded at a time
      float sums[RG * TN];
      #pragma unroll
      for (int i = 0; i < RG * TN; i++) sums[i] = 0.0f;
      #pragma unroll 1
      for (uint step = 0u; step < STEPS; step += uint(PF)) {
        uint4 q[PF * TN];
        uint sw[PF * TN];
        #pragma unroll
        for (int f = 0; f < PF; f++) {
          uint block = (step + uint(f)) * uint(LK) + kl;
          #pragma unroll
          for (int i = 0; i < TN; i++) {
            uint at = p_minu(first + uint(i), uint(N - 1)) * C + block;
            q[f * TN + i] = experts_codes<W>(weights + 16u * at);
            sw[f * TN + i] = factors[at];
          }
        }
        // ---- their products with x, eight elements at a time, then the scale
        #pragma unroll
        for (int f = 0; f < PF; f++) {
          uint block = (step + uint(f)) * uint(LK) + kl;
          float p[RG * TN];
          #pragma unroll
          for (int j = 0; j < 4; j++) {
            float4 wa[TN], wb[TN];
            #pragma unroll
            for (int i = 0; i < TN; i++) p_e2m1x8(p_word(q[f * TN + i], uint(j)), wa[i], wb[i]);
            #pragma unroll
            for (int g = 0; g < RG; g++) if (g == 0 || uint(g) < count) {
              float4 xa, xb;
              experts_eight<K>(x + ulong(mine[g] / share) * uint(K), block, uint(j), xa, xb);
              #pragma unroll
              for (int i = 0; i < TN; i++) {
                float a = j == 0 ? p_mul(wa[i].x, xa.x) : p_fma(wa[i].x, xa.x, p[g * TN + i]);
                a = p_fma(wa[i].y, xa.y, a);
                a = p_fma(wa[i].z, xa.z, a);
                a = p_fma(wa[i].w, xa.w, a);
                a = p_fma(wb[i].x, xb.x, a);
                a = p_fma(wb[i].y, xb.y, a);
                a = p_fma(wb[i].z, xb.z, a);
                p[g * TN + i] = p_fma(wb[i].w, xb.w, a);
              }
            }
          }
          #pragma unroll
          for (int g = 0; g < RG; g++) if (g == 0 || uint(g) < count) {
            #pragma unroll
            for (int i = 0; i < TN; i++) {
              float whole = p_mul(p[g * TN + i], P_E2M1_UNIT);
              sums[g * TN + i] = p_flush(p_fma(whole, p_ue8m0(sw[f * TN + i]), sums[g * TN + i]));
            }
          }
        }
      }
      // ---- the tree over the lanes, and y
      #pragma unroll
      for (int g = 0; g < RG; g++) if (g == 0 || uint(g) < count) {
        #pragma unroll
        for (int i = 0; i < TN; i++) {
          float total = experts_tree<LK>(sums[g * TN + i]);
          uint n = first + uint(i);
          if (kl == uint(i % LK) && n < uint(N)) p_store(y + (ulong(mine[g]) * uint(N) + n), total);
        }
      }
    }
  }
