// SPDX-License-Identifier: Apache-2.0
// Device-wide scans of CUB. Blocks read the results of earlier tiles, which other blocks publish:
// decoupled look-back.
#include "tests/corpus/program.h"
#include "tests/corpus/programs/temporary.h"

#include <cub/device/device_scan.cuh>

namespace gpushared::corpus {
namespace {

constexpr int kCount = 30011;

struct Larger {
  __host__ __device__ double operator()(double a, double b) const { return a < b ? b : a; }
};

// An affine map; composition does not commute, so the order of tiles matters.
struct Affine {
  unsigned factor, offset;
};
struct Compose {
  __host__ __device__ Affine operator()(Affine a, Affine b) const {
    return {a.factor * b.factor, a.offset * b.factor + b.offset};
  }
};

}  // namespace

std::string CubDeviceScan() {
  const std::vector<int> in = RandomValues<int>(kCount, 1, 1000);
  const std::vector<double> reals = RandomValues<double>(kCount, 2, 1e6);
  std::vector<Affine> maps(kCount);
  for (std::size_t i = 0; i < maps.size(); ++i) {
    maps[i] = {static_cast<unsigned>(in[i]) * 2 + 1, static_cast<unsigned>(i)};
  }
  const DeviceArray<int> d_in(in);
  const DeviceArray<double> d_reals(reals);
  const DeviceArray<Affine> d_maps(maps);
  DeviceArray<int> inclusive(kCount), exclusive(kCount);
  DeviceArray<double> largest(kCount);
  DeviceArray<Affine> composed(kCount);
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceScan::InclusiveSum(memory, bytes, d_in.data, inclusive.data, kCount);
  });
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceScan::ExclusiveSum(memory, bytes, d_in.data, exclusive.data, kCount);
  });
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceScan::InclusiveScan(memory, bytes, d_reals.data, largest.data, Larger(), kCount);
  });
  WithTemporary([&](void* memory, std::size_t& bytes) {
    cub::DeviceScan::InclusiveScan(memory, bytes, d_maps.data, composed.data, Compose(), kCount);
  });
  std::vector<int> want_inclusive(kCount), want_exclusive(kCount);
  std::vector<double> want_largest(kCount);
  std::vector<Affine> want_composed(kCount);
  int sum = 0;
  double top = reals[0];
  Affine map = {1, 0};
  for (std::size_t i = 0; i < in.size(); ++i) {
    want_exclusive[i] = sum;
    want_inclusive[i] = sum += in[i];
    want_largest[i] = top = Larger()(top, reals[i]);
    want_composed[i] = map = Compose()(map, maps[i]);
  }
  return Differs("inclusive sum", inclusive.Get(), want_inclusive) +
         Differs("exclusive sum", exclusive.Get(), want_exclusive) +
         Differs("running maximum", largest.Get(), want_largest) +
         Differs("composition", composed.Get(), want_composed);
}

}  // namespace gpushared::corpus
