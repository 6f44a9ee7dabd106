// SPDX-License-Identifier: Apache-2.0
// Streams, events, copies, fills, and words written by streams.

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "tests/support/fake_cuda/entry_points.h"
#include "tests/support/fake_cuda/transfers.h"
#include "tests/support/fake_cuda/world.h"

namespace gpushared::device::cuda {

using testing::fake_cuda::Call;
using testing::fake_cuda::FakeEvent;
using testing::fake_cuda::FakeStream;
using testing::fake_cuda::Kind;
using testing::fake_cuda::Lock;
using testing::fake_cuda::MakeCopy;
using testing::fake_cuda::MakeFill;
using testing::fake_cuda::Mark;
using testing::fake_cuda::Needs;
using testing::fake_cuda::Number;
using testing::fake_cuda::OnDevice;
using testing::fake_cuda::OnHost;
using testing::fake_cuda::Pointer;
using testing::fake_cuda::Side;
using testing::fake_cuda::Work;
using testing::fake_cuda::World;

namespace {

// Runs `body` on the stream. Using the legacy stream is a mistake, because it and all blocking
// streams wait for each other.
template <typename Body>
Code OnStream(const char* name, Stream handle, Body&& body) {
  return Call(name, Needs::kContext, Number(handle), [&](World& world, Lock& lock) {
    if (handle == nullptr) {
      world.Mistake(std::string(name) + ": on the default stream");
      return Code::kInvalidHandle;
    }
    const auto stream = world.Get(world.streams, Number(handle), name);
    if (stream == nullptr) return Code::kInvalidHandle;
    if (stream->gpu != world.CurrentContext()->gpu) {
      world.Mistake(std::string(name) + ": the stream is another GPU's");
      return Code::kInvalidContext;
    }
    return body(world, *stream, lock);
  });
}

Code NewStream(const char* name, World& world, std::uintptr_t context, unsigned flags, int priority,
               Stream* out) {
  const auto owner = world.contexts.Find(context);
  if (flags > kStreamNonBlocking) return Code::kInvalidValue;
  if (flags != kStreamNonBlocking) {
    world.Mistake(std::string(name) + ": a stream that waits for the default one");
  }
  auto stream = std::make_shared<FakeStream>();
  stream->gpu = owner->gpu;
  stream->context = context;
  stream->priority = std::max(-5, std::min(0, priority));
  owner->gpu->streams.push_back(stream);
  *out = reinterpret_cast<Stream>(world.streams.Add(stream));
  return Code::kSuccess;
}

Code Copy(const char* name, Stream handle, const Side& to, const Side& from, std::size_t width,
          std::size_t height) {
  return OnStream(name, handle, [&](World& world, FakeStream& stream, Lock& lock) {
    if (width == 0 || height == 0) return Code::kSuccess;
    Work work;
    bool is_pageable = false;
    const Code code = MakeCopy(world, name, to, from, {width, height}, work, is_pageable);
    if (code != Code::kSuccess) return code;
    world.Submit(stream, std::move(work));
    if (!is_pageable) return Code::kSuccess;
    // The caller may reuse pageable memory at once, because real drivers copy it through their own
    // staging memory.
    ++world.pageable_copies;
    world.Await(lock, [&] { return world.SeenAt(stream); });
    return world.sticky.value_or(Code::kSuccess);
  });
}

template <typename T>
Code Fill(const char* name, Stream handle, DeviceAddress to, std::size_t pitch, T value,
          std::size_t width, std::size_t height) {
  return OnStream(name, handle, [&](World& world, FakeStream& stream, Lock&) {
    if (width == 0 || height == 0) return Code::kSuccess;
    Work work;
    const Code code = MakeFill(world, name, OnDevice(to, pitch),
                               {.value = value, .element_bytes = sizeof(T)}, {width, height}, work);
    if (code == Code::kSuccess) world.Submit(stream, std::move(work));
    return code;
  });
}

// Returns whether both the GPU and the host may access the word at `address`.
template <typename T>
bool WordFits(const World& world, DeviceAddress address) {
  return address % sizeof(T) == 0 && (world.memory.Pinned(Pointer(address), sizeof(T)) ||
                                      world.memory.Accessible(address, sizeof(T)));
}

template <typename T>
Code WriteWord(const char* name, Stream handle, DeviceAddress address, T value, unsigned flags) {
  return OnStream(name, handle, [&](World& world, FakeStream& stream, Lock&) {
    if (flags > kWriteValueNoBarrier || !WordFits<T>(world, address)) return Code::kInvalidValue;
    Work work;
    work.call = name;
    work.kind = Kind::kWrite;
    work.uses.push_back({.address = address, .bytes = sizeof(T)});
    if (world.settings.words_lost) {
      world.Submit(stream, std::move(work));
      return Code::kSuccess;
    }
    work.run = [address, value] {
      std::atomic_ref<T>(*static_cast<T*>(Pointer(address)))
          .store(value, std::memory_order_release);
      return Code::kSuccess;
    };
    world.Submit(stream, std::move(work));
    return Code::kSuccess;
  });
}

Code OnEvent(const char* name, Event handle, auto&& body) {
  return Call(name, Needs::kContext, Number(handle), [&](World& world, Lock& lock) {
    const auto event = world.Get(world.events, Number(handle), name);
    return event == nullptr ? Code::kInvalidHandle : body(world, *event, lock);
  });
}

}  // namespace

extern "C" {

Code cuStreamCreateWithPriority(Stream* stream, unsigned flags, int priority) {
  constexpr const char* kName = "cuStreamCreateWithPriority";
  return Call(kName, Needs::kContext, 0, [&](World& world, Lock&) {
    return NewStream(kName, world, World::current, flags, priority, stream);
  });
}

Code cuGreenCtxStreamCreate(Stream* stream, GreenContext green, unsigned flags, int priority) {
  constexpr const char* kName = "cuGreenCtxStreamCreate";
  return Call(kName, Needs::kInit, Number(green), [&](World& world, Lock&) {
    if (world.Get(world.contexts, Number(green), kName) == nullptr) return Code::kInvalidContext;
    if (flags != kStreamNonBlocking) return Code::kInvalidValue;
    return NewStream(kName, world, Number(green), flags, priority, stream);
  });
}

Code cuStreamDestroy_v2(Stream handle) {
  return OnStream("cuStreamDestroy", handle, [&](World& world, FakeStream& stream, Lock&) {
    stream.destroyed = true;
    world.streams.Remove(Number(handle));
    // Submitted work still runs.
    if (world.Idle(stream)) {
      std::erase_if(stream.gpu->streams, [&](const auto& one) { return one.get() == &stream; });
    }
    return Code::kSuccess;
  });
}

Code cuStreamSynchronize(Stream handle) {
  return OnStream("cuStreamSynchronize", handle, [&](World& world, FakeStream& stream, Lock& lock) {
    world.Await(lock, [&] { return world.SeenAt(stream); });
    return world.sticky.value_or(Code::kSuccess);
  });
}

Code cuStreamQuery(Stream handle) {
  return OnStream("cuStreamQuery", handle, [&](World& world, FakeStream& stream, Lock&) {
    return world.SeenAt(stream) <= World::Now() ? Code::kSuccess : Code::kNotReady;
  });
}

Code cuStreamWaitEvent(Stream handle, Event event, unsigned) {
  constexpr const char* kName = "cuStreamWaitEvent";
  return OnStream(kName, handle, [&](World& world, FakeStream& stream, Lock&) {
    const auto found = world.Get(world.events, Number(event), kName);
    if (found == nullptr) return Code::kInvalidHandle;
    Work work;
    work.call = kName;
    work.kind = Kind::kWait;
    // An event that was never recorded blocks nothing.
    if (found->mark) work.ready = [mark = found->mark] { return mark->done; };
    world.Submit(stream, std::move(work));
    return Code::kSuccess;
  });
}

Code cuEventCreate(Event* event, unsigned flags) {
  return Call("cuEventCreate", Needs::kContext, 0, [&](World& world, Lock&) {
    if (flags > (kEventBlockingSync | kEventDisableTiming)) return Code::kInvalidValue;
    auto made = std::make_shared<FakeEvent>();
    made->context = World::current;
    made->timed = (flags & kEventDisableTiming) == 0;
    *event = reinterpret_cast<Event>(world.events.Add(std::move(made)));
    return Code::kSuccess;
  });
}

Code cuEventDestroy_v2(Event handle) {
  return OnEvent("cuEventDestroy", handle, [&](World& world, FakeEvent&, Lock&) {
    world.events.Remove(Number(handle));
    return Code::kSuccess;
  });
}

Code cuEventRecord(Event handle, Stream on) {
  constexpr const char* kName = "cuEventRecord";
  return OnStream(kName, on, [&](World& world, FakeStream& stream, Lock&) {
    const auto event = world.Get(world.events, Number(handle), kName);
    if (event == nullptr) return Code::kInvalidHandle;
    if (event->context != stream.context && world.settings.green_strict) {
      return Code::kInvalidHandle;
    }
    if (event->context != stream.context && !world.contexts.Find(stream.context)->green) {
      world.Mistake("cuEventRecord: event and stream are of different contexts");
      return Code::kInvalidHandle;
    }
    event->mark = std::make_shared<Mark>();
    Work work;
    work.call = kName;
    work.kind = event->timed ? Kind::kTimedEvent : Kind::kEvent;
    work.ended = [&world, mark = event->mark] {
      mark->done = true;
      mark->at = world.GpuNow();
      if (world.settings.costs) {
        mark->seen_at = *world.work_time + std::chrono::nanoseconds(world.settings.costs->notice);
      }
    };
    world.Submit(stream, std::move(work));
    return Code::kSuccess;
  });
}

Code cuEventQuery(Event handle) {
  return OnEvent("cuEventQuery", handle, [&](World& world, FakeEvent& event, Lock&) {
    return event.mark == nullptr || world.SeenAt(*event.mark) <= World::Now() ? Code::kSuccess
                                                                              : Code::kNotReady;
  });
}

Code cuEventSynchronize(Event handle) {
  return OnEvent("cuEventSynchronize", handle, [&](World& world, FakeEvent& event, Lock& lock) {
    const std::shared_ptr<Mark> mark = event.mark;
    if (mark != nullptr) world.Await(lock, [&] { return world.SeenAt(*mark); });
    return world.sticky.value_or(Code::kSuccess);
  });
}

Code cuEventElapsedTime(float* milliseconds, Event start, Event end) {
  constexpr const char* kName = "cuEventElapsedTime";
  return OnEvent(kName, start, [&](World& world, FakeEvent& first, Lock&) {
    const auto last = world.Get(world.events, Number(end), kName);
    if (last == nullptr || !first.timed || !last->timed || !first.mark || !last->mark) {
      return Code::kInvalidHandle;
    }
    if (first.context != last->context && world.settings.green_strict) return Code::kInvalidHandle;
    if (!first.mark->done || !last->mark->done) return Code::kNotReady;
    *milliseconds =
        std::chrono::duration<float, std::milli>(last->mark->at - first.mark->at).count();
    return Code::kSuccess;
  });
}

// CUDA 13's header maps cuEventElapsedTime to this name.
Code cuEventElapsedTime_v2(float* milliseconds, Event start, Event end) {
  return cuEventElapsedTime(milliseconds, start, end);
}

Code cuLaunchHostFunc(Stream handle, HostFunction function, void* data) {
  return OnStream("cuLaunchHostFunc", handle, [&](World& world, FakeStream& stream, Lock&) {
    Work work;
    work.call = "cuLaunchHostFunc";
    work.kind = Kind::kHostFunction;
    work.run = [function, data] {
      function(data);
      return Code::kSuccess;
    };
    world.Submit(stream, std::move(work));
    return Code::kSuccess;
  });
}

// ---- copies and fills

Code cuMemcpyHtoDAsync_v2(DeviceAddress to, const void* from, std::size_t bytes, Stream stream) {
  return Copy("cuMemcpyHtoDAsync", stream, OnDevice(to), OnHost(from), bytes, 1);
}
Code cuMemcpyDtoHAsync_v2(void* to, DeviceAddress from, std::size_t bytes, Stream stream) {
  return Copy("cuMemcpyDtoHAsync", stream, OnHost(to), OnDevice(from), bytes, 1);
}
Code cuMemcpyDtoDAsync_v2(DeviceAddress to, DeviceAddress from, std::size_t bytes, Stream stream) {
  return Copy("cuMemcpyDtoDAsync", stream, OnDevice(to), OnDevice(from), bytes, 1);
}

Code cuMemcpy2DAsync_v2(const Copy2d* copy, Stream stream) {
  // According to cuda.h a specified pitch must cover the row and its x offset.
  const auto holds = [&](std::size_t pitch, std::size_t x_bytes) {
    return pitch == 0 || (copy->width_bytes <= pitch && x_bytes <= pitch - copy->width_bytes);
  };
  if (!holds(copy->source_pitch, copy->source_x_bytes) ||
      !holds(copy->destination_pitch, copy->destination_x_bytes)) {
    return Code::kInvalidValue;
  }
  Side from = copy->source_type == MemoryType::kHost
                  ? OnHost(copy->source_host, copy->source_pitch)
                  : OnDevice(copy->source_device, copy->source_pitch);
  Side to = copy->destination_type == MemoryType::kHost
                ? OnHost(copy->destination_host, copy->destination_pitch)
                : OnDevice(copy->destination_device, copy->destination_pitch);
  from.start += copy->source_y * copy->source_pitch + copy->source_x_bytes;
  to.start += copy->destination_y * copy->destination_pitch + copy->destination_x_bytes;
  return Copy("cuMemcpy2DAsync", stream, to, from, copy->width_bytes, copy->height);
}

Code cuMemsetD8Async(DeviceAddress to, unsigned char value, std::size_t count, Stream stream) {
  return Fill<std::uint8_t>("cuMemsetD8Async", stream, to, 0, value, count, 1);
}
Code cuMemsetD16Async(DeviceAddress to, unsigned short value, std::size_t count, Stream stream) {
  return Fill<std::uint16_t>("cuMemsetD16Async", stream, to, 0, value, count, 1);
}
Code cuMemsetD32Async(DeviceAddress to, unsigned value, std::size_t count, Stream stream) {
  return Fill<std::uint32_t>("cuMemsetD32Async", stream, to, 0, value, count, 1);
}
Code cuMemsetD2D8Async(DeviceAddress to, std::size_t pitch, unsigned char value, std::size_t width,
                       std::size_t height, Stream stream) {
  return Fill<std::uint8_t>("cuMemsetD2D8Async", stream, to, pitch, value, width, height);
}
Code cuMemsetD2D16Async(DeviceAddress to, std::size_t pitch, unsigned short value,
                        std::size_t width, std::size_t height, Stream stream) {
  return Fill<std::uint16_t>("cuMemsetD2D16Async", stream, to, pitch, value, width, height);
}
Code cuMemsetD2D32Async(DeviceAddress to, std::size_t pitch, unsigned value, std::size_t width,
                        std::size_t height, Stream stream) {
  return Fill<std::uint32_t>("cuMemsetD2D32Async", stream, to, pitch, value, width, height);
}

// ---- words

Code cuStreamWriteValue32_v2(Stream stream, DeviceAddress address, std::uint32_t value,
                             unsigned flags) {
  return WriteWord<std::uint32_t>("cuStreamWriteValue32", stream, address, value, flags);
}
Code cuStreamWriteValue64_v2(Stream stream, DeviceAddress address, std::uint64_t value,
                             unsigned flags) {
  return WriteWord<std::uint64_t>("cuStreamWriteValue64", stream, address, value, flags);
}

}  // extern "C"
}  // namespace gpushared::device::cuda
