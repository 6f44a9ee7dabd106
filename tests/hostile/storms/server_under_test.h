// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_HOSTILE_STORMS_SERVER_UNDER_TEST_H_
#define GPUSHARED_TESTS_HOSTILE_STORMS_SERVER_UNDER_TEST_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/hostile/storms/processes.h"
#include "tests/support/scratch_directory.h"

namespace gpushared::storms {

// The resources of the server's processes at one moment. Workers: all processes except the broker.
struct Holdings {
  std::uint64_t broker_bytes = 0, workers_bytes = 0;  // Resident.
  std::uint64_t broker_descriptors = 0, workers_descriptors = 0;

  std::uint64_t Bytes() const { return broker_bytes + workers_bytes; }
  std::uint64_t Descriptors() const { return broker_descriptors + workers_descriptors; }
};

// A server given by the path of its program, on the cpu device. Every user can reach its socket.
// Its memory is limited if the machine permits it. The destructor ends all its processes, whatever
// state they are in.
//
// Thread-compatible; only for a process with one thread, because it forks.
class ServerUnderTest {
 public:
  // `arguments`: additional ones. Throws std::runtime_error with the server's log if it does not
  // answer.
  ServerUnderTest(const std::string& program, const std::vector<std::string>& arguments,
                  std::uint64_t memory_limit_bytes);
  ~ServerUnderTest();
  ServerUnderTest(const ServerUnderTest&) = delete;
  ServerUnderTest& operator=(const ServerUnderTest&) = delete;

  const std::string& socket() const { return socket_; }
  const MemoryCage& cage() const { return cage_; }
  bool IsBrokerAlive() const;
  // Returns the broker's child, which is the worker; 0 if there is none at the moment.
  pid_t Worker() const;
  Holdings Measure() const;
  std::uint64_t LogBytes() const;
  // Returns the end of the log, at most `bytes` bytes.
  std::string LogTail(std::uint64_t bytes) const;

 private:
  void Stop();

  testing::ScratchDirectory directory_;
  MemoryCage cage_;
  std::string socket_;
  pid_t pid_ = -1;
};

}  // namespace gpushared::storms

#endif  // GPUSHARED_TESTS_HOSTILE_STORMS_SERVER_UNDER_TEST_H_
