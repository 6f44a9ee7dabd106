// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SUPPORT_STUCK_PAGE_H_
#define GPUSHARED_TESTS_SUPPORT_STUCK_PAGE_H_

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "ipc/unique_fd.h"

namespace gpushared::testing {

// A page of memory that is not supplied before Release: every access blocks, and a system call that
// reads the page blocks while it holds its locks. The page behaves like memory mapped from a file
// system whose daemon hangs, but is made with userfaultfd, which needs privileges.
class StuckPage {
 public:
  static constexpr std::size_t kBytes = 4096;

  StuckPage() : fault_(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC))) {
    page_ = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    uffdio_register range{};
    range.range = Range();
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    ready_ = fault_.valid() && page_ != MAP_FAILED &&
             ::ioctl(fault_.get(), UFFDIO_API, &api) == 0 &&
             ::ioctl(fault_.get(), UFFDIO_REGISTER, &range) == 0;
  }
  ~StuckPage() {
    if (page_ != MAP_FAILED) ::munmap(page_, kBytes);
  }
  StuckPage(const StuckPage&) = delete;
  StuckPage& operator=(const StuckPage&) = delete;

  // Returns false if the machine does not permit userfaultfd.
  bool ready() const { return ready_; }
  const void* data() const { return page_; }
  void Release() {
    uffdio_zeropage zero{};
    zero.range = Range();
    (void)::ioctl(fault_.get(), UFFDIO_ZEROPAGE, &zero);
  }

 private:
  uffdio_range Range() const { return {reinterpret_cast<std::uintptr_t>(page_), kBytes}; }

  ipc::UniqueFd fault_;
  void* page_ = MAP_FAILED;
  bool ready_ = false;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_STUCK_PAGE_H_
