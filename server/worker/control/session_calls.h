// SPDX-License-Identifier: Apache-2.0
// Definitions of Session's member templates. Included only by the source files of Session.

#ifndef GPUSHARED_SERVER_WORKER_CONTROL_SESSION_CALLS_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_SESSION_CALLS_H_

#include <exception>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>

#include "gpushared/status.h"

#include "ipc/wire/control.h"
#include "server/device/device.h"
#include "server/worker/control/session.h"

namespace gpushared::server {

// Device description for the handshake and for the worker's ready message.
ipc::DeviceDescription DescribeDevice(const device::DeviceInfo& info);

inline constexpr std::uint64_t kReturnStepBytes = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kReturnStepsMax = 64;
// Returns the size to which mapped memory shrinks in one slow call on the way to `wanted_bytes`.
std::uint64_t LessMapped(std::uint64_t mapped_bytes, std::uint64_t wanted_bytes);
inline constexpr std::uint64_t kGrowStepsMax = 64;
// Returns the size to which mapped memory grows in one slow call: larger by `step_bytes`, or by
// more if the growth to `wanted_bytes` would otherwise take more than kGrowStepsMax steps.
std::uint64_t MoreMapped(std::uint64_t mapped_bytes, std::uint64_t wanted_bytes,
                         std::uint64_t step_bytes);

// Size up to which a slow call is short, that is, takes at most about a millisecond.
inline constexpr std::uint64_t kShortCallBytes = std::uint64_t{16} << 20;
// Size up to which the creation of a staging buffer is short. Smaller than kShortCallBytes, because
// the creation clears the pages.
inline constexpr std::uint64_t kShortStagingBufferBytes = std::uint64_t{2} << 20;
// Part of a staging buffer that is created in one slow call. The call takes some milliseconds,
// during which new clients wait. A part is larger if the whole buffer would otherwise take more
// than kStagingPartsMax calls.
inline constexpr std::uint64_t kStagingPartBytes = std::uint64_t{8} << 20;
inline constexpr std::uint64_t kStagingPartsMax = 64;

// Returns the Result of `work`; exceptions of libraries are converted to a Status.
template <typename Work>
auto CallGuarded(Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "the server has no memory left");
  } catch (const std::exception& error) {
    return Status(StatusCode::kInternal, error.what());
  }
}

template <typename Work, typename Done>
void Session::MakeSlowCall(Work work, Done done) {
  MakeSlowCallAs(caller(), std::move(work), std::move(done));
}

template <typename Work, typename Done>
void Session::MakeSlowCallFor(std::uint64_t bytes, Work work, Done done) {
  MakeShortOrLongCall(bytes <= kShortCallBytes, std::move(work), std::move(done));
}

template <typename Work, typename Done>
void Session::MakeShortOrLongCall(bool is_short, Work work, Done done) {
  MakeSlowCallAs(GetCaller(is_short), std::move(work), std::move(done));
}

template <typename Work, typename Done>
void Session::MakeSlowSteps(const SlowCalls::Caller& whose, Work work, Done done) {
  ++slow_calls_;
  environment_.slow_calls.Post(
      whose,
      [self = shared_from_this(), work = std::move(work),
       done = std::move(done)]() mutable -> bool {
        auto result = CallGuarded(work);
        if (!result && !self->has_ended_) return true;
        // The session has ended, so the result is no longer needed.
        if (!result) result = Status(StatusCode::kDisconnected, "the client has left");
        boost::asio::io_context& context = self->environment_.context;
        boost::asio::post(context, [self = std::move(self), result = *std::move(result),
                                    done = std::move(done)]() mutable {
          --self->slow_calls_;
          done(*self, std::move(result));
        });
        return false;
      });
}

template <typename Work, typename Done>
void Session::MakeSlowCallAs(const SlowCalls::Caller& whose, Work work, Done done) {
  ++slow_calls_;
  // `self` moves into the posted handler, so that the thread of slow calls never drops the last
  // reference: the session must be destroyed on the control thread.
  environment_.slow_calls.Post(
      whose, [self = shared_from_this(), work = std::move(work), done = std::move(done)]() mutable {
        auto result = CallGuarded(work);
        boost::asio::io_context& context = self->environment_.context;
        boost::asio::post(context, [self = std::move(self), result = std::move(result),
                                    done = std::move(done)]() mutable {
          --self->slow_calls_;
          done(*self, std::move(result));
        });
      });
}

template <typename T>
void Session::Reply(const T& message, std::vector<ipc::UniqueFd> fds) {
  is_request_open_ = false;
  if (has_ended_) return;
  if (Status status = outbox_.Add(request_, message, std::move(fds)); !status.ok()) {
    return End(std::move(status));
  }
  FlushOutbox();
}

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_SESSION_CALLS_H_
