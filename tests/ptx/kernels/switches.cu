// SPDX-License-Identifier: Apache-2.0
// Branches of all shapes: switch, nested loops with break and continue, early returns.
extern "C" __global__ void choose(int* data, const int* kinds, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  int value = data[i];
  switch (kinds[i]) {
    case 0: value += 1; break;
    case 1: value *= value; break;
    case 2: value = data[value & 15]; [[fallthrough]];
    case 3: value ^= 0x5555; break;
    case 4: value = __clz(value); break;
    case 5:
      for (int round = 0; round < value; ++round) {
        if (data[round] == 3) continue;
        if (data[round] > 90) break;
        for (int inner = value; inner > 0; inner /= 3) {
          if (inner == 17) goto out;
          value -= data[inner];
        }
      }
      break;
    case 6: return;
    case 7: value = __brev(value) / (data[0] | 1); break;
    case 100: value %= 1000; break;
    default: value = -1;
  }
out:
  data[i] = value;
}
