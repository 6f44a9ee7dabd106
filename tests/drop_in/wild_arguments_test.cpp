// SPDX-License-Identifier: Apache-2.0
// Every handler with arguments that make no sense: an error code, never a crash. Pointers that a
// call writes to are null or lead to real memory; everything else is wild.
#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/drop_in/drop_in_case.h"

namespace gpushared::drop_in {
namespace {

struct Missing {};
constexpr Missing kMissing;

constexpr int kWildRounds = 60;

class WildArgumentsTest : public DropInCase {
 protected:
  WildArgumentsTest() : room_(1 << 20), pointers_(4096, room_.data() + (1 << 19)) {}

  // Real handles of all kinds, which calls for other kinds get, too.
  void MakeObjects() {
    StreamHandle stream = nullptr;
    EventHandle event = nullptr;
    LibraryHandle library = nullptr;
    LinkHandle link = nullptr;
    static_cast<void>(CtxSetCurrent(context_));
    static_cast<void>(StreamCreate(&stream, 0));
    static_cast<void>(EventCreate(&event, 0));
    static_cast<void>(
        LibraryLoadData(&library, "any PTX", nullptr, nullptr, 0, nullptr, nullptr, 0));
    static_cast<void>(LinkCreate(0, nullptr, nullptr, &link));
    PoolHandle pool = nullptr;
    const PoolProperties properties = {.type = AllocationType::kPinned, .location = {}};
    static_cast<void>(MemPoolCreate(&pool, &properties));
    static_cast<void>(MemAlloc(&memory_, 4096));
    const ArrayShape shape = {.width = 8, .height = 4, .format = 0x20, .channels = 1};
    static_cast<void>(ArrayCreate(&array_, &shape));
    handles_ = {nullptr, stream, event, library, link, context_, module_, nothing_, array_, pool};
    for (const std::uint64_t wild : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3},
                                     std::uint64_t{0x6702000000100000}, ~std::uint64_t{0}}) {
      handles_.push_back(reinterpret_cast<void*>(wild));
    }
  }

  template <typename T>
  T Among(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }

  template <typename T>
  T Argument() {
    if constexpr (std::is_same_v<T, const char*>) {
      return Among<const char*>({nullptr, "", "nothing", "no such name"});
    } else if constexpr (std::is_same_v<T, const void*> || std::is_same_v<T, void*> ||
                         std::is_same_v<T, char*>) {
      return Among<T>({nullptr, reinterpret_cast<T>(room_.data())});
    } else if constexpr (std::is_same_v<T, void**>) {
      return Among<void**>({nullptr, pointers_.data()});
    } else if constexpr (std::is_pointer_v<T> && std::is_function_v<std::remove_pointer_t<T>>) {
      return nullptr;
    } else if constexpr (std::is_same_v<T, const Copy2d*> || std::is_same_v<T, const Copy3d*> ||
                         std::is_same_v<T, const LaunchConfig*> ||
                         std::is_same_v<T, const ArrayShape*> ||
                         std::is_same_v<T, const ArrayShape3d*> ||
                         std::is_same_v<T, const TextureResource*> ||
                         std::is_same_v<T, const TextureMode*>) {
      return Structure<std::remove_const_t<std::remove_pointer_t<T>>>();
    } else if constexpr (IsHandle<T>) {
      return reinterpret_cast<T>(handles_[random_() % handles_.size()]);
    } else if constexpr (std::is_pointer_v<T>) {
      return Among<T>({nullptr, reinterpret_cast<T>(room_.data())});
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      return Among<T>({0, 1, 16, 64, memory_, memory_ + 4095, ~T{0}, ~T{0} - 4095, T{1} << 63});
    } else if constexpr (std::is_same_v<T, unsigned>) {
      // Counts of arrays that the caller owns: only those that there are.
      return Among<T>({0, 1, 2, 7});
    } else if constexpr (std::is_enum_v<T>) {
      return static_cast<T>(Among<int>({0, 1, 700, -1}));
    } else {
      return Among<T>(
          {T{0}, T{1}, T{7}, std::numeric_limits<T>::max(), std::numeric_limits<T>::lowest()});
    }
  }

  template <typename... Arguments>
  void Call(Code (*handler)(Arguments...)) {
    // Results of earlier calls must not be taken for the caller's own data.
    std::fill(room_.begin(), room_.end(), '\0');
    std::fill(pointers_.begin(), pointers_.end(), room_.data() + (1 << 19));
    static_cast<void>(handler(Argument<Arguments>()...));
  }
  void Call(Missing) {}

 private:
  // Structures of handles are never defined.
  template <typename T>
  static constexpr bool IsHandle =
      std::is_same_v<T, ContextHandle> || std::is_same_v<T, StreamHandle> ||
      std::is_same_v<T, EventHandle> || std::is_same_v<T, ModuleHandle> ||
      std::is_same_v<T, FunctionHandle> || std::is_same_v<T, LibraryHandle> ||
      std::is_same_v<T, KernelHandle> || std::is_same_v<T, LinkHandle> ||
      std::is_same_v<T, ArrayHandle> || std::is_same_v<T, PoolHandle>;

  std::size_t Size() { return Among<std::size_t>({0, 1, 64, ~std::size_t{0}}); }

  template <typename T>
  const T* Structure() {
    if (random_() % 8 == 0) return nullptr;
    static T made;
    made = {};
    if constexpr (std::is_same_v<T, LaunchConfig>) {
      made.stream = Argument<StreamHandle>();
      made.grid_x = Among<unsigned>({0, 1, ~0u});
      made.shared_bytes = Among<unsigned>({0, ~0u});
      made.attribute_count = Among<unsigned>({0, 3});
    } else if constexpr (std::is_same_v<T, ArrayShape> || std::is_same_v<T, ArrayShape3d>) {
      made.width = Size();
      made.height = Size();
      made.format = Among<int>({0, 1, 0x20, -1});
      made.channels = Among<unsigned>({0, 1, 3, 4});
      if constexpr (std::is_same_v<T, ArrayShape3d>) {
        made.depth = Size();
        made.flags = Among<unsigned>({0, 2, ~0u});
      }
    } else if constexpr (std::is_same_v<T, TextureMode>) {
      for (int& mode : made.address_modes) mode = Among<int>({0, 3, 4, -1});
      made.filter = Among<int>({0, 1, 2});
      made.flags = Among<unsigned>({0, 1, 2, ~0u});
    } else if constexpr (std::is_same_v<T, TextureResource>) {
      made.type = Among<int>({0, 1, 2, 3, 4, -1});
      if (made.type == TextureResource::kPitched) {
        made.in.pitched = {
            Argument<DevicePointer>(), Among<int>({1, 0x20, -1}), 1, Size(), Size(), Size()};
      } else if (made.type == TextureResource::kLinear) {
        made.in.linear = {Argument<DevicePointer>(), Among<int>({1, 0x20, -1}), 1, Size()};
      } else {
        made.in.array = Argument<ArrayHandle>();
      }
    } else {
      made.source_type = static_cast<decltype(made.source_type)>(Among<int>({0, 1, 2, 3, 4, 9}));
      made.destination_type =
          static_cast<decltype(made.destination_type)>(Among<int>({0, 1, 2, 3, 4, -1}));
      made.source_host = Argument<void*>();
      made.destination_host = Argument<void*>();
      made.source_device = Argument<DevicePointer>();
      made.destination_device = Argument<DevicePointer>();
      made.source_array = Argument<ArrayHandle>();
      made.destination_array = Argument<ArrayHandle>();
      made.source_y = Size();
      made.source_pitch = Size();
      made.destination_x_bytes = Size();
      made.destination_pitch = Size();
      made.width_bytes = Size();
      made.height = Size();
      if constexpr (std::is_same_v<T, Copy3d>) {
        made.depth = Size();
        made.source_z = Size();
        made.destination_height = Size();
      }
    }
    return &made;
  }

  std::mt19937_64 random_{20261122};
  std::vector<char> room_;
  std::vector<void*> pointers_;
  std::vector<void*> handles_;
  DevicePointer memory_ = 0;
  ArrayHandle array_ = nullptr;
};

TEST_F(WildArgumentsTest, AreAnsweredWithACode) {
  for (int round = 0; round < kWildRounds; ++round) {
    MakeObjects();
#define GPUSHARED_FUNCTION(name, version, symbol, stream, handler) Call(handler);
#include "client_lib/drop_in/functions.inc"
#undef GPUSHARED_FUNCTION
  }
}

}  // namespace
}  // namespace gpushared::drop_in
