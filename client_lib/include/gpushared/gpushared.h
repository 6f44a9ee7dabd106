/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C interface of gpushared: run kernels and copies on a device that other
 * processes use too. gpushared/client.h is the same in C++.
 *
 * What holds everywhere:
 * - Errors. Every function that can fail returns gpushared_status_t; then
 *   gpushared_last_error_message() has the sentence. Output arguments are written
 *   only on success. A call that rejects its arguments changes nothing. An error of
 *   the device is sticky: the first failed command of a stream is returned by every
 *   later call on that stream, and the stream's later commands are skipped. A session
 *   that has ended answers GPUSHARED_DISCONNECTED or GPUSHARED_DEVICE_LOST; no call
 *   hangs. Nothing here prints, exits, starts a thread or installs a signal handler.
 * - Null. A null handle or a null required pointer is GPUSHARED_INVALID_ARGUMENT;
 *   destroy functions accept null and do nothing.
 * - Ownership. Handles are owned by the caller and given back with the matching
 *   destroy function, in any order; other handles stay usable. Destroying does not wait:
 *   the resource is given back when all commands submitted before are done. Device and
 *   host memory belongs to its client handle and ends with it.
 * - Threads. All handles may be used from several threads at once, except that no
 *   other thread may use a handle that is being destroyed.
 * - Fork. A forked child must not use its parent's handles: calls return
 *   GPUSHARED_WRONG_PROCESS, destroy functions release only the child's memory. The child may
 *   connect anew.
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

/* Numbers never change; they equal gpushared::StatusCode. */
typedef enum gpushared_status_t {
  GPUSHARED_OK = 0,
  GPUSHARED_INVALID_ARGUMENT = 1,    /* No server in any state could accept this argument. */
  GPUSHARED_NOT_FOUND = 2,           /* The named kernel, file or device does not exist. */
  GPUSHARED_OUT_OF_MEMORY = 3,       /* Device memory, quota or staging memory is used up. */
  GPUSHARED_LIMIT_EXCEEDED = 4,      /* A named limit (streams, modules, ...) is reached. */
  GPUSHARED_PERMISSION_DENIED = 5,   /* The access rules do not allow it. */
  GPUSHARED_UNAVAILABLE = 6,         /* No server answers, or it is draining. */
  GPUSHARED_VERSION_MISMATCH = 7,    /* Library and server speak different versions. */
  GPUSHARED_DEVICE_LOST = 8,         /* The worker and its device context are gone. */
  GPUSHARED_DISCONNECTED = 9,        /* The session has ended; nothing more will run. */
  GPUSHARED_UNSUPPORTED = 10,        /* This device cannot do it. */
  GPUSHARED_WRONG_PROCESS = 11,      /* A forked child used its parent's client. */
  GPUSHARED_KERNEL_FAULT = 12,       /* A kernel trapped, left its memory or ran too long. */
  GPUSHARED_CANCELLED = 13,          /* Not run, because earlier work it depends on failed. */
  GPUSHARED_NOT_READY = 14,          /* Asked without waiting, and not finished yet. */
  GPUSHARED_TIMED_OUT = 15,          /* A bounded wait ended first. */
  GPUSHARED_PROTOCOL_VIOLATION = 16, /* The peer sent bytes that no honest peer sends. */
  GPUSHARED_INTERNAL = 17            /* The machine failed us; the message says where. */
} gpushared_status_t;

/* What a kernel did that ended it. The numbers are those of CUDA's CUresult and equal
 * gpushared::FaultKind. */
typedef enum gpushared_fault_t {
  GPUSHARED_FAULT_NONE = 0, /* No kernel fault, or of a kind that the device does not tell. */
  GPUSHARED_FAULT_ILLEGAL_ADDRESS = 700,
  GPUSHARED_FAULT_LAUNCH_TIMEOUT = 702, /* It ran longer than the server lets its class. */
  GPUSHARED_FAULT_ASSERT = 710,
  GPUSHARED_FAULT_HARDWARE_STACK_ERROR = 714,
  GPUSHARED_FAULT_ILLEGAL_INSTRUCTION = 715,
  GPUSHARED_FAULT_MISALIGNED_ADDRESS = 716,
  GPUSHARED_FAULT_INVALID_ADDRESS_SPACE = 717,
  GPUSHARED_FAULT_INVALID_PC = 718,
  GPUSHARED_FAULT_LAUNCH_FAILURE = 719 /* A trap, and everything else. */
} gpushared_fault_t;

typedef enum gpushared_class_t {
  GPUSHARED_CLASS_UNSAID = -1, /* As the environment says, else as the server has it. */
  GPUSHARED_CLASS_HIGH = 0,    /* Served first; its latency is what the server protects. */
  GPUSHARED_CLASS_NORMAL = 1,
  GPUSHARED_CLASS_LOW = 2 /* Fills the gaps of the others. */
} gpushared_class_t;

typedef struct gpushared_client gpushared_client;
typedef struct gpushared_device_list gpushared_device_list;
typedef struct gpushared_module gpushared_module;
typedef struct gpushared_kernel gpushared_kernel;
typedef struct gpushared_stream gpushared_stream;
typedef struct gpushared_event gpushared_event;
typedef struct gpushared_graph gpushared_graph;

/* An address in the device memory of one client; 0 is no address. */
typedef uint64_t gpushared_address;

/* Set with gpushared_client_options_init, then change what is wanted: fields may be
 * added at the end, and struct_bytes says which exist. Strings are copied. What is left as it is
 * set there is what the environment says, as in client.h. */
typedef struct gpushared_client_options {
  size_t struct_bytes; /* sizeof(gpushared_client_options) */
  const char* name;    /* At most 63 bytes; null or empty: the program's name. */
  gpushared_class_t scheduling_class;
  uint32_t weight;             /* Share inside the class, 1 to 1000; 0: unsaid. */
  uint64_t latency_target_ns;  /* 0: none. */
  const char* device;          /* "cpu:0"; null or empty: the least loaded. */
  const char* socket;          /* null or empty: $GPUSHARED_SOCKET, else the default path. */
  int64_t spin_ns;             /* Spin of synchronising calls; negative: as the server says. */
  uint64_t control_timeout_ns; /* Longest wait for an answer of the server. */
  uint32_t takes_printed;      /* 1: what kernels print is kept for gpushared_take_printed. */
  uint64_t memory_bytes;       /* Device memory to hold at most; 0: unsaid. */
  /* Others wait for so much of this client's device memory: see ClientOptions::on_memory_wanted in
   * client.h. May be null. */
  void (*on_memory_wanted)(void* context, uint64_t bytes);
  void* on_memory_wanted_context;
} gpushared_client_options;

/* A property under its number in CUDA's CUdevice_attribute. */
typedef struct gpushared_device_attribute {
  uint32_t id;
  int32_t value;
} gpushared_device_attribute;

/* Pointers are valid as long as the client handle, or the list, that they come from. */
typedef struct gpushared_device_properties {
  const char* name;
  const char* id;        /* "cpu:0" */
  const char* kind;      /* "cpu", "cuda" */
  uint64_t memory_bytes; /* Of the whole device. */
  uint32_t multiprocessors;
  uint32_t threads_per_block_max;
  uint32_t block_max[3]; /* Threads along x, y, z. */
  uint32_t grid_max[3];  /* Blocks along x, y, z. */
  uint32_t shared_bytes_per_block_max;
  uint8_t uuid[16];                             /* All zero where the device has none. */
  const gpushared_device_attribute* attributes; /* By ascending id. */
  size_t attribute_count;
} gpushared_device_properties;

typedef struct gpushared_memory_info {
  uint64_t total_bytes;  /* This client's quota. */
  uint64_t mapped_bytes; /* Taken from the device for this client so far. */
  uint64_t used_bytes;   /* Allocated, and freed but still in use by commands. */
} gpushared_memory_info;

/* Where clients may hold more than is guaranteed to them; elsewhere all of it is. */
typedef struct gpushared_memory_guarantee {
  uint64_t guaranteed_bytes; /* Of the quota: there at any time. */
  uint64_t resident_bytes;   /* Of what is mapped: on the device, not moved to host memory. */
  uint64_t wanted_bytes;     /* Of what is resident: others wait for it. */
} gpushared_memory_guarantee;

typedef struct gpushared_launch_shape {
  uint32_t grid[3];              /* Blocks along x, y, z; each at least 1. */
  uint32_t block[3];             /* Threads along x, y, z; each at least 1. */
  uint32_t dynamic_shared_bytes; /* Per block. */
  uint32_t cluster[3];           /* Blocks of one cluster along x, y, z; all 0: no clusters. */
  uint32_t is_cooperative; /* 1: all blocks run at the same time, or the launch is rejected. */
} gpushared_launch_shape;

/* `height` rows of `width_bytes`, whose starts lie one pitch apart (>= width_bytes). */
typedef struct gpushared_copy_shape {
  size_t width_bytes;
  size_t height;
  size_t destination_pitch_bytes;
  size_t source_pitch_bytes;
} gpushared_copy_shape;

/* `height` rows of `width_elements` elements, whose starts lie `pitch_bytes` apart. */
typedef struct gpushared_fill_shape {
  size_t width_elements;
  size_t height;
  size_t pitch_bytes;
} gpushared_fill_shape;

typedef struct gpushared_kernel_parameter {
  uint32_t offset; /* Bytes from the start of the argument buffer. */
  uint32_t bytes;
} gpushared_kernel_parameter;

/* Strings live as long as the kernel handle. */
typedef struct gpushared_kernel_info {
  const char* name;
  const gpushared_kernel_parameter* parameters;
  size_t parameter_count;
  uint32_t parameter_bytes;     /* Of the whole argument buffer. */
  uint32_t static_shared_bytes; /* Per block. */
  uint32_t threads_per_block_max;
  const char* unsupported; /* Why launches are rejected on this device; "" when it runs. */
} gpushared_kernel_info;

/* Facts about a kernel that no launch depends on. */
typedef struct gpushared_kernel_attributes {
  uint32_t registers;                /* Per thread, of 32 bits each. */
  uint32_t local_bytes;              /* Per thread. */
  uint32_t constant_bytes;           /* Of .const variables of its module. */
  uint32_t dynamic_shared_bytes_max; /* Per block, of a launch. */
  uint32_t ptx_version;              /* Architecture of its text: 80 for sm_80; 0: unknown. */
  uint32_t binary_version;           /* Architecture of the code that runs. */
} gpushared_kernel_attributes;

/* A variable of a module. The string lives as long as the module handle. */
typedef struct gpushared_variable {
  const char* name;
  gpushared_address address;
  uint64_t bytes;
  uint32_t is_constant; /* 1: .const; 0: .global. */
} gpushared_variable;

/* ---- Errors and version ---- */

/* "0.1.0", of the library that is linked. */
const char* gpushared_version(void) GPUSHARED_NOEXCEPT;
/* "OutOfMemory", "Ok"; "Unknown" for numbers that are no status. Static. */
const char* gpushared_status_name(gpushared_status_t status) GPUSHARED_NOEXCEPT;
/* The sentence of this thread's last call that failed; "" before the first. Valid until
 * the thread's next failing call. */
const char* gpushared_last_error_message(void) GPUSHARED_NOEXCEPT;

/* ---- Client ---- */

/* Defaults: class normal, weight 1, no promise, spin as the server says, 30 s. */
void gpushared_client_options_init(gpushared_client_options* options) GPUSHARED_NOEXCEPT;
/* Connects and joins a device. `options` may be null for the defaults. */
gpushared_status_t gpushared_connect(const gpushared_client_options* options,
                                     gpushared_client** client) GPUSHARED_NOEXCEPT;
/* The server's devices without joining any: a connection that is closed again. Of `options`, which
 * may be null, only socket and control timeout count. Waits while the server starts. */
gpushared_status_t gpushared_list_devices(const gpushared_client_options* options,
                                          gpushared_device_list** list) GPUSHARED_NOEXCEPT;
/* 0 for null. */
size_t gpushared_get_device_count(const gpushared_device_list* list) GPUSHARED_NOEXCEPT;
/* GPUSHARED_NOT_FOUND past the last device. */
gpushared_status_t gpushared_get_listed_device(const gpushared_device_list* list, size_t index,
                                               gpushared_device_properties* properties)
    GPUSHARED_NOEXCEPT;
void gpushared_destroy_device_list(gpushared_device_list* list) GPUSHARED_NOEXCEPT;
/* Frees the handle and all memory allocated through it. The session ends when no
 * handle of it is left. */
void gpushared_destroy_client(gpushared_client* client) GPUSHARED_NOEXCEPT;
/* Ends the session now, for all its handles, and wakes threads that wait; the handle
 * must still be destroyed. */
gpushared_status_t gpushared_close(gpushared_client* client) GPUSHARED_NOEXCEPT;
/* GPUSHARED_OK while the session lives, else why it ended. Does not wait. */
gpushared_status_t gpushared_client_status(gpushared_client* client) GPUSHARED_NOEXCEPT;
gpushared_status_t gpushared_get_device_properties(
    gpushared_client* client, gpushared_device_properties* properties) GPUSHARED_NOEXCEPT;
gpushared_status_t gpushared_get_memory_info(gpushared_client* client,
                                             gpushared_memory_info* info) GPUSHARED_NOEXCEPT;
gpushared_status_t gpushared_get_memory_guarantee(
    gpushared_client* client, gpushared_memory_guarantee* guarantee) GPUSHARED_NOEXCEPT;
/* Gives unused memory at the end of what is mapped back to the device. `bytes`, how much, may be
 * null. */
gpushared_status_t gpushared_trim_device(gpushared_client* client,
                                         uint64_t* bytes) GPUSHARED_NOEXCEPT;
/* The number that gpusharedctl shows. */
gpushared_status_t gpushared_get_session_id(gpushared_client* client,
                                            uint64_t* session_id) GPUSHARED_NOEXCEPT;
/* Blocks until everything queued so far, on all streams, has finished. */
gpushared_status_t gpushared_synchronize(gpushared_client* client) GPUSHARED_NOEXCEPT;

/* What kernels printed and no call has taken, oldest first: that of all commands whose end some
 * call has seen, and maybe more. Writes at most `capacity` bytes, without a terminator, and how
 * many into `bytes`: 0 when there is no more. At most 1 MiB is kept until a call takes it; a line
 * says how much was lost. GPUSHARED_INVALID_ARGUMENT unless options.takes_printed was set. */
gpushared_status_t gpushared_take_printed(gpushared_client* client, char* text, size_t capacity,
                                          size_t* bytes) GPUSHARED_NOEXCEPT;

/* ---- Modules and kernels ---- */

/* Loads PTX text or a fatbin of `bytes` bytes; a round trip with compilation. */
gpushared_status_t gpushared_load_module(gpushared_client* client, const void* image, size_t bytes,
                                         gpushared_module** module) GPUSHARED_NOEXCEPT;
gpushared_status_t gpushared_load_module_file(gpushared_client* client, const char* path,
                                              gpushared_module** module) GPUSHARED_NOEXCEPT;
/* The module is unloaded when its kernel handles are gone too. */
void gpushared_destroy_module(gpushared_module* module) GPUSHARED_NOEXCEPT;
gpushared_status_t gpushared_get_kernel_count(gpushared_module* module,
                                              size_t* count) GPUSHARED_NOEXCEPT;
gpushared_status_t gpushared_get_kernel(gpushared_module* module, const char* name,
                                        gpushared_kernel** kernel) GPUSHARED_NOEXCEPT;
/* GPUSHARED_NOT_FOUND past the last kernel. */
gpushared_status_t gpushared_get_kernel_at(gpushared_module* module, size_t index,
                                           gpushared_kernel** kernel) GPUSHARED_NOEXCEPT;
void gpushared_destroy_kernel(gpushared_kernel* kernel) GPUSHARED_NOEXCEPT;
gpushared_status_t gpushared_get_kernel_info(gpushared_kernel* kernel,
                                             gpushared_kernel_info* info) GPUSHARED_NOEXCEPT;
gpushared_status_t gpushared_get_kernel_attributes(
    gpushared_kernel* kernel, gpushared_kernel_attributes* attributes) GPUSHARED_NOEXCEPT;
/* GPUSHARED_NOT_FOUND when the module's PTX declares no such variable, or when it is machine code
 * without PTX. Kernels of all modules of the client may touch it, and copies and fills. */
gpushared_status_t gpushared_get_variable(gpushared_module* module, const char* name,
                                          gpushared_variable* variable) GPUSHARED_NOEXCEPT;

/* ---- Memory ---- */

/* Device memory aligned to 256 bytes; `bytes` at least 1. */
gpushared_status_t gpushared_allocate_device(gpushared_client* client, size_t bytes,
                                             gpushared_address* address) GPUSHARED_NOEXCEPT;
/* `address` must come from gpushared_allocate_device; 0 is ignored. The bytes are reused
 * after every command submitted before has finished. */
gpushared_status_t gpushared_free_device(gpushared_client* client,
                                         gpushared_address address) GPUSHARED_NOEXCEPT;
/* Host memory that copies use in place, aligned to 256 bytes; `bytes` at least 1. */
gpushared_status_t gpushared_allocate_host(gpushared_client* client, size_t bytes,
                                           void** memory) GPUSHARED_NOEXCEPT;
/* `memory` must come from gpushared_allocate_host; null is ignored. */
gpushared_status_t gpushared_free_host(gpushared_client* client, void* memory) GPUSHARED_NOEXCEPT;

/* ---- Streams and events ---- */

gpushared_status_t gpushared_create_stream(gpushared_client* client,
                                           gpushared_stream** stream) GPUSHARED_NOEXCEPT;
/* The stream that exists from the start. Owned by the client handle; valid as long as
 * it, and not to be destroyed. Null when `client` is null. */
gpushared_stream* gpushared_default_stream(gpushared_client* client) GPUSHARED_NOEXCEPT;
/* Destroys the stream after the commands queued on it, without waiting. */
void gpushared_destroy_stream(gpushared_stream* stream) GPUSHARED_NOEXCEPT;
/* Blocks until everything queued so far has finished; returns the stream's error. */
gpushared_status_t gpushared_synchronize_stream(gpushared_stream* stream) GPUSHARED_NOEXCEPT;
/* GPUSHARED_NOT_READY while something queued so far has not finished. */
gpushared_status_t gpushared_query_stream(gpushared_stream* stream) GPUSHARED_NOEXCEPT;
/* What a kernel did, where the stream's error is GPUSHARED_KERNEL_FAULT. Never waits: it speaks of
 * errors that a call has returned. */
gpushared_fault_t gpushared_get_stream_fault(gpushared_stream* stream) GPUSHARED_NOEXCEPT;
/* What the first kernel of this client that ended in a fault did, on any stream. Never waits. */
gpushared_fault_t gpushared_get_client_fault(gpushared_client* client) GPUSHARED_NOEXCEPT;

/* `timing` non-zero: usable with gpushared_get_elapsed_time. */
gpushared_status_t gpushared_create_event(gpushared_client* client, int timing,
                                          gpushared_event** event) GPUSHARED_NOEXCEPT;
void gpushared_destroy_event(gpushared_event* event) GPUSHARED_NOEXCEPT;
/* Marks a request: what latency_target_ns is about, what gpusharedctl counts and explains.
 * It arrived `age_ns` ago (at most an hour) and ends when everything queued on the stream
 * before gpushared_end_request has finished. The requests of one stream do not nest; the
 * next may begin while earlier ones still run. Blocks while 16 are about to end;
 * GPUSHARED_LIMIT_EXCEEDED when 16 streams have begun one and not ended it. */
gpushared_status_t gpushared_begin_request(gpushared_stream* stream,
                                           uint64_t age_ns) GPUSHARED_NOEXCEPT;
gpushared_status_t gpushared_end_request(gpushared_stream* stream) GPUSHARED_NOEXCEPT;
/* A hint: the next request will begin in about this time, at most an hour. */
gpushared_status_t gpushared_expect_request_in(gpushared_client* client,
                                               uint64_t in_ns) GPUSHARED_NOEXCEPT;

/* Moves the event to the end of what is queued on the stream now. */
gpushared_status_t gpushared_record_event(gpushared_stream* stream,
                                          gpushared_event* event) GPUSHARED_NOEXCEPT;
/* Later commands of the stream start only after the point where the event stands. */
gpushared_status_t gpushared_wait_event(gpushared_stream* stream,
                                        gpushared_event* event) GPUSHARED_NOEXCEPT;
gpushared_status_t gpushared_query_event(gpushared_event* event) GPUSHARED_NOEXCEPT;
gpushared_status_t gpushared_synchronize_event(gpushared_event* event) GPUSHARED_NOEXCEPT;
/* Device time between two finished events with timing; negative if `end` came first. */
gpushared_status_t gpushared_get_elapsed_time(gpushared_event* start, gpushared_event* end,
                                              int64_t* elapsed_ns) GPUSHARED_NOEXCEPT;

/* ---- Commands ---- */

/* `arguments[i]` points to the value of parameter i, which is copied; its size is that
 * of the kernel's parameter. `argument_count` must equal the kernel's. */
gpushared_status_t gpushared_launch(gpushared_stream* stream, gpushared_kernel* kernel,
                                    const gpushared_launch_shape* shape,
                                    const void* const* arguments,
                                    size_t argument_count) GPUSHARED_NOEXCEPT;
/* The same with the argument buffer laid out by the caller: exactly parameter_bytes. */
gpushared_status_t gpushared_launch_packed(gpushared_stream* stream, gpushared_kernel* kernel,
                                           const gpushared_launch_shape* shape,
                                           const void* parameters, size_t bytes) GPUSHARED_NOEXCEPT;

/* From ordinary memory: returns when `source` may be reused. From host memory of
 * gpushared_allocate_host: returns at once; keep the bytes until the copy has finished. */
gpushared_status_t gpushared_copy_to_device(gpushared_stream* stream, gpushared_address destination,
                                            const void* source, size_t bytes) GPUSHARED_NOEXCEPT;
/* Into ordinary memory: returns when the bytes have arrived. Into host memory of
 * gpushared_allocate_host: returns at once. */
gpushared_status_t gpushared_copy_to_host(gpushared_stream* stream, void* destination,
                                          gpushared_address source,
                                          size_t bytes) GPUSHARED_NOEXCEPT;
/* The ranges must not overlap. */
gpushared_status_t gpushared_copy_on_device(gpushared_stream* stream, gpushared_address destination,
                                            gpushared_address source,
                                            size_t bytes) GPUSHARED_NOEXCEPT;
gpushared_status_t gpushared_copy_to_device_2d(
    gpushared_stream* stream, gpushared_address destination, const void* source,
    const gpushared_copy_shape* shape) GPUSHARED_NOEXCEPT;
gpushared_status_t gpushared_copy_to_host_2d(gpushared_stream* stream, void* destination,
                                             gpushared_address source,
                                             const gpushared_copy_shape* shape) GPUSHARED_NOEXCEPT;
gpushared_status_t gpushared_copy_on_device_2d(
    gpushared_stream* stream, gpushared_address destination, gpushared_address source,
    const gpushared_copy_shape* shape) GPUSHARED_NOEXCEPT;

/* Repeats the low `element_bytes` (1, 2 or 4) bytes of `value`, `count` times.
 * `destination` must be aligned to the element. */
gpushared_status_t gpushared_fill(gpushared_stream* stream, gpushared_address destination,
                                  uint32_t value, uint32_t element_bytes,
                                  size_t count) GPUSHARED_NOEXCEPT;
gpushared_status_t gpushared_fill_2d(gpushared_stream* stream, gpushared_address destination,
                                     uint32_t value, uint32_t element_bytes,
                                     const gpushared_fill_shape* shape) GPUSHARED_NOEXCEPT;

/* ---- Graphs: a recorded sequence of commands, launched as one ---- */

/* A stream whose launches, copies and fills are recorded instead of run, at most 4096 of them.
 * Copies to and from the host are of memory of gpushared_allocate_host, which must be there while
 * the graph is. Waits, events, requests and synchronisation are rejected: they stand before and
 * behind the graph's launch. Destroyed as other streams are. */
gpushared_status_t gpushared_create_recorder(gpushared_client* client,
                                             gpushared_stream** recorder) GPUSHARED_NOEXCEPT;
/* A graph of what was recorded; the recorder is empty again. Waits for the server, which checks
 * every node as it checks the same command alone. GPUSHARED_LIMIT_EXCEEDED with 256 graphs, or
 * 16 MiB of them. */
gpushared_status_t gpushared_make_graph(gpushared_stream* recorder,
                                        gpushared_graph** graph) GPUSHARED_NOEXCEPT;
/* Launches that were submitted before run. */
void gpushared_destroy_graph(gpushared_graph* graph) GPUSHARED_NOEXCEPT;
size_t gpushared_get_node_count(gpushared_graph* graph) GPUSHARED_NOEXCEPT;
/* Runs all nodes, in their order, behind what is queued on the stream. Returns at once. */
gpushared_status_t gpushared_launch_graph(gpushared_graph* graph,
                                          gpushared_stream* stream) GPUSHARED_NOEXCEPT;
/* Replaces a node (counted from 0) that is a launch, from the next launch of the graph on. */
gpushared_status_t gpushared_set_node_launch(gpushared_graph* graph, size_t node,
                                             gpushared_kernel* kernel,
                                             const gpushared_launch_shape* shape,
                                             const void* const* arguments,
                                             size_t argument_count) GPUSHARED_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif /* GPUSHARED_GPUSHARED_H_ */
