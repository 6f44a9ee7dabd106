/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C interface of gpushared: runs kernels and copies on a device that is shared with other
 * processes. gpushared/client.h is the same interface in C++.
 *
 * Rules that hold for the whole interface:
 * - Errors. Every function that can fail returns gpushared_status_t;
 *   gpushared_last_error_message() then has the message. Output arguments are written only on
 *   success. A call that rejects its arguments has no effect. An error of the device is sticky:
 *   every later call on the stream returns the error of its first failed command, and the later
 *   commands of the stream are skipped. After a session has ended, calls return
 *   GPUSHARED_DISCONNECTED or GPUSHARED_DEVICE_LOST; they never hang. The library does not
 *   print, exit or start a thread, and handles SIGINT only if $GPUSHARED_INTERRUPT is 1.
 * - Null. A null handle or a null required pointer is GPUSHARED_INVALID_ARGUMENT. Destroy
 *   functions accept null and do nothing.
 * - Ownership. The caller owns each handle and destroys it with the matching function, in any
 *   order; the other handles remain usable. Destroying a handle does not wait: its resource is
 *   released once all commands submitted before have finished. Device and host memory belongs to
 *   its client handle and is freed with it.
 * - Threads. All handles may be used from several threads at the same time, except while a
 *   handle is being destroyed.
 * - Fork. A forked child must not use the handles of its parent: calls return
 *   GPUSHARED_WRONG_PROCESS, and destroy functions release only memory of the child. The child
 *   may open its own session.
 */
#ifndef GPUSHARED_GPUSHARED_H_
#define GPUSHARED_GPUSHARED_H_

#include <stddef.h>
#include <stdint.h>

#include "gpushared/version.h"

#ifdef __cplusplus
#define GPUSHARED_NOEXCEPT noexcept
extern "C" {
#else
#define GPUSHARED_NOEXCEPT
#endif

/* Status of a call. The numbers never change and equal gpushared::StatusCode. docs/library.md
 * says what to do about each. */
typedef enum gpushared_status_t {
  GPUSHARED_OK = 0,
  GPUSHARED_INVALID_ARGUMENT = 1,  /* No server could accept this argument in any state. */
  GPUSHARED_NOT_FOUND = 2,         /* The named kernel, file or device does not exist. */
  GPUSHARED_OUT_OF_MEMORY = 3,     /* Device memory, quota or staging memory is exhausted. */
  GPUSHARED_LIMIT_EXCEEDED = 4,    /* A limit that the message names has been reached. */
  GPUSHARED_PERMISSION_DENIED = 5, /* The access rules of the server do not allow the request. */
  GPUSHARED_UNAVAILABLE = 6,       /* No server answers, or the server is draining. */
  GPUSHARED_VERSION_MISMATCH = 7,  /* Library and server have different protocol versions. */
  GPUSHARED_DEVICE_LOST = 8,       /* The worker process and its device context have ended. */
  GPUSHARED_DISCONNECTED = 9,      /* The session has ended; nothing more will run. */
  GPUSHARED_UNSUPPORTED = 10,      /* This device does not support the operation. */
  GPUSHARED_WRONG_PROCESS = 11,    /* A forked child used the client of its parent. */
  GPUSHARED_KERNEL_FAULT = 12,     /* A kernel trapped, accessed foreign memory or ran too long. */
  GPUSHARED_CANCELLED = 13,        /* The command did not run: work that it needs has failed. */
  GPUSHARED_NOT_READY = 14,        /* The work has not finished yet; the call did not wait. */
  GPUSHARED_TIMED_OUT = 15,        /* The wait reached its time limit. */
  GPUSHARED_PROTOCOL_VIOLATION = 16, /* The peer sent bytes that no correct peer sends. */
  GPUSHARED_INTERNAL = 17            /* The system failed; the message says where. */
} gpushared_status_t;

/* Reason why a kernel was ended. The numbers are those of CUDA's CUresult and equal
 * gpushared::FaultKind. */
typedef enum gpushared_fault_t {
  GPUSHARED_FAULT_NONE = 0, /* No fault, or a kind that the device does not report. */
  GPUSHARED_FAULT_ILLEGAL_ADDRESS = 700,
  GPUSHARED_FAULT_LAUNCH_TIMEOUT = 702, /* Exceeded the time limit of its class. */
  GPUSHARED_FAULT_ASSERT = 710,
  GPUSHARED_FAULT_HARDWARE_STACK_ERROR = 714,
  GPUSHARED_FAULT_ILLEGAL_INSTRUCTION = 715,
  GPUSHARED_FAULT_MISALIGNED_ADDRESS = 716,
  GPUSHARED_FAULT_INVALID_ADDRESS_SPACE = 717,
  GPUSHARED_FAULT_INVALID_PC = 718,
  GPUSHARED_FAULT_LAUNCH_FAILURE = 719 /* A trap or any other fault. */
} gpushared_fault_t;

/* Scheduling class of a client. Smaller numbers are more urgent. */
typedef enum gpushared_class_t {
  GPUSHARED_CLASS_UNSAID = -1, /* From the environment, otherwise chosen by the server. */
  GPUSHARED_CLASS_HIGH = 0,    /* Served first; the server protects its latency. */
  GPUSHARED_CLASS_NORMAL = 1,
  GPUSHARED_CLASS_LOW = 2 /* Uses the device time that the other classes leave idle. */
} gpushared_class_t;

/* Opaque handles. The create and get functions below return them; see "Ownership" above. */
typedef struct gpushared_client gpushared_client;
typedef struct gpushared_device_list gpushared_device_list;
typedef struct gpushared_module gpushared_module;
typedef struct gpushared_kernel gpushared_kernel;
typedef struct gpushared_stream gpushared_stream;
typedef struct gpushared_event gpushared_event;
typedef struct gpushared_graph gpushared_graph;

/* Address in the device memory of one client; never 0. */
typedef uint64_t gpushared_address;

/* Options of a session. Initialize them with gpushared_client_options_init and then change
 * fields. Later versions may append fields; struct_bytes tells the library which ones exist.
 * Strings are copied. Fields that keep their initial value come from the environment, as in
 * client.h. */
typedef struct gpushared_client_options {
  size_t struct_bytes; /* sizeof(gpushared_client_options) */
  const char* name;    /* At most 63 bytes; the program's name if null or empty. */
  gpushared_class_t scheduling_class;
  uint32_t weight;             /* Weight within the class, 1 to 1000; 0: unset. */
  uint64_t latency_target_ns;  /* Latency target of a request; 0: unset. */
  const char* device;          /* Such as "cpu:0"; the least loaded device if null or empty. */
  const char* socket;          /* Path; $GPUSHARED_SOCKET or the default if null or empty. */
  int64_t spin_ns;             /* Spin time of waits; negative: as the server recommends. */
  uint64_t control_timeout_ns; /* Longest wait for an answer of the server. */
  uint32_t takes_printed;      /* 1: gpushared_take_printed returns what kernels print. */
  uint64_t memory_bytes;       /* Upper limit on device memory; 0: unset. */
  /* Called when other clients are waiting for `bytes` of this client's device memory; see
   * ClientOptions::on_memory_wanted in client.h. May be null. */
  void (*on_memory_wanted)(void* context, uint64_t bytes);
  void* on_memory_wanted_context;
} gpushared_client_options;

/* Value of a device property, and the property's number in CUDA's CUdevice_attribute. */
typedef struct gpushared_device_attribute {
  uint32_t id;
  int32_t value;
} gpushared_device_attribute;

/* Properties of a device. The pointers are valid as long as the client handle or the list that
 * they come from. */
typedef struct gpushared_device_properties {
  const char* name;
  const char* id;        /* Such as "cpu:0". */
  const char* kind;      /* "cpu" or "cuda". */
  uint64_t memory_bytes; /* Memory of the whole device. */
  uint32_t multiprocessors;
  uint32_t threads_per_block_max;
  uint32_t block_max[3]; /* Largest block: threads along x, y, z. */
  uint32_t grid_max[3];  /* Largest grid: blocks along x, y, z. */
  uint32_t shared_bytes_per_block_max;
  uint8_t uuid[16];                             /* All zero if the device has none. */
  const gpushared_device_attribute* attributes; /* In ascending order of id. */
  size_t attribute_count;
} gpushared_device_properties;

/* Memory of one client, in bytes. */
typedef struct gpushared_memory_info {
  uint64_t total_bytes;  /* Quota of this client. */
  uint64_t mapped_bytes; /* Mapped for this client so far. */
  uint64_t used_bytes;   /* Allocated, or freed but still in use by commands. */
} gpushared_memory_info;

/* Guaranteed and resident memory, in bytes, on servers that let clients hold more memory than
 * their guarantee. On other servers all memory is guaranteed. */
typedef struct gpushared_memory_guarantee {
  uint64_t guaranteed_bytes; /* The part of the quota that is available at any time. */
  uint64_t resident_bytes;   /* The part of mapped_bytes on the device, not swapped out. */
  uint64_t wanted_bytes;     /* The part of resident_bytes that other clients wait for. */
} gpushared_memory_guarantee;

/* Shape of a launch. */
typedef struct gpushared_launch_shape {
  uint32_t grid[3];              /* Blocks along x, y, z; each at least 1. */
  uint32_t block[3];             /* Threads along x, y, z; each at least 1. */
  uint32_t dynamic_shared_bytes; /* Per block, in addition to static shared memory. */
  uint32_t cluster[3];           /* Blocks per cluster along x, y, z; all 0: no clusters. */
  uint32_t is_cooperative;       /* 1: all blocks run at once; rejected if they do not fit. */
} gpushared_launch_shape;

/* Rectangle of bytes: `height` rows of `width_bytes`, with one pitch (>= width_bytes) between the
 * starts of consecutive rows. */
typedef struct gpushared_copy_shape {
  size_t width_bytes;
  size_t height;
  size_t destination_pitch_bytes;
  size_t source_pitch_bytes;
} gpushared_copy_shape;

/* Rectangle of elements: `height` rows of `width_elements`, with `pitch_bytes` between the starts
 * of consecutive rows. */
typedef struct gpushared_fill_shape {
  size_t width_elements;
  size_t height;
  size_t pitch_bytes;
} gpushared_fill_shape;

/* Place of one kernel parameter in the argument buffer. */
typedef struct gpushared_kernel_parameter {
  uint32_t offset; /* Bytes from the start of the argument buffer. */
  uint32_t bytes;
} gpushared_kernel_parameter;

/* Properties of a kernel that launches must consider. The pointers are valid as long as the kernel
 * handle. */
typedef struct gpushared_kernel_info {
  const char* name;
  const gpushared_kernel_parameter* parameters;
  size_t parameter_count;
  uint32_t parameter_bytes;     /* Size of the argument buffer. */
  uint32_t static_shared_bytes; /* Static shared memory per block. */
  uint32_t threads_per_block_max;
  const char* unsupported; /* Why this device rejects launches; "" if it can run them. */
} gpushared_kernel_info;

/* Properties of a kernel that launches need not consider. */
typedef struct gpushared_kernel_attributes {
  uint32_t registers;                /* 32-bit registers per thread. */
  uint32_t local_bytes;              /* Per thread. */
  uint32_t constant_bytes;           /* In .const variables of its module. */
  uint32_t dynamic_shared_bytes_max; /* Per block, in one launch. */
  uint32_t ptx_version;              /* Target of the PTX: 80 for sm_80; 0 if unknown. */
  uint32_t binary_version;           /* Architecture of the machine code that runs. */
} gpushared_kernel_attributes;

/* Variable of a module. The string is valid as long as the module handle. */
typedef struct gpushared_variable {
  const char* name;
  gpushared_address address;
  uint64_t bytes;
  uint32_t is_constant; /* 1: .const; 0: .global. */
} gpushared_variable;

/* ---- Errors and version ---- */

/* Returns the version of the linked library, such as "0.1.0". Static. */
const char* gpushared_version(void) GPUSHARED_NOEXCEPT;
/* Returns the name of a status, such as "OutOfMemory" or "Ok"; "Unknown" for any other number.
 * Static. */
const char* gpushared_status_name(gpushared_status_t status) GPUSHARED_NOEXCEPT;
/* Returns the message of the last failed call of this thread, "" if none has failed or if the call
 * failed with a C++ exception, such as for lack of host memory. Valid until the next failing call
 * of the thread. */
const char* gpushared_last_error_message(void) GPUSHARED_NOEXCEPT;

/* ---- Client ---- */

/* Sets every field to its default: everything unset except a control timeout of 30 s. */
void gpushared_client_options_init(gpushared_client_options* options) GPUSHARED_NOEXCEPT;
/* Opens a session on a device. `options` may be null for the defaults. Blocks for at most the
 * control timeout. The caller destroys `*client`. */
gpushared_status_t gpushared_connect(const gpushared_client_options* options,
                                     gpushared_client** client) GPUSHARED_NOEXCEPT;
/* Returns the devices of the server over a short connection that opens no session. Only the socket
 * and the control timeout of `options`, which may be null, are used. If the server is still
 * starting, waits for it. The caller destroys `*list`. */
gpushared_status_t gpushared_list_devices(const gpushared_client_options* options,
                                          gpushared_device_list** list) GPUSHARED_NOEXCEPT;
/* Returns the number of devices in the list; 0 for null. */
size_t gpushared_get_device_count(const gpushared_device_list* list) GPUSHARED_NOEXCEPT;
/* Returns device `index`; GPUSHARED_NOT_FOUND past the last one. The pointers in `*properties`
 * are valid as long as the list. */
gpushared_status_t gpushared_get_listed_device(const gpushared_device_list* list, size_t index,
                                               gpushared_device_properties* properties)
    GPUSHARED_NOEXCEPT;
void gpushared_destroy_device_list(gpushared_device_list* list) GPUSHARED_NOEXCEPT;
/* Frees the handle and all memory allocated through it. The session ends with its last handle. */
void gpushared_destroy_client(gpushared_client* client) GPUSHARED_NOEXCEPT;
/* Ends the session now, for all its handles, and wakes waiting threads. The handle must still be
 * destroyed. */
gpushared_status_t gpushared_close(gpushared_client* client) GPUSHARED_NOEXCEPT;
/* Returns GPUSHARED_OK while the session is alive, otherwise why it ended. Does not wait. */
gpushared_status_t gpushared_client_status(gpushared_client* client) GPUSHARED_NOEXCEPT;
/* Returns the properties of the session's device. */
gpushared_status_t gpushared_get_device_properties(
    gpushared_client* client, gpushared_device_properties* properties) GPUSHARED_NOEXCEPT;
/* Returns the memory of this client at this moment. */
gpushared_status_t gpushared_get_memory_info(gpushared_client* client,
                                             gpushared_memory_info* info) GPUSHARED_NOEXCEPT;
/* Returns the guaranteed and resident memory of this client at this moment. */
gpushared_status_t gpushared_get_memory_guarantee(
    gpushared_client* client, gpushared_memory_guarantee* guarantee) GPUSHARED_NOEXCEPT;
/* Releases unused memory at the end of the mapped range to the device, in a round trip that waits
 * for everything submitted before. `bytes`, which may be null, receives the number of bytes
 * released. */
gpushared_status_t gpushared_trim_device(gpushared_client* client,
                                         uint64_t* bytes) GPUSHARED_NOEXCEPT;
/* Returns the number of the session, as gpusharedctl shows it. */
gpushared_status_t gpushared_get_session_id(gpushared_client* client,
                                            uint64_t* session_id) GPUSHARED_NOEXCEPT;
/* Blocks until everything queued so far on all streams has finished. Returns the error of the
 * failed stream with the lowest number. */
gpushared_status_t gpushared_synchronize(gpushared_client* client) GPUSHARED_NOEXCEPT;

/* Copies text that kernels have printed to `text`, oldest first: at most `capacity` bytes (at least
 * 1), without a terminator. `*bytes` receives the number of bytes, 0 if no text is left. Includes
 * the text of all commands whose end a call has observed, and possibly more. The server keeps at
 * most 1 MiB between two calls; if more was printed, a last line states how much was lost.
 * GPUSHARED_INVALID_ARGUMENT unless options.takes_printed was set. */
gpushared_status_t gpushared_take_printed(gpushared_client* client, char* text, size_t capacity,
                                          size_t* bytes) GPUSHARED_NOEXCEPT;

/* ---- Modules and kernels ---- */

/* Loads `bytes` bytes of PTX text or a fatbin. A round trip in which the server compiles the
 * module. The caller may free `image` afterwards and destroys `*module`. */
gpushared_status_t gpushared_load_module(gpushared_client* client, const void* image, size_t bytes,
                                         gpushared_module** module) GPUSHARED_NOEXCEPT;
/* Reads the file and loads it. GPUSHARED_NOT_FOUND if it cannot be read. */
gpushared_status_t gpushared_load_module_file(gpushared_client* client, const char* path,
                                              gpushared_module** module) GPUSHARED_NOEXCEPT;
/* Destroys the handle. The module is unloaded once its kernel handles are destroyed as well. */
void gpushared_destroy_module(gpushared_module* module) GPUSHARED_NOEXCEPT;
/* Returns the number of kernels in the module. */
gpushared_status_t gpushared_get_kernel_count(gpushared_module* module,
                                              size_t* count) GPUSHARED_NOEXCEPT;
/* Returns the kernel with this name; GPUSHARED_NOT_FOUND if there is none. The caller destroys
 * `*kernel`, which keeps the module loaded. */
gpushared_status_t gpushared_get_kernel(gpushared_module* module, const char* name,
                                        gpushared_kernel** kernel) GPUSHARED_NOEXCEPT;
/* Returns kernel `index`; GPUSHARED_NOT_FOUND past the last one. The caller destroys `*kernel`. */
gpushared_status_t gpushared_get_kernel_at(gpushared_module* module, size_t index,
                                           gpushared_kernel** kernel) GPUSHARED_NOEXCEPT;
void gpushared_destroy_kernel(gpushared_kernel* kernel) GPUSHARED_NOEXCEPT;
/* Returns the properties that launches must consider. The pointers in `*info` are valid as long as
 * the kernel handle. */
gpushared_status_t gpushared_get_kernel_info(gpushared_kernel* kernel,
                                             gpushared_kernel_info* info) GPUSHARED_NOEXCEPT;
/* Returns the properties that launches need not consider. */
gpushared_status_t gpushared_get_kernel_attributes(
    gpushared_kernel* kernel, gpushared_kernel_attributes* attributes) GPUSHARED_NOEXCEPT;
/* Returns the variable with this name. GPUSHARED_NOT_FOUND if the module's PTX declares no such
 * variable or if the module is machine code without PTX. Kernels of all modules of the client,
 * copies and fills may access the variable. */
gpushared_status_t gpushared_get_variable(gpushared_module* module, const char* name,
                                          gpushared_variable* variable) GPUSHARED_NOEXCEPT;

/* ---- Memory ---- */

/* Allocates `bytes` (at least 1) of device memory, aligned to 256 bytes. */
gpushared_status_t gpushared_allocate_device(gpushared_client* client, size_t bytes,
                                             gpushared_address* address) GPUSHARED_NOEXCEPT;
/* Frees memory of gpushared_allocate_device; 0 is ignored. The memory is reused only after every
 * command submitted before has finished. */
gpushared_status_t gpushared_free_device(gpushared_client* client,
                                         gpushared_address address) GPUSHARED_NOEXCEPT;
/* Allocates `bytes` (at least 1) of host memory that copies use in place, aligned to 256 bytes. */
gpushared_status_t gpushared_allocate_host(gpushared_client* client, size_t bytes,
                                           void** memory) GPUSHARED_NOEXCEPT;
/* Frees memory of gpushared_allocate_host; null is ignored. The memory is reused only after
 * every command submitted before has finished. */
gpushared_status_t gpushared_free_host(gpushared_client* client, void* memory) GPUSHARED_NOEXCEPT;

/* ---- Streams and events ---- */

/* Creates a stream. GPUSHARED_LIMIT_EXCEEDED if 255 streams exist besides the default one. The
 * caller destroys `*stream`. */
gpushared_status_t gpushared_create_stream(gpushared_client* client,
                                           gpushared_stream** stream) GPUSHARED_NOEXCEPT;
/* Returns the default stream, which exists from the beginning of the session. The client handle
 * owns it, so it is valid as long as that handle and must not be destroyed. Null if `client` is
 * null. */
gpushared_stream* gpushared_default_stream(gpushared_client* client) GPUSHARED_NOEXCEPT;
/* Destroys the stream once the commands queued on it have ended. Does not wait for them. */
void gpushared_destroy_stream(gpushared_stream* stream) GPUSHARED_NOEXCEPT;
/* Blocks until everything queued so far has finished. Returns the error of the stream. */
gpushared_status_t gpushared_synchronize_stream(gpushared_stream* stream) GPUSHARED_NOEXCEPT;
/* Returns GPUSHARED_OK if everything queued so far has finished, GPUSHARED_NOT_READY if not, and
 * the error of the stream if it failed. */
gpushared_status_t gpushared_query_stream(gpushared_stream* stream) GPUSHARED_NOEXCEPT;
/* Returns the kind of fault, once a call has returned GPUSHARED_KERNEL_FAULT as the error of this
 * stream; GPUSHARED_FAULT_NONE before. Never waits. */
gpushared_fault_t gpushared_get_stream_fault(gpushared_stream* stream) GPUSHARED_NOEXCEPT;
/* Returns the kind of the client's first kernel fault, on any stream, once a call has returned the
 * GPUSHARED_KERNEL_FAULT of that fault; GPUSHARED_FAULT_NONE before. Never waits. */
gpushared_fault_t gpushared_get_client_fault(gpushared_client* client) GPUSHARED_NOEXCEPT;

/* Creates an event. If `timing` is not 0, gpushared_get_elapsed_time accepts the event. The
 * caller destroys `*event`. */
gpushared_status_t gpushared_create_event(gpushared_client* client, int timing,
                                          gpushared_event** event) GPUSHARED_NOEXCEPT;
void gpushared_destroy_event(gpushared_event* event) GPUSHARED_NOEXCEPT;
/* Marks the beginning of a request. latency_target_ns applies to requests, and gpusharedctl counts
 * and explains them. `age_ns` (at most one hour) is the time since the request arrived. The request
 * ends when everything that was queued on the stream before gpushared_end_request has finished.
 * Requests of one stream do not nest; the next one may begin while earlier ones still run. At most
 * 16 per client are open at a time. If 16 are open, the call waits for the end of one for which
 * gpushared_end_request has been called; if there is none, it returns GPUSHARED_LIMIT_EXCEEDED. */
gpushared_status_t gpushared_begin_request(gpushared_stream* stream,
                                           uint64_t age_ns) GPUSHARED_NOEXCEPT;
/* Marks the end of the stream's request. GPUSHARED_INVALID_ARGUMENT if none has begun. */
gpushared_status_t gpushared_end_request(gpushared_stream* stream) GPUSHARED_NOEXCEPT;
/* Announces that the next request will begin after about `in_ns`, at most one hour. */
gpushared_status_t gpushared_expect_request_in(gpushared_client* client,
                                               uint64_t in_ns) GPUSHARED_NOEXCEPT;

/* Sets the event to the point after all work that is queued on the stream now. */
gpushared_status_t gpushared_record_event(gpushared_stream* stream,
                                          gpushared_event* event) GPUSHARED_NOEXCEPT;
/* Makes later commands of the stream wait for the point at which the event is set now. */
gpushared_status_t gpushared_wait_event(gpushared_stream* stream,
                                        gpushared_event* event) GPUSHARED_NOEXCEPT;
/* Returns GPUSHARED_OK if everything before the recorded point has finished or the event was
 * never recorded, GPUSHARED_NOT_READY if not, and the error of the stream if it failed before
 * the point. */
gpushared_status_t gpushared_query_event(gpushared_event* event) GPUSHARED_NOEXCEPT;
/* Blocks until gpushared_query_event would no longer return GPUSHARED_NOT_READY, and returns its
 * result. */
gpushared_status_t gpushared_synchronize_event(gpushared_event* event) GPUSHARED_NOEXCEPT;
/* Returns the device time between two finished events with timing, negative if `end` came first.
 * GPUSHARED_NOT_READY if one has not finished. */
gpushared_status_t gpushared_get_elapsed_time(gpushared_event* start, gpushared_event* end,
                                              int64_t* elapsed_ns) GPUSHARED_NOEXCEPT;

/* ---- Commands ---- */

/* Launches `kernel`. `arguments[i]` points to the value of parameter i, which has the size of that
 * parameter and is copied before the call returns. `argument_count` must equal the number of the
 * kernel's parameters. */
gpushared_status_t gpushared_launch(gpushared_stream* stream, gpushared_kernel* kernel,
                                    const gpushared_launch_shape* shape,
                                    const void* const* arguments,
                                    size_t argument_count) GPUSHARED_NOEXCEPT;
/* As gpushared_launch, with an argument buffer that the caller has laid out. It must have
 * exactly parameter_bytes bytes. */
gpushared_status_t gpushared_launch_packed(gpushared_stream* stream, gpushared_kernel* kernel,
                                           const gpushared_launch_shape* shape,
                                           const void* parameters, size_t bytes) GPUSHARED_NOEXCEPT;

/* Copies host memory to the device. From ordinary memory, returns when `source` may be reused.
 * From memory of gpushared_allocate_host, returns immediately, and the bytes must not change
 * until the copy has finished. */
gpushared_status_t gpushared_copy_to_device(gpushared_stream* stream, gpushared_address destination,
                                            const void* source, size_t bytes) GPUSHARED_NOEXCEPT;
/* Copies device memory to the host. Into ordinary memory, returns when the bytes have arrived.
 * Into memory of gpushared_allocate_host, returns immediately. */
gpushared_status_t gpushared_copy_to_host(gpushared_stream* stream, void* destination,
                                          gpushared_address source,
                                          size_t bytes) GPUSHARED_NOEXCEPT;
/* Copies within device memory. The ranges must not overlap. */
gpushared_status_t gpushared_copy_on_device(gpushared_stream* stream, gpushared_address destination,
                                            gpushared_address source,
                                            size_t bytes) GPUSHARED_NOEXCEPT;
/* As the three copy functions above, for rectangles. */
gpushared_status_t gpushared_copy_to_device_2d(
    gpushared_stream* stream, gpushared_address destination, const void* source,
    const gpushared_copy_shape* shape) GPUSHARED_NOEXCEPT;
gpushared_status_t gpushared_copy_to_host_2d(gpushared_stream* stream, void* destination,
                                             gpushared_address source,
                                             const gpushared_copy_shape* shape) GPUSHARED_NOEXCEPT;
gpushared_status_t gpushared_copy_on_device_2d(
    gpushared_stream* stream, gpushared_address destination, gpushared_address source,
    const gpushared_copy_shape* shape) GPUSHARED_NOEXCEPT;

/* Writes the low `element_bytes` (1, 2 or 4) bytes of `value` `count` times. `destination` must
 * be aligned to the size of the element. */
gpushared_status_t gpushared_fill(gpushared_stream* stream, gpushared_address destination,
                                  uint32_t value, uint32_t element_bytes,
                                  size_t count) GPUSHARED_NOEXCEPT;
/* As gpushared_fill, for a rectangle. The pitch must be a multiple of the element size. */
gpushared_status_t gpushared_fill_2d(gpushared_stream* stream, gpushared_address destination,
                                     uint32_t value, uint32_t element_bytes,
                                     const gpushared_fill_shape* shape) GPUSHARED_NOEXCEPT;

/* ---- Graphs: a recorded sequence of commands, launched as one ---- */

/* Creates a stream that records launches, copies and fills instead of running them, at most
 * 4096. Copies to and from the host must use memory of gpushared_allocate_host, which must exist
 * as long as the graph. Waits, events, requests and synchronization are rejected because they
 * belong before or after the launch of the graph. Destroyed like any stream. */
gpushared_status_t gpushared_create_recorder(gpushared_client* client,
                                             gpushared_stream** recorder) GPUSHARED_NOEXCEPT;
/* Makes a graph of the recorded commands and empties the recorder. Waits for the server, which
 * checks every node as it checks the same command outside a graph. GPUSHARED_LIMIT_EXCEEDED
 * beyond 256 graphs, or beyond 16 MiB for all graphs of the client. */
gpushared_status_t gpushared_make_graph(gpushared_stream* recorder,
                                        gpushared_graph** graph) GPUSHARED_NOEXCEPT;
/* Destroys the graph. Launches that were submitted before still run. */
void gpushared_destroy_graph(gpushared_graph* graph) GPUSHARED_NOEXCEPT;
/* Returns the number of nodes; 0 for null. */
size_t gpushared_get_node_count(gpushared_graph* graph) GPUSHARED_NOEXCEPT;
/* Queues all nodes, in their order, on the stream, after the commands already queued there.
 * Returns immediately. */
gpushared_status_t gpushared_launch_graph(gpushared_graph* graph,
                                          gpushared_stream* stream) GPUSHARED_NOEXCEPT;
/* Replaces node `node` (counted from 0), which must be a launch, for the following launches of
 * the graph. */
gpushared_status_t gpushared_set_node_launch(gpushared_graph* graph, size_t node,
                                             gpushared_kernel* kernel,
                                             const gpushared_launch_shape* shape,
                                             const void* const* arguments,
                                             size_t argument_count) GPUSHARED_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif /* GPUSHARED_GPUSHARED_H_ */
