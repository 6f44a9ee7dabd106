// SPDX-License-Identifier: Apache-2.0
// Loads and stores of 2 and 4 elements, small integers, cache hints, video-like operations.
extern "C" __global__ void pack(const float4* in, double2* out, const uchar4* bytes, ushort2* words,
                                const longlong2* longs, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float4 v = __ldg(&in[i]);
  out[i] = make_double2(v.x + v.y, v.z * v.w);
  const uchar4 b = bytes[i];
  words[i] = make_ushort2(b.x + b.y, b.z - b.w);
  const longlong2 wide = __ldcs(&longs[i]);
  __stcg(&out[count + i], make_double2(static_cast<double>(wide.x ^ wide.y), 0.5));
  const unsigned a = __byte_perm(words[i].x, words[i].y, 0x3120);
  out[i].x += __dp4a(a, 0x01020304u, 5u) + __vabsdiffu4(a, 0x10u) + __funnelshift_l(a, 7u, i);
}
