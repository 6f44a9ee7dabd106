// SPDX-License-Identifier: Apache-2.0
// Calls every handler with random arguments, most of which are invalid. No call may crash. Pointers
// that a call writes to are null or point to real memory; everything else is arbitrary.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "client_lib/drop_in/current.h"
#include "tests/drop_in/drop_in_case.h"
#include "tests/support/scratch_directory.h"

namespace gpushared::drop_in {
namespace {

struct Missing {};
constexpr Missing kMissing;

constexpr int kWildRounds = 20;
constexpr int kFreshCalls =
    25;  // After this many calls, objects that they may have destroyed are created anew.
constexpr int kCountMax = 8;
constexpr std::uint64_t kStep = kMapPageBytes;

class WildArgumentsTest : public DropInCase {
 protected:
  WildArgumentsTest() : room_(1 << 20), pointers_(4096, room_.data() + (1 << 19)) {}

  // Restores state that the last call may have destroyed or replaced.
  void Restore() {
    if (calls_ % kFreshCalls == 0 || CtxSetCurrent(context_) != Code::kSuccess) Renew();
  }
  void Renew() {
    EndCaptures();
    static_cast<void>(CtxDestroy(context_));
    ASSERT_EQ(CtxCreate(&context_, 0, 0), Code::kSuccess);
    ASSERT_EQ(ModuleLoadData(&module_, "any PTX"), Code::kSuccess);
    ASSERT_EQ(ModuleGetFunction(&nothing_, module_, "nothing"), Code::kSuccess);
    MakeObjects();
  }

  // While a capture is open, most other calls are rejected.
  void EndCaptures() {
    GraphHandle graph = nullptr;
    static_cast<void>(CtxSetCurrent(context_));
    static_cast<void>(StreamEndCapture(PerThreadStream(), &graph));
    for (const StreamHandle stream : streams_) static_cast<void>(StreamDestroy(stream));
    streams_.clear();
    EXPECT_EQ(RejectWhileCapturing(), Code::kSuccess);
  }

  // Creates a real object of each kind. The handles are also passed where another kind is expected.
  void MakeObjects() {
    static_cast<void>(CtxSetCurrent(context_));
    real_ = {};
    std::get<ContextHandle>(real_) = context_;
    std::get<ModuleHandle>(real_) = module_;
    std::get<FunctionHandle>(real_) = nothing_;
    static_cast<void>(StreamCreate(&std::get<StreamHandle>(real_), 0));
    streams_.push_back(std::get<StreamHandle>(real_));
    static_cast<void>(EventCreate(&std::get<EventHandle>(real_), 0));
    auto& library = std::get<LibraryHandle>(real_);
    static_cast<void>(
        LibraryLoadData(&library, "any PTX", nullptr, nullptr, 0, nullptr, nullptr, 0));
    static_cast<void>(LibraryGetKernel(&std::get<KernelHandle>(real_), library, "nothing"));
    static_cast<void>(LinkCreate(0, nullptr, nullptr, &std::get<LinkHandle>(real_)));
    static_cast<void>(UserObjectCreate(
        &std::get<UserObjectHandle>(real_), nullptr, [](void*) {}, 1, 1));
    MakeMemory();
    MakeGraph();
    handles_.assign(1, nullptr);
    std::apply([&](auto... handle) { (handles_.push_back(handle), ...); }, real_);
    for (const std::uint64_t wild : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3},
                                     std::uint64_t{0x6702000000100000}, ~std::uint64_t{0}}) {
      handles_.push_back(reinterpret_cast<void*>(wild));
    }
  }
  void MakeMemory() {
    const PoolProperties properties = {.type = AllocationType::kPinned,
                                       .location = {LocationType::kDevice, 0}};
    static_cast<void>(MemPoolCreate(&std::get<PoolHandle>(real_), &properties));
    static_cast<void>(MemAlloc(&memory_, 4096));
    const AllocationProperties of_device = {.location = {LocationType::kDevice, 0}};
    static_cast<void>(MemCreate(&allocation_, kStep, &of_device, 0));
    static_cast<void>(MemAddressReserve(&reserved_, 2 * kStep, 0, 0, 0));
    static_cast<void>(MemMap(reserved_, kStep, 0, allocation_, 0));
    const ArrayShape shape = {.width = 8, .height = 4, .format = 0x20, .channels = 1};
    static_cast<void>(ArrayCreate(&std::get<ArrayHandle>(real_), &shape));
  }
  void MakeGraph() {
    auto& graph = std::get<GraphHandle>(real_);
    auto& node = std::get<GraphNodeHandle>(real_);
    static_cast<void>(GraphCreate(&graph, 0));
    MemoryNodeParameters parameters = {};
    parameters.pool.type = AllocationType::kPinned;
    parameters.pool.location = {LocationType::kDevice, 0};
    parameters.bytes = 64;
    static_cast<void>(GraphAddMemAllocNode(&node, graph, nullptr, 0, &parameters));
    graph_memory_ = parameters.address;
    MakeNode(node, graph);
    static_cast<void>(GraphInstantiateWithFlags(&std::get<GraphExecHandle>(real_), graph, 0));
  }
  // Adds a node of a random kind.
  void MakeNode(GraphNodeHandle& node, GraphHandle graph) {
    KernelNodeParameters launch = {};
    launch.launch.function = nothing_;
    launch.launch.grid_x = launch.launch.grid_y = launch.launch.grid_z = 1;
    launch.launch.block_x = launch.launch.block_y = launch.launch.block_z = 1;
    const FillNodeParameters fill = {.destination = memory_,
                                     .pitch_bytes = 4096,
                                     .value = 1,
                                     .element_bytes = 1,
                                     .width_elements = 16,
                                     .height = 1};
    const EventHandle event = std::get<EventHandle>(real_);
    switch (random_() % 5) {
      case 0:
        static_cast<void>(GraphAddEmptyNode(&node, graph, nullptr, 0));
        break;
      case 1:
        static_cast<void>(GraphAddKernelNode(&node, graph, nullptr, 0, &launch));
        break;
      case 2:
        static_cast<void>(GraphAddMemsetNode(&node, graph, nullptr, 0, &fill, context_));
        break;
      case 3:
        static_cast<void>(GraphAddEventRecordNode(&node, graph, nullptr, 0, event));
        break;
      default:
        static_cast<void>(GraphAddEventWaitNode(&node, graph, nullptr, 0, event));
        break;
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
                         std::is_same_v<T, const PeerCopy3d*> ||
                         std::is_same_v<T, const LaunchConfig*> ||
                         std::is_same_v<T, const ArrayShape*> ||
                         std::is_same_v<T, const AllocationProperties*> ||
                         std::is_same_v<T, const ArrayShape3d*> ||
                         std::is_same_v<T, const TextureResource*> ||
                         std::is_same_v<T, const TextureMode*> ||
                         std::is_same_v<T, const KernelNodeParametersV1*> ||
                         std::is_same_v<T, const KernelNodeParameters*> ||
                         std::is_same_v<T, const FillNodeParameters*> ||
                         std::is_same_v<T, MemoryNodeParameters*> ||
                         std::is_same_v<T, NodeParameters*> || std::is_same_v<T, CopyOperation*>) {
      return Structure<std::remove_const_t<std::remove_pointer_t<T>>>();
    } else if constexpr (std::is_same_v<T, MemoryLocation>) {
      return {static_cast<LocationType>(Among<int>({0, 1, 2, 3, 9, -1})), Among<int>({0, 7, -1})};
    } else if constexpr (IsHandle<T>) {
      if (random_() % 2 == 0) return std::get<T>(real_);
      return reinterpret_cast<T>(handles_[random_() % handles_.size()]);
    } else if constexpr (std::is_pointer_v<T>) {
      return Among<T>({nullptr, reinterpret_cast<T>(room_.data())});
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      return Among<T>({0, 1, 16, 64, memory_, memory_ + 4095, graph_memory_, allocation_, reserved_,
                       reserved_ + kStep, ~T{0}, ~T{0} - 4095, T{1} << 63});
    } else if constexpr (std::is_same_v<T, unsigned>) {
      // May be the number of elements of an array that the caller owns, so at most its actual size.
      return Among<T>({0, 1, 2, 7});
    } else if constexpr (std::is_enum_v<T>) {
      return static_cast<T>(Among<int>({0, 1, 700, -1}));
    } else {
      return Among<T>(
          {T{0}, T{1}, T{7}, std::numeric_limits<T>::max(), std::numeric_limits<T>::lowest()});
    }
  }

  // A context is current before each call. kInvalidContext is therefore accepted only from calls
  // that take a context argument, and from releasing the primary context, which may not have been
  // retained.
  template <typename... Arguments>
  void Call(Code (*handler)(Arguments...), const char* symbol) {
    Restore();
    // Results of earlier calls must not be mistaken for the caller's own data.
    std::fill(room_.begin(), room_.end(), '\0');
    std::fill(pointers_.begin(), pointers_.end(), room_.data() + (1 << 19));
    const Code code = handler(Argument<Arguments>()...);
    ++calls_;
    if (!(NamesContext<Arguments> || ...) &&
        !std::string_view(symbol).starts_with("cuDevicePrimaryCtxRelease")) {
      EXPECT_NE(code, Code::kInvalidContext)
          << symbol << " returned before it checked its arguments";
    }
  }

  // Calls all functions of the table in random order.
  void CallAll() {
    std::vector<std::function<void()>> calls;
    const auto add = [&](auto handler, const char* symbol) {
      if constexpr (!std::is_same_v<decltype(handler), Missing>) {
        calls.emplace_back([this, handler, symbol] { Call(handler, symbol); });
      }
    };
#define GPUSHARED_FUNCTION(name, version, symbol, stream, handler, gate) add(handler, #symbol);
#include "client_lib/drop_in/functions.inc"
#undef GPUSHARED_FUNCTION
    std::ranges::shuffle(calls, random_);
    for (const auto& call : calls) call();
  }

  int calls_ = 0;

 private:
  using Handles = std::tuple<ContextHandle, StreamHandle, EventHandle, ModuleHandle, FunctionHandle,
                             LibraryHandle, KernelHandle, LinkHandle, ArrayHandle, PoolHandle,
                             GraphHandle, GraphNodeHandle, GraphExecHandle, UserObjectHandle>;
  template <typename T, typename... Types>
  static constexpr bool IsOneOf(std::tuple<Types...>*) {
    return (std::is_same_v<T, Types> || ...);
  }
  template <typename T>
  static constexpr bool IsHandle = IsOneOf<T>(static_cast<Handles*>(nullptr));

  template <typename T>
  static constexpr bool NamesContext =
      std::is_same_v<T, ContextHandle> || std::is_same_v<T, const PeerCopy3d*>;

  std::size_t Size() { return Among<std::size_t>({0, 1, 64, ~std::size_t{0}}); }

  // Returns a structure of random bytes, or sometimes null.
  template <typename T>
  T* Structure() {
    if (random_() % 8 == 0) return nullptr;
    static std::array<T, kCountMax> made = {};  // Followed by zeros, for calls that take several.
    made = {};
    Fill(made[0]);
    return made.data();
  }
  void Fill(LaunchConfig& config) {
    config.stream = Argument<StreamHandle>();
    config.grid_x = Among<unsigned>({0, 1, ~0u});
    config.shared_bytes = Among<unsigned>({0, ~0u});
    config.attribute_count = Among<unsigned>({0, 3});
  }
  void Fill(AllocationProperties& memory) {
    memory.location = Argument<MemoryLocation>();
    memory.requested_handle_types = Among<int>({0, 1, 2, -1});
    memory.flags.usage = Among<unsigned short>({0, 0, 1});
  }
  void Fill(ArrayShape& shape) { FillShape(shape); }
  void Fill(ArrayShape3d& shape) {
    FillShape(shape);
    shape.depth = Size();
    shape.flags = Among<unsigned>({0, 2, ~0u});
  }
  template <typename Shape>
  void FillShape(Shape& shape) {
    shape.width = Size();
    shape.height = Size();
    shape.format = Among<int>({0, 1, 0x20, -1});
    shape.channels = Among<unsigned>({0, 1, 3, 4});
  }
  void Fill(TextureMode& texture) {
    for (int& mode : texture.address_modes) mode = Among<int>({0, 3, 4, -1});
    texture.filter = Among<int>({0, 1, 2});
    texture.flags = Among<unsigned>({0, 1, 2, ~0u});
  }
  void Fill(TextureResource& resource) {
    resource.type = Among<int>({0, 1, 2, 3, 4, -1});
    if (resource.type == TextureResource::kPitched) {
      resource.in.pitched = {
          Argument<DevicePointer>(), Among<int>({1, 0x20, -1}), 1, Size(), Size(), Size()};
    } else if (resource.type == TextureResource::kLinear) {
      resource.in.linear = {Argument<DevicePointer>(), Among<int>({1, 0x20, -1}), 1, Size()};
    } else {
      resource.in.array = Argument<ArrayHandle>();
    }
  }
  void Fill(KernelNodeParametersV1& launch) {
    launch.function = Argument<FunctionHandle>();
    launch.grid_x = launch.block_y = Among<unsigned>({0, 1, ~0u});
    launch.grid_y = launch.grid_z = launch.block_x = launch.block_z = 1;
    launch.shared_bytes = Among<unsigned>({0, ~0u});
  }
  void Fill(KernelNodeParameters& launch) {
    Fill(launch.launch);
    launch.kernel = Argument<KernelHandle>();
  }
  void Fill(FillNodeParameters& fill) {
    fill.destination = Argument<DevicePointer>();
    fill.element_bytes = Among<unsigned>({0, 1, 2, 3, 4, ~0u});
    fill.width_elements = Size();
    fill.height = Size();
    fill.pitch_bytes = Size();
  }
  void Fill(NodeParameters& node) {
    node.type = Among<int>({0, 1, 2, 4, 5, 6, 7, 8, 10, 11, 13, -1});
    if (node.type == 0) Fill(node.kernel);
    if (node.type == 1) Fill(node.copy.copy);
    if (node.type == 2) Fill(node.fill);
    if (node.type == 4) node.child.graph = Argument<GraphHandle>();
    if (node.type == 6 || node.type == 7) node.event = Argument<EventHandle>();
    if (node.type == kTypeAllocate) Fill(node.allocation);
    if (node.type == kTypeFree) node.freed = Argument<DevicePointer>();
  }
  void Fill(MemoryNodeParameters& memory) {
    memory.pool.type = static_cast<AllocationType>(Among<int>({0, 1, 1, -1}));
    memory.pool.location = Argument<MemoryLocation>();
    memory.pool.handle_types = Among<int>({0, 0, 1});
    memory.access_count = Among<std::size_t>({0, 0, 1, ~std::size_t{0}});
    memory.bytes = Size();
  }
  void Fill(Copy2d& copy) {
    copy.source_type = static_cast<MemoryType>(Among<int>({0, 1, 2, 3, 4, 9}));
    copy.destination_type = static_cast<MemoryType>(Among<int>({0, 1, 2, 3, 4, -1}));
    copy.source_host = Argument<void*>();
    copy.destination_host = Argument<void*>();
    copy.source_device = Argument<DevicePointer>();
    copy.destination_device = Argument<DevicePointer>();
    copy.source_array = Argument<ArrayHandle>();
    copy.destination_array = Argument<ArrayHandle>();
    copy.source_y = Size();
    copy.source_pitch = Size();
    copy.destination_x_bytes = Size();
    copy.destination_pitch = Size();
    copy.width_bytes = Size();
    copy.height = Size();
  }
  void Fill(CopySide& side) {
    side.type = static_cast<MemoryType>(Among<int>({0, 1, 2, 3, 4, 9, -1}));
    side.host = Argument<void*>();
    side.device = Argument<DevicePointer>();
    side.array = Argument<ArrayHandle>();
    side.context = Argument<ContextHandle>();
    for (std::size_t* const size : {&side.x_bytes, &side.y, &side.z, &side.pitch, &side.height}) {
      *size = Size();
    }
  }
  void Fill(Copy3d& copy) {
    Fill(copy.source);
    Fill(copy.destination);
    copy.width_bytes = Size();
    copy.height = Size();
    copy.depth = Size();
  }
  void Fill(CopyOperation& copy) {
    Fill(copy.source);
    Fill(copy.destination);
    copy.extent = {Size(), Among<std::size_t>({0, 1, 2, ~std::size_t{0}}), 1};
    copy.source_order = Among<int>({0, 1, 2, 3, -1});
  }
  void Fill(CopyOperand& side) {
    side.type = Among<int>({0, 1, 2, -1});
    if (side.type == CopyOperand::kArray) {
      side.in.array = {Argument<ArrayHandle>(), Size(), Size(), Size()};
    } else {
      side.in.memory = {Argument<DevicePointer>(), Size(), Size(), {}};
    }
  }
  // A different sequence in each repetition of --gtest_shuffle --gtest_repeat=N.
  std::mt19937_64 random_{20261122u +
                          static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed())};
  std::vector<char> room_;
  std::vector<void*> pointers_;
  Handles real_;
  std::vector<void*> handles_;  // Handles of all kinds; some are invalid.
  std::vector<StreamHandle> streams_;
  DevicePointer memory_ = 0;
  DevicePointer graph_memory_ = 0;
  std::uint64_t allocation_ = 0;
  DevicePointer reserved_ = 0;
};

TEST_F(WildArgumentsTest, ReturnErrorCodes) {
  // Calls write their files to the current directory.
  const testing::ScratchDirectory directory;
  std::filesystem::current_path(directory.path());
  for (int round = 0; round < kWildRounds && !HasFatalFailure(); ++round) CallAll();
  RecordProperty("calls", calls_);
}

}  // namespace
}  // namespace gpushared::drop_in
