// SPDX-License-Identifier: Apache-2.0
// Mutexes with clang thread-safety annotations: -Wthread-safety rejects code that touches a member
// without holding the mutex named by GPUSHARED_GUARDED_BY. clang cannot check std::mutex because
// libstdc++ does not annotate it. Other compilers see plain mutexes.
//
// Used by client_lib/, ipc/, server/ and tests/; scheduler/ has no threads. Not installed.

#ifndef GPUSHARED_MUTEX_H_
#define GPUSHARED_MUTEX_H_

#include <mutex>
#include <shared_mutex>

#if defined(__clang__)
#define GPUSHARED_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define GPUSHARED_THREAD_ANNOTATION(x)
#endif

// On a member: access requires that mutex; readers may hold it shared.
#define GPUSHARED_GUARDED_BY(mutex) GPUSHARED_THREAD_ANNOTATION(guarded_by(mutex))
// On a function or lambda: the caller holds these mutexes before and after the call.
#define GPUSHARED_REQUIRES(...) GPUSHARED_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
// On a function: the caller does not hold these mutexes, because the function acquires them.
#define GPUSHARED_EXCLUDES(...) GPUSHARED_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// On a function: acquires or releases these mutexes, or the object of the function if none is
// named.
#define GPUSHARED_ACQUIRE(...) GPUSHARED_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define GPUSHARED_ACQUIRE_SHARED(...) \
  GPUSHARED_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define GPUSHARED_TRY_ACQUIRE(...) GPUSHARED_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define GPUSHARED_RELEASE(...) GPUSHARED_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
// On a class: its objects are mutexes, or hold one from construction to destruction.
#define GPUSHARED_CAPABILITY(what) GPUSHARED_THREAD_ANNOTATION(capability(what))
#define GPUSHARED_SCOPED_CAPABILITY GPUSHARED_THREAD_ANNOTATION(scoped_lockable)
// On a function: disables the analysis. A comment there explains why the locking is correct.
#define GPUSHARED_UNCHECKED_LOCKING GPUSHARED_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace gpushared {

// std::mutex with annotations, for use with MutexLock.
class GPUSHARED_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // Acquires the mutex if no thread holds it; a MutexLock can then adopt it.
  bool TryLock() GPUSHARED_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  friend class MutexLock;
  friend class MutexUnlock;
  std::mutex mutex_;
};

// Holds a Mutex until the end of its scope. Unlock and Lock release and reacquire it before that.
class GPUSHARED_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) GPUSHARED_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  // Adopts a mutex that the thread already holds.
  MutexLock(Mutex& mutex, std::adopt_lock_t adopts) GPUSHARED_REQUIRES(mutex)
      : lock_(mutex.mutex_, adopts) {}
  ~MutexLock() GPUSHARED_RELEASE() = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() GPUSHARED_RELEASE() { lock_.unlock(); }
  void Lock() GPUSHARED_ACQUIRE() { lock_.lock(); }
  // Returns the lock for std::condition_variable, whose waits return with the mutex held, as on
  // entry.
  std::unique_lock<std::mutex>& waitable() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

// Releases a Mutex until the end of its scope, inside the scope of a MutexLock.
class GPUSHARED_SCOPED_CAPABILITY MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) GPUSHARED_RELEASE(mutex) : mutex_(mutex.mutex_) {
    mutex_.unlock();
  }
  // Reacquires the mutex. clang treats this as the release of the scoped capability.
  ~MutexUnlock() GPUSHARED_RELEASE() { mutex_.lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  std::mutex& mutex_;
};

// std::shared_mutex with annotations. Held by one WriterLock or by any number of ReaderLocks.
class GPUSHARED_CAPABILITY("mutex") SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

 private:
  friend class ReaderLock;
  friend class WriterLock;
  std::shared_mutex mutex_;
};

class GPUSHARED_SCOPED_CAPABILITY WriterLock {
 public:
  explicit WriterLock(SharedMutex& mutex) GPUSHARED_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~WriterLock() GPUSHARED_RELEASE() = default;
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  const std::lock_guard<std::shared_mutex> lock_;
};

class GPUSHARED_SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) GPUSHARED_ACQUIRE_SHARED(mutex) : lock_(mutex.mutex_) {}
  ~ReaderLock() GPUSHARED_RELEASE() = default;
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  const std::shared_lock<std::shared_mutex> lock_;
};

}  // namespace gpushared

#endif  // GPUSHARED_MUTEX_H_
